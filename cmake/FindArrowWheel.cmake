# Finds Arrow C++ in the pyarrow/ folder of a pyarrow wheel and makes two targets:
#
#   ArrowWheel::arrow     IPC, CSV, compression
#   ArrowWheel::parquet   Parquet, on top of it
#
# Input: ARROW_WHEEL (variable or environment), else .deps/arrow/pyarrow, which tools/setup makes.
# Of the wheel only include/arrow, include/parquet, libarrow.so.* and libparquet.so.* are needed.
# The libraries have no unversioned names, so they are found by a pattern. Absent is not an error:
# the build goes on without Arrow, Parquet, CSV and .zst files.

if(NOT ARROW_WHEEL)
  if(DEFINED ENV{ARROW_WHEEL} AND NOT "$ENV{ARROW_WHEEL}" STREQUAL "")
    set(ARROW_WHEEL "$ENV{ARROW_WHEEL}")
  else()
    set(ARROW_WHEEL "${CMAKE_CURRENT_SOURCE_DIR}/.deps/arrow/pyarrow")
  endif()
endif()
get_filename_component(ARROW_WHEEL "${ARROW_WHEEL}" REALPATH)

file(GLOB _arrow_library "${ARROW_WHEEL}/libarrow.so.*")
file(GLOB _parquet_library "${ARROW_WHEEL}/libparquet.so.*")
set(ARROW_WHEEL_VERSION "")
set(_header "${ARROW_WHEEL}/include/arrow/util/config.h")
if(EXISTS "${_header}")
  file(STRINGS "${_header}" _line REGEX "#define ARROW_VERSION_STRING ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" ARROW_WHEEL_VERSION "${_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowWheel
  REQUIRED_VARS _arrow_library _parquet_library ARROW_WHEEL_VERSION
  VERSION_VAR ARROW_WHEEL_VERSION
  REASON_FAILURE_MESSAGE "no pyarrow wheel at ${ARROW_WHEEL}: building without Arrow, Parquet, \
CSV and .zst files. Run tools/setup for them.")

if(ArrowWheel_FOUND AND NOT TARGET ArrowWheel::arrow)
  list(GET _arrow_library 0 _arrow_library)
  list(GET _parquet_library 0 _parquet_library)
  add_library(ArrowWheel::arrow SHARED IMPORTED GLOBAL)
  set_target_properties(ArrowWheel::arrow PROPERTIES IMPORTED_LOCATION "${_arrow_library}")
  target_include_directories(ArrowWheel::arrow SYSTEM INTERFACE "${ARROW_WHEEL}/include")
  add_library(ArrowWheel::parquet SHARED IMPORTED GLOBAL)
  set_target_properties(ArrowWheel::parquet PROPERTIES IMPORTED_LOCATION "${_parquet_library}")
  target_link_libraries(ArrowWheel::parquet INTERFACE ArrowWheel::arrow)
endif()
