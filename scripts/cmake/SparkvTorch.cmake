# Target sparkv_torch: LibTorch's headers and the two shared libraries we link. Linked PRIVATE by
# common/llm's Torch files and by nothing else, since the wheel brings its own protobuf and fmt headers.
# find_package(Torch) is not used: the wheel's config drags in CUDA libraries that a CPU machine lacks.
if(SPARKV_LIBTORCH)
  set(_torch "${SPARKV_LIBTORCH}")
else()
  set(_torch "${CMAKE_SOURCE_DIR}/.deps/libtorch/torch")
endif()
if(EXISTS "${_torch}/torch/include/ATen/ATen.h")  # the folder that holds the unpacked wheel
  set(_torch "${_torch}/torch")
endif()
if(NOT EXISTS "${_torch}/include/ATen/ATen.h" OR NOT EXISTS "${_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch was not found in '${_torch}'. Run scripts/deps.sh, or pass "
    "-DSPARKV_LIBTORCH=<dir> with a LibTorch >= 2.4 (a folder that holds include/ATen and lib/libtorch_cpu.so).")
endif()
file(STRINGS "${_torch}/include/torch/headeronly/version.h" _version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR)")
if(NOT _version_lines AND EXISTS "${_torch}/include/torch/csrc/api/include/torch/version.h")
  file(STRINGS "${_torch}/include/torch/csrc/api/include/torch/version.h" _version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR)")
endif()
string(REGEX MATCH "MAJOR +([0-9]+)" _ "${_version_lines}")
set(_major "${CMAKE_MATCH_1}")
string(REGEX MATCH "MINOR +([0-9]+)" _ "${_version_lines}")
set(_minor "${CMAKE_MATCH_1}")
if(_major AND "${_major}.${_minor}" VERSION_LESS 2.4)
  message(FATAL_ERROR "LibTorch ${_major}.${_minor} in '${_torch}' is too old; 2.4 or newer is needed.")
endif()
message(STATUS "LibTorch ${_major}.${_minor}: ${_torch}")

add_library(sparkv_c10 SHARED IMPORTED)
set_target_properties(sparkv_c10 PROPERTIES IMPORTED_LOCATION "${_torch}/lib/libc10.so")
add_library(sparkv_torch_cpu SHARED IMPORTED)
set_target_properties(sparkv_torch_cpu PROPERTIES IMPORTED_LOCATION "${_torch}/lib/libtorch_cpu.so")
# The wheel's libtorch_cpu.so names CUDA libraries that need not be there to link.
target_link_options(sparkv_torch_cpu INTERFACE -Wl,--allow-shlib-undefined "-Wl,-rpath,${_torch}/lib")

add_library(sparkv_torch INTERFACE)
target_include_directories(sparkv_torch SYSTEM INTERFACE "${_torch}/include")
target_link_libraries(sparkv_torch INTERFACE sparkv_torch_cpu sparkv_c10)
set(SPARKV_TORCH_LIB_DIR "${_torch}/lib")
