# `cmake --install build/release --prefix P` (or `make install PREFIX=P`):
#
#   P/bin/gradus                  the program
#   P/include/gradus              the public headers
#   P/lib/libgradus.so            the library
#   P/lib/cmake/gradus            what find_package(gradus) finds
#   P/lib/gradus                  what gradus needs and this clone holds: LibTorch with its headers,
#                                 the two CUDA libraries it is linked with, Arrow
#   P/lib/gradus/installed-files.txt   the list that tools/uninstall goes by
#
# Search paths inside P are relative, so P can be moved. A LibTorch or Arrow that lies outside the
# clone (LIBTORCH=, a Python environment) stays where it is and is named by its path.
include(CMakePackageConfigHelpers)
set(GRADUS_BUNDLE AUTO CACHE STRING
  "Copy LibTorch and Arrow into the install folder: ON, OFF, or AUTO for those in this clone")
set_property(CACHE GRADUS_BUNDLE PROPERTY STRINGS AUTO ON OFF)

# gradus_is_bundled(RESULT FOLDER): whether the installation takes the folder along.
function(gradus_is_bundled result folder)
  get_filename_component(folder "${folder}" REALPATH)
  get_filename_component(clone "${PROJECT_SOURCE_DIR}" REALPATH)
  get_filename_component(deps "${PROJECT_SOURCE_DIR}/.deps" REALPATH)
  set(bundled OFF)
  foreach(ours "${clone}" "${deps}")
    cmake_path(IS_PREFIX ours "${folder}" NORMALIZE inside)
    if(inside)
      set(bundled ON)
    endif()
  endforeach()
  if(NOT GRADUS_BUNDLE STREQUAL "AUTO")
    set(bundled "${GRADUS_BUNDLE}")
  endif()
  set(${result} "${bundled}" PARENT_SCOPE)
endfunction()

set(bundle "${CMAKE_INSTALL_LIBDIR}/gradus")
set(inside_rpath "")   # relative to the library folder
set(outside_rpath "")  # absolute

gradus_is_bundled(with_libtorch "${LIBTORCH}")
if(with_libtorch)
  list(APPEND inside_rpath gradus/torch/lib)
  install(DIRECTORY "${LIBTORCH}/include" DESTINATION "${bundle}/torch")
  install(DIRECTORY "${LIBTORCH}/lib" DESTINATION "${bundle}/torch" USE_SOURCE_PERMISSIONS
    PATTERN "*.a" EXCLUDE)
  if(EXISTS "${LIBTORCH}/../torch.libs")
    install(DIRECTORY "${LIBTORCH}/../torch.libs" DESTINATION "${bundle}" USE_SOURCE_PERMISSIONS)
  endif()
  set(GRADUS_PACKAGE_LIBTORCH "\${PACKAGE_PREFIX_DIR}/${bundle}/torch")
else()
  list(APPEND outside_rpath "${LIBTORCH}/lib")
  set(GRADUS_PACKAGE_LIBTORCH "${LIBTORCH}")
endif()

# Beside torch/, where the RPATH of libtorch_cpu.so looks.
set(GRADUS_PACKAGE_RUNTIME "")
foreach(folder IN LISTS LIBTORCH_RUNTIME_DIRS)
  gradus_is_bundled(with_runtime "${folder}")
  get_filename_component(folder "${folder}" REALPATH)
  if(with_runtime)
    get_filename_component(version "${folder}" DIRECTORY)
    get_filename_component(version "${version}" NAME)
    install(DIRECTORY "${folder}" DESTINATION "${bundle}/nvidia/${version}" USE_SOURCE_PERMISSIONS)
    list(APPEND inside_rpath gradus/nvidia/${version}/lib)
    list(APPEND GRADUS_PACKAGE_RUNTIME
      "\${PACKAGE_PREFIX_DIR}/${bundle}/nvidia/${version}/lib")
  else()
    list(APPEND outside_rpath "${folder}")
    list(APPEND GRADUS_PACKAGE_RUNTIME "${folder}")
  endif()
endforeach()

if(GRADUS_ARROW)
  gradus_is_bundled(with_arrow "${ARROW_WHEEL}")
  if(with_arrow)
    file(GLOB libraries "${ARROW_WHEEL}/libarrow.so.*" "${ARROW_WHEEL}/libparquet.so.*")
    install(PROGRAMS ${libraries} DESTINATION "${bundle}/arrow")
    list(APPEND inside_rpath gradus/arrow)
  else()
    list(APPEND outside_rpath "${ARROW_WHEEL}")
  endif()
endif()

# gradus_install_rpath(TARGET FOLDER): search paths for a target that is installed in FOLDER.
function(gradus_install_rpath target folder)
  file(RELATIVE_PATH libraries "/${folder}" "/${CMAKE_INSTALL_LIBDIR}")
  string(JOIN "/" libraries "$ORIGIN" ${libraries})
  set(paths "${libraries}")
  foreach(path IN LISTS inside_rpath)
    list(APPEND paths "${libraries}/${path}")
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${paths};${outside_rpath}")
endfunction()

gradus_install_rpath(gradus "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS gradus EXPORT gradusTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
add_custom_target(gradus_installed_parts DEPENDS gradus)  # what has to be built before
if(GRADUS_PROGRAM)
  gradus_install_rpath(gradus_cli "${CMAKE_INSTALL_BINDIR}")
  install(TARGETS gradus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  add_dependencies(gradus_installed_parts gradus_cli)
endif()
if(GRADUS_CUDA)
  gradus_install_rpath(gradus_cuda "${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS gradus_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  add_dependencies(gradus_installed_parts gradus_cuda)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/gradus" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/gradus")
install(EXPORT gradusTargets NAMESPACE gradus:: DESTINATION "${package}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/gradusConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/gradusConfig.cmake" INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/gradusConfig.cmake"
  "${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" DESTINATION "${package}")

# Last: what was installed, relative to the prefix.
set(installed_files "${bundle}/installed-files.txt")
install(CODE "set(installed_files \"${installed_files}\")")
install(CODE [[
  set(names "")
  foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
    file(RELATIVE_PATH name "${CMAKE_INSTALL_PREFIX}" "${file}")
    string(APPEND names "${name}\n")
  endforeach()
  string(APPEND names "${installed_files}\n")
  file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${installed_files}" "${names}")
]])
