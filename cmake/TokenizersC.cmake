# Builds tokenizers-c (Rust, static) with cargo and offers it as gradus::tokenizers_c.
# Without a cargo that is new enough, or without its crates, the build goes on: text parts then
# answer with the remedy.
set(GRADUS_CARGO_MINIMUM 1.85)
set(GRADUS_TOKENIZERS_ARCHIVE "" CACHE FILEPATH
  "A libgradus_tokenizers_c.a built elsewhere, for machines without cargo")
option(GRADUS_TOKENIZERS "Build the tokenizer (needs cargo ${GRADUS_CARGO_MINIMUM} or newer)" ON)

function(gradus_find_cargo reason)
  find_program(GRADUS_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin")
  if(NOT GRADUS_CARGO)
    set(${reason} "cargo was not found" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${GRADUS_CARGO}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${version}")
  if(version VERSION_LESS GRADUS_CARGO_MINIMUM)
    set(${reason} "${GRADUS_CARGO} is version ${version}" PARENT_SCOPE)
    return()
  endif()
  # Crates are kept in the user's cargo folder; nothing is fetched when they are all there.
  execute_process(
    COMMAND "${GRADUS_CARGO}" fetch --locked --quiet
      --manifest-path "${PROJECT_SOURCE_DIR}/tokenizers-c/Cargo.toml"
    RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_QUIET)
  if(failed)
    set(${reason} "cargo cannot fetch the crates: ${said}" PARENT_SCOPE)
    return()
  endif()
  set(${reason} "" PARENT_SCOPE)
endfunction()

function(gradus_build_tokenizers_c archive)
  set(folder "${PROJECT_BINARY_DIR}/tokenizers-c")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tokenizers-c/src/*.rs")
  add_custom_command(OUTPUT "${archive}"
    COMMAND "${GRADUS_CARGO}" build --release --locked --quiet
      --manifest-path "${PROJECT_SOURCE_DIR}/tokenizers-c/Cargo.toml" --target-dir "${folder}"
    DEPENDS ${sources} "${PROJECT_SOURCE_DIR}/tokenizers-c/Cargo.toml"
      "${PROJECT_SOURCE_DIR}/tokenizers-c/Cargo.lock"
    COMMENT "Building tokenizers-c with cargo" VERBATIM)
  add_custom_target(gradus_tokenizers_c_build DEPENDS "${archive}")
endfunction()

function(gradus_add_tokenizers_c archive)
  add_library(gradus_tokenizers_c STATIC IMPORTED GLOBAL)
  set_target_properties(gradus_tokenizers_c PROPERTIES IMPORTED_LOCATION "${archive}"
    INTERFACE_INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/tokenizers-c/include"
    INTERFACE_COMPILE_DEFINITIONS GRADUS_WITH_TOKENIZERS
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m"
    INTERFACE_LINK_OPTIONS "LINKER:--exclude-libs,libgradus_tokenizers_c.a")
  if(TARGET gradus_tokenizers_c_build)
    add_dependencies(gradus_tokenizers_c gradus_tokenizers_c_build)
  endif()
  add_library(gradus::tokenizers_c ALIAS gradus_tokenizers_c)
endfunction()

set(GRADUS_TOKENIZERS_C "")
if(GRADUS_TOKENIZERS_ARCHIVE)
  gradus_add_tokenizers_c("${GRADUS_TOKENIZERS_ARCHIVE}")
  set(GRADUS_TOKENIZERS_C gradus_tokenizers_c)
elseif(GRADUS_TOKENIZERS)
  gradus_find_cargo(no_cargo)
  if(no_cargo)
    message(STATUS "Tokenizers: left out (${no_cargo}). Text tasks need cargo \
${GRADUS_CARGO_MINIMUM} or newer: install it with rustup, then configure again.")
  else()
    set(archive "${PROJECT_BINARY_DIR}/tokenizers-c/release/libgradus_tokenizers_c.a")
    gradus_build_tokenizers_c("${archive}")
    gradus_add_tokenizers_c("${archive}")
    set(GRADUS_TOKENIZERS_C gradus_tokenizers_c)
  endif()
else()
  message(STATUS "Tokenizers: left out (GRADUS_TOKENIZERS=OFF)")
endif()
