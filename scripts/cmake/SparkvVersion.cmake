# Target sparkv_version: build_info.h with commit and build type, regenerated when HEAD moves.
execute_process(COMMAND git -C "${CMAKE_SOURCE_DIR}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE SPARKV_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT SPARKV_COMMIT)
  set(SPARKV_COMMIT "unknown")
endif()
if(EXISTS "${CMAKE_SOURCE_DIR}/.git/logs/HEAD")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/.git/logs/HEAD")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/build_info.h.in" "${CMAKE_BINARY_DIR}/generated/sparkv_build_info.h" @ONLY)
add_library(sparkv_version INTERFACE)
target_include_directories(sparkv_version INTERFACE "${CMAKE_BINARY_DIR}/generated")
