# Finds LibTorch in the torch/ folder of a wheel or of the LibTorch zip and makes one target:
#
#   LibTorch::LibTorch   headers, libc10 and libtorch_cpu, with an RPATH: programs run as they are
#
# Input: LIBTORCH (variable or environment), else .deps/libtorch, which tools/setup makes.
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
if(EXISTS "${LIBTORCH}/include/torch/headeronly/version.h")
  file(STRINGS "${LIBTORCH}/include/torch/headeronly/version.h" _lines
    REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
elseif(EXISTS "${LIBTORCH}/include/torch/csrc/api/include/torch/version.h")
  file(STRINGS "${LIBTORCH}/include/torch/csrc/api/include/torch/version.h" _lines
    REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
endif()
string(REGEX REPLACE "[^0-9;]" "" _numbers "${_lines}")
string(REPLACE ";" "." LIBTORCH_VERSION "${_numbers}")
if(NOT EXISTS "${LIBTORCH}/lib/libtorch_cpu.so" OR NOT EXISTS "${LIBTORCH}/lib/libc10.so")
  set(LIBTORCH_VERSION "")
endif()

include(FindPackageHandleStandardArgs)
string(CONCAT _no_libtorch "no LibTorch at ${LIBTORCH}. Run tools/setup, or set LIBTORCH to the "
  "torch/ folder of a torch 2.11 to 2.15 wheel.")
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH LIBTORCH_VERSION
  VERSION_VAR LIBTORCH_VERSION
  REASON_FAILURE_MESSAGE "${_no_libtorch}")
if(LIBTORCH_VERSION VERSION_LESS 2.11 OR LIBTORCH_VERSION VERSION_GREATER_EQUAL 2.16)
  message(FATAL_ERROR "LibTorch ${LIBTORCH_VERSION} at ${LIBTORCH}: gradus needs 2.11 to 2.15.")
endif()

# libtorch_cpu of the ordinary wheel needs libcudart and libcupti, which lie beside torch/ as in
# site-packages; for a torch that came without them tools/setup lays them in .deps/cuda-runtime.
# LIBTORCH_RUNTIME may name a further folder.
file(GLOB LIBTORCH_RUNTIME_DIRS "${LIBTORCH}/../nvidia/*/lib")
if(NOT LIBTORCH_RUNTIME_DIRS)
  file(GLOB LIBTORCH_RUNTIME_DIRS "${CMAKE_CURRENT_SOURCE_DIR}/.deps/cuda-runtime/nvidia/cu*/lib"
    ${LIBTORCH_RUNTIME})
endif()
set(LIBTORCH_RPATH "${LIBTORCH}/lib")
foreach(_dir IN LISTS LIBTORCH_RUNTIME_DIRS)
  get_filename_component(_dir "${_dir}" REALPATH)
  list(APPEND LIBTORCH_RPATH "${_dir}")
endforeach()

if(NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LIBTORCH}/lib/libc10.so")
  add_library(LibTorch::torch_cpu SHARED IMPORTED)
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${LIBTORCH}/lib/libtorch_cpu.so")
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LIBTORCH}/include" "${LIBTORCH}/include/torch/csrc/api/include")
  target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::torch_cpu LibTorch::c10)
  target_compile_definitions(LibTorch::LibTorch INTERFACE FMT_HEADER_ONLY=1)
  # -rpath rather than -runpath: it also serves libtorch_cpu's own search for libcupti
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--disable-new-dtags)
  foreach(_dir IN LISTS LIBTORCH_RPATH)
    target_link_options(LibTorch::LibTorch INTERFACE "-Wl,-rpath-link,${_dir}" "-Wl,-rpath,${_dir}")
  endforeach()
endif()
