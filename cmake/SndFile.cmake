# What decodes sound: libsndfile of the system, as the target gradus_sndfile.
find_path(SNDFILE_INCLUDE_DIR sndfile.h)
find_library(SNDFILE_LIBRARY sndfile)
if(NOT SNDFILE_INCLUDE_DIR OR NOT SNDFILE_LIBRARY)
  message(FATAL_ERROR "libsndfile was not found; gradus decodes sound with it. Run tools/setup, "
    "or install libsndfile1-dev (the name in Debian and Ubuntu).")
endif()
add_library(gradus_sndfile INTERFACE)
target_include_directories(gradus_sndfile SYSTEM INTERFACE "${SNDFILE_INCLUDE_DIR}")
target_link_libraries(gradus_sndfile INTERFACE "${SNDFILE_LIBRARY}")
