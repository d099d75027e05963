# `cmake --install build/release --prefix P`: headers, libgradus.so, the program and a package that
# `find_package(gradus)` finds. The package remembers the LibTorch it was built with.
include(CMakePackageConfigHelpers)

install(TARGETS gradus EXPORT gradusTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET gradus_cli)
  install(TARGETS gradus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/gradus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT gradusTargets NAMESPACE gradus:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
configure_package_config_file(cmake/gradusConfig.cmake.in "${CMAKE_BINARY_DIR}/gradusConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/gradusConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/gradusConfig.cmake"
  "${CMAKE_BINARY_DIR}/gradusConfigVersion.cmake" cmake/FindLibTorch.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
