# Finds LibTorch in the torch/ folder of a wheel or of the LibTorch zip and makes one target:
#
#   LibTorch::LibTorch   headers, libc10 and libtorch_cpu, with an RPATH so that programs run as is
#
# Input: LIBTORCH (variable or environment), else .deps/libtorch, which tools/setup makes.
#        LIBTORCH_RUNTIME: further folders to look for the libraries that libtorch_cpu needs.
#        LIBTORCH_WITHOUT_RPATH: leave the RPATH to the project, which finds it in LIBTORCH_RPATH.
# find_package(Torch) is not used: with the ordinary wheel it demands a CUDA toolkit.

if(NOT LIBTORCH)
  if(DEFINED ENV{LIBTORCH} AND NOT "$ENV{LIBTORCH}" STREQUAL "")
    set(LIBTORCH "$ENV{LIBTORCH}")
  else()
    set(LIBTORCH "${CMAKE_CURRENT_SOURCE_DIR}/.deps/libtorch")
  endif()
endif()
get_filename_component(LIBTORCH "${LIBTORCH}" REALPATH)
set(LIBTORCH "${LIBTORCH}" CACHE PATH "The torch/ folder of a wheel or of the LibTorch zip" FORCE)

set(_lines "")
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT _lines AND EXISTS "${LIBTORCH}/include/${_header}")
    file(STRINGS "${LIBTORCH}/include/${_header}" _lines
      REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  endif()
endforeach()
string(REGEX REPLACE "[^0-9;]" "" _numbers "${_lines}")
string(REPLACE ";" "." LIBTORCH_VERSION "${_numbers}")
if(NOT EXISTS "${LIBTORCH}/lib/libtorch_cpu.so" OR NOT EXISTS "${LIBTORCH}/lib/libc10.so")
  set(LIBTORCH_VERSION "")
endif()

set(_advice "Set LIBTORCH to the torch/ folder of a torch 2.11 to 2.15 wheel.")
if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/tools/setup")
  set(_advice "Run ${CMAKE_CURRENT_SOURCE_DIR}/tools/setup, which fetches it, or set LIBTORCH to \
the torch/ folder of a torch 2.11 to 2.15 wheel.")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH LIBTORCH_VERSION
  VERSION_VAR LIBTORCH_VERSION
  REASON_FAILURE_MESSAGE "no LibTorch at ${LIBTORCH}. ${_advice}")
if(LIBTORCH_VERSION VERSION_LESS 2.11 OR LIBTORCH_VERSION VERSION_GREATER_EQUAL 2.16)
  message(FATAL_ERROR "LibTorch ${LIBTORCH_VERSION} at ${LIBTORCH}: gradus needs 2.11 to 2.15.")
endif()

# libtorch_cpu of the ordinary wheel needs libcudart and libcupti, which lie beside torch/ as in
# site-packages. For a torch that came without them tools/setup puts them into .deps/cuda-runtime.
file(GLOB LIBTORCH_RUNTIME_DIRS "${LIBTORCH}/../nvidia/*/lib")
if(NOT LIBTORCH_RUNTIME_DIRS)
  file(GLOB LIBTORCH_RUNTIME_DIRS
    "${CMAKE_CURRENT_SOURCE_DIR}/.deps/cuda-runtime/nvidia/cu*/lib" ${LIBTORCH_RUNTIME})
endif()
list(TRANSFORM LIBTORCH_RUNTIME_DIRS REPLACE "/$" "")
set(LIBTORCH_RPATH "${LIBTORCH}/lib")
foreach(_dir IN LISTS LIBTORCH_RUNTIME_DIRS)
  get_filename_component(_dir "${_dir}" REALPATH)
  list(APPEND LIBTORCH_RPATH "${_dir}")
endforeach()

if(NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LIBTORCH}/lib/libc10.so")
  add_library(LibTorch::torch_cpu SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${LIBTORCH}/lib/libtorch_cpu.so")
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LIBTORCH}/include" "${LIBTORCH}/include/torch/csrc/api/include")
  target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::torch_cpu LibTorch::c10)
  target_compile_definitions(LibTorch::LibTorch INTERFACE FMT_HEADER_ONLY=1)
  # An RPATH rather than a RUNPATH: it also serves libtorch_cpu's own search for libcupti.
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--disable-new-dtags)
  foreach(_dir IN LISTS LIBTORCH_RPATH)
    target_link_options(LibTorch::LibTorch INTERFACE "-Wl,-rpath-link,${_dir}")
    if(NOT LIBTORCH_WITHOUT_RPATH)
      target_link_options(LibTorch::LibTorch INTERFACE "-Wl,-rpath,${_dir}")
    endif()
  endforeach()
endif()
