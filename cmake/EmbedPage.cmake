# Puts the page of `gradus serve` into the program: cli/page and uPlot, the plotting library, which
# tools/setup fetches from npm. Run as a script it writes the C++ file that holds their bytes.
#
#   cmake -DOUTPUT=page_files.cpp -DFILES="a.js|b.css" -P EmbedPage.cmake
#
# Included, it makes gradus_embed_page(TARGET).

if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" files "${FILES}")
  set(arrays "")
  set(rows "")
  set(number 0)
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME)
    get_filename_component(extension "${file}" LAST_EXT)
    if(extension STREQUAL ".html")
      set(type "text/html")
    elseif(extension STREQUAL ".css")
      set(type "text/css")
    else()
      set(type "text/javascript")
    endif()
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................\
................)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "constexpr unsigned char kBytes${number}[] = {\n${bytes}0};\n")
    string(APPEND rows "      {\"${name}\", \"${type}; charset=utf-8\",\n"
      "       {reinterpret_cast<const char*>(kBytes${number}), sizeof kBytes${number} - 1}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  set(list "  static const PageFile files[] = {\n${rows}  };\n  return files;\n")
  if(number EQUAL 0)
    set(list "  return {};\n")
  endif()
  file(WRITE "${OUTPUT}" "#include \"page_files.h\"\n\nnamespace gradus::cli {\nnamespace {\n\n"
    "${arrays}\n}  // namespace\n\nstd::span<const PageFile> page_files() {\n${list}}\n\n"
    "}  // namespace gradus::cli\n")
  return()
endif()

set(GRADUS_UPLOT "${PROJECT_SOURCE_DIR}/.deps/uplot" CACHE PATH
  "The folder with uPlot.iife.min.js and uPlot.min.css, for the page of gradus serve")

function(gradus_embed_page target)
  set(page "${CMAKE_CURRENT_SOURCE_DIR}/page")
  set(files "")
  if(EXISTS "${GRADUS_UPLOT}/uPlot.iife.min.js" AND EXISTS "${GRADUS_UPLOT}/uPlot.min.css")
    file(GLOB own CONFIGURE_DEPENDS "${page}/*.html" "${page}/*.css" "${page}/*.js")
    set(files ${own} "${GRADUS_UPLOT}/uPlot.iife.min.js" "${GRADUS_UPLOT}/uPlot.min.css")
  else()
    message(STATUS "No uPlot in ${GRADUS_UPLOT}: gradus serve and report --html are left out")
  endif()
  set(output "${CMAKE_CURRENT_BINARY_DIR}/page_files.cpp")
  set(script "${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake")
  string(REPLACE ";" "|" joined "${files}")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DFILES=${joined}" -P "${script}"
    DEPENDS ${files} "${script}" COMMENT "Embedding the page" VERBATIM)
  set_source_files_properties("${output}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE "${output}")
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
endfunction()
