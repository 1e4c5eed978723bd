# Target sparkv_options: what every target of ours is compiled with.
add_library(sparkv_options INTERFACE)
target_include_directories(sparkv_options INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(sparkv_options INTERFACE
  -Wall -Wextra -Werror $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> -Wno-missing-field-initializers)
if(SPARKV_SANITIZE)
  target_compile_options(sparkv_options INTERFACE
    -fsanitize=${SPARKV_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>)  # GCC 12 warns of instrumented library headers
  target_link_options(sparkv_options INTERFACE -fsanitize=${SPARKV_SANITIZE})
endif()
if(SPARKV_SANITIZE STREQUAL "thread")
  # gRPC's libraries look for Abseil along our path too, so that one instrumented copy serves all.
  target_link_options(sparkv_options INTERFACE -Wl,--disable-new-dtags)
endif()
if(SPARKV_FUZZ)
  target_compile_options(sparkv_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sparkv_library(NAME SOURCES... [DEPS...]): a static library of one layer.
function(sparkv_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC sparkv_options ${A_DEPS})
endfunction()
