# How the folders of src/ become libgradus.so, and those of tests/ become test programs.

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
endif()

# One set of flags for everything, so that all targets can share the precompiled header.
add_compile_options(-fPIC -Wall -Wextra -Wmissing-declarations -Wno-psabi)
if(GRADUS_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)  # lets ccache see through the precompiled header
  # A compiler that does not look for garbage before it has 2 GB takes a tenth less time.
  add_compile_options(--param=ggc-min-heapsize=2000000)
  if(GRADUS_UNITY)
    add_compile_options(-Wno-subobject-linkage)  # g++ takes a .cpp in a unity file for a header
  endif()
else()
  # clang reports that std::stable_sort of libstdc++ 12 calls a deprecated function.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -Werror=deprecated-declarations)
  check_cxx_source_compiles("#include <algorithm>
    int main() { int pair[] = {2, 1}; std::stable_sort(pair, pair + 2); }" GRADUS_SORTS_QUIETLY)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT GRADUS_SORTS_QUIETLY)
    add_compile_options(-Wno-deprecated-declarations)
  endif()
endif()

# What a sanitizer build adds. It leaves out those checks for undefined behaviour that double the
# compile time: the reader of a damaged file is caught by the others.
set(GRADUS_SANITIZER_OPTIONS -fno-sanitize=vptr,null,object-size,alignment
  -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND GRADUS_SANITIZER_OPTIONS -Wno-maybe-uninitialized)
endif()
if(GRADUS_SANITIZER)
  add_compile_options(-fsanitize=${GRADUS_SANITIZER} ${GRADUS_SANITIZER_OPTIONS})
  add_link_options(-fsanitize=${GRADUS_SANITIZER})
endif()

# gradus_unity(TARGET [BATCH]): with GRADUS_UNITY, BATCH files of the target (default
# GRADUS_UNITY_BATCH) are compiled as one. Each compiler repeats the templates that the
# precompiled header leaves to it (3 seconds) and those that the files share, so that 24 files as
# one take 40 % less time than three times eight. They take up to 2 GB of memory. A change of one
# file compiles its neighbours too, which is why a folder for daily work may turn it off.
function(gradus_unity target)
  if(GRADUS_UNITY)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${GRADUS_UNITY_BATCH})
    if(ARGN AND GRADUS_UNITY_BATCH GREATER ARGN)
      set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${ARGN})
    endif()
  endif()
endfunction()

# gradus_headers: include paths and libraries that every part of gradus compiles with.
# gradus_pch: the precompiled header; other targets reuse it.
# gradus_test_pch: the same for programs of tests, see gradus_test_flags.
function(gradus_make_base)
  add_library(gradus_headers INTERFACE)
  target_include_directories(gradus_headers INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>")
  target_link_libraries(gradus_headers INTERFACE
    LibTorch::LibTorch nlohmann_json::nlohmann_json Threads::Threads)
  set(empty "${PROJECT_BINARY_DIR}/pch.cpp")
  file(CONFIGURE OUTPUT "${empty}" CONTENT "")
  foreach(target gradus_pch gradus_test_pch)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL "${empty}")
    target_link_libraries(${target} PUBLIC gradus_headers)
    target_precompile_headers(${target} PRIVATE
      <torch/types.h> <torch/nn/module.h> <nlohmann/json.hpp>
      <algorithm> <filesystem> <functional> <map> <memory> <optional> <span> <string>
      <string_view> <vector>)
  endforeach()
  target_compile_options(gradus_pch PRIVATE ${GRADUS_OWN_OPTIONS})
  target_precompile_headers(gradus_pch PRIVATE <fmt/format.h> <fmt/ranges.h>)
  target_compile_options(gradus_test_pch PRIVATE ${GRADUS_TEST_OPTIONS})
endfunction()

# gradus_flags(TARGET): flags and precompiled header of a part of gradus. LibTorch brings fmt as
# headers only, which every file that formats a text would compile: 60 KB of code each. Our parts
# only declare its functions, and src/core/fmt.cpp defines them.
set(GRADUS_OWN_OPTIONS -UFMT_HEADER_ONLY)
function(gradus_flags target)
  target_compile_options(${target} PRIVATE ${GRADUS_OWN_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM gradus_pch)
endfunction()

# gradus_test_flags(TARGET): flags and precompiled header of a program for tests. What it measures
# is in the library: compiled without optimization it is ready in half the time.
set(GRADUS_TEST_OPTIONS "")
if(NOT GRADUS_SANITIZER)
  set(GRADUS_TEST_OPTIONS -O0)
endif()
function(gradus_test_flags target)
  target_compile_options(${target} PRIVATE ${GRADUS_TEST_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM gradus_test_pch)
endfunction()

# gradus_module(NAME [FOLDER folder] [EXCLUDE folder] [LINK libraries...]): all .cpp files
# of src/NAME (or src/FOLDER), less those of src/EXCLUDE, as one object library gradus_NAME.
# libgradus.so is linked with the libraries too.
function(gradus_module name)
  cmake_parse_arguments(ARG "" "FOLDER;EXCLUDE" "LINK" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER "${name}")
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${ARG_FOLDER}/*.cpp")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "/src/${ARG_EXCLUDE}/")
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(gradus_${name} OBJECT ${sources})
  gradus_unity(gradus_${name})
  target_link_libraries(gradus_${name} PUBLIC gradus_headers ${ARG_LINK})
  gradus_flags(gradus_${name})
  set_property(GLOBAL APPEND PROPERTY GRADUS_MODULES gradus_${name})
  set_property(GLOBAL APPEND PROPERTY GRADUS_LIBRARIES ${ARG_LINK})
endfunction()

# gradus_unit_test(NAME [parts...]): tests/unit/NAME/*.cpp as program unit_NAME, linked from the
# named modules' objects (default: the whole library).
function(gradus_unit_test name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/unit/${name}/*.cpp")
  if(NOT sources)
    return()
  endif()
  gradus_test_program(unit_${name} SOURCES ${sources} LABEL unit PARTS ${ARGN})
endfunction()

function(gradus_test_program program)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;PARTS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${program} ${ARG_SOURCES})
  gradus_unity(${program} 4)  # test files are long
  if(ARG_PARTS)
    list(TRANSFORM ARG_PARTS PREPEND gradus_)
    target_link_libraries(${program} PRIVATE ${ARG_PARTS})
  else()
    target_link_libraries(${program} PRIVATE gradus)
  endif()
  target_link_libraries(${program} PRIVATE gradus_headers GTest::gtest GTest::gtest_main)
  gradus_test_flags(${program})
  target_compile_definitions(${program} PRIVATE
    GRADUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" GRADUS_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ${program} COMMAND ${program})
  set_tests_properties(${program} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# A program that tests run: SOURCE, linked with these parts of the library, or with all of it.
function(gradus_test_tool program source)
  add_executable(${program} ${source})
  set(parts ${ARGN})
  list(TRANSFORM parts PREPEND gradus_)
  if(NOT parts)
    set(parts gradus)
  endif()
  target_link_libraries(${program} PRIVATE ${parts} gradus_headers)
  gradus_test_flags(${program})
endfunction()

# The test integration_NAME: SCRIPT, which is told where the programs are that it runs.
function(gradus_integration_test name script timeout)
  set(programs ${ARGN})
  list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  add_test(NAME integration_${name} COMMAND Python3::Interpreter
    "${CMAKE_CURRENT_SOURCE_DIR}/integration/${script}" ${programs})
  set_tests_properties(integration_${name} PROPERTIES LABELS integration TIMEOUT ${timeout}
    SKIP_RETURN_CODE 77)
endfunction()
