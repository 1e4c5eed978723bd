# CUDA kernels: finds nvcc and makes objects of .cu files, without CMake's own language CUDA. So what ptxas says of registers
# and spills is kept as a file, and the nvcc of PyPI's wheels serves as well as an installed one.
find_program(SPARKV_NVCC nvcc PATHS /usr/local/cuda/bin "${CMAKE_SOURCE_DIR}/.deps/cuda/nvidia/cu13/bin"
  DOC "CUDA's compiler, 12.0 or newer; default: of PATH, /usr/local/cuda or scripts/deps.sh")
if(NOT SPARKV_NVCC)
  message(FATAL_ERROR "SPARKV_CUDA needs nvcc, which is neither in PATH nor in /usr/local/cuda/bin. Pass -DSPARKV_NVCC=<file>, "
    "or run scripts/cuda_check.sh --fetch-only, which fetches one under .deps/.")
endif()
execute_process(COMMAND "${SPARKV_NVCC}" --version OUTPUT_VARIABLE _nvcc_says ERROR_VARIABLE _nvcc_says RESULT_VARIABLE _nvcc_failed)
if(_nvcc_failed OR NOT _nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "'${SPARKV_NVCC} --version' says: ${_nvcc_says}")
endif()
set(_cuda_version "${CMAKE_MATCH_1}")
if(_cuda_version VERSION_LESS 12.0)
  message(FATAL_ERROR "CUDA ${_cuda_version} (${SPARKV_NVCC}) is too old; 12.0 or newer is needed.")
endif()
get_filename_component(_nvcc_file "${SPARKV_NVCC}" REALPATH)
get_filename_component(_cuda_root "${_nvcc_file}" DIRECTORY)
get_filename_component(_cuda_root "${_cuda_root}" DIRECTORY)
set(_cuda_places "${_cuda_root}")
foreach(_target x86_64-linux aarch64-linux sbsa-linux)
  list(APPEND _cuda_places "${_cuda_root}/targets/${_target}")
endforeach()
find_path(SPARKV_CUDA_INCLUDE cuda_runtime.h PATHS ${_cuda_places} PATH_SUFFIXES include NO_DEFAULT_PATH DOC "CUDA's headers")
find_library(SPARKV_CUDART libcudart_static.a PATHS ${_cuda_places} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH
  DOC "The CUDA runtime, as a static library")
if(NOT SPARKV_CUDA_INCLUDE OR NOT SPARKV_CUDART)
  message(FATAL_ERROR "CUDA's runtime (cuda_runtime.h, libcudart_static.a) is not beside ${SPARKV_NVCC}; "
    "pass -DSPARKV_CUDA_INCLUDE=<dir> and -DSPARKV_CUDART=<file>.")
endif()
message(STATUS "CUDA ${_cuda_version}: ${SPARKV_NVCC}")

add_library(sparkv_cudart INTERFACE)
target_include_directories(sparkv_cudart SYSTEM INTERFACE "${SPARKV_CUDA_INCLUDE}")
find_package(Threads REQUIRED)
target_link_libraries(sparkv_cudart INTERFACE "${SPARKV_CUDART}" Threads::Threads ${CMAKE_DL_LIBS} rt)

# Ampere's data centre GPUs, Jetson Orin, Ada, Hopper; what comes later is compiled from PTX when it is loaded.
set(SPARKV_CUDA_ARCHITECTURES 80 87 89 90)
set(_nvcc_flags -std=c++20 -O3 -lineinfo "-I${CMAKE_SOURCE_DIR}" -ccbin "${CMAKE_CXX_COMPILER}"
  --Werror all-warnings -Xptxas=-v,-warn-spills,-warn-lmem-usage "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror")
foreach(_architecture ${SPARKV_CUDA_ARCHITECTURES})
  list(APPEND _nvcc_flags "-gencode=arch=compute_${_architecture},code=sm_${_architecture}")
endforeach()
list(GET SPARKV_CUDA_ARCHITECTURES -1 _newest)
list(APPEND _nvcc_flags "-gencode=arch=compute_${_newest},code=compute_${_newest}")

# sparkv_cuda_sources(LIBRARY FILES...): adds .cu files to a library, and to the target sparkv_cuda_objects. ptxas' report of
# each is ptxas/NAME.txt in the build folder; spilled registers are an error.
add_custom_target(sparkv_cuda_objects)
function(sparkv_cuda_sources library)
  set(_objects "")
  list(JOIN SPARKV_CUDA_ARCHITECTURES ", " _architectures)
  foreach(_source ${ARGN})
    get_filename_component(_name "${_source}" NAME_WE)
    set(_object "${CMAKE_CURRENT_BINARY_DIR}/${_name}.cu.o")
    set(_report "${CMAKE_BINARY_DIR}/ptxas/${_name}.txt")
    add_custom_command(OUTPUT "${_object}" BYPRODUCTS "${_report}"
      COMMAND "${CMAKE_SOURCE_DIR}/scripts/cmake/nvcc_report.sh" "${_report}"
        "${SPARKV_NVCC}" ${_nvcc_flags} -MD -MF "${_object}.d" -c "${_source}" -o "${_object}"
      DEPENDS "${_source}" "${CMAKE_SOURCE_DIR}/scripts/cmake/nvcc_report.sh"
      DEPFILE "${_object}.d" COMMENT "nvcc ${_name}.cu for sm_ ${_architectures}" VERBATIM)
    list(APPEND _objects "${_object}")
  endforeach()
  set_source_files_properties(${_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${library} PRIVATE ${_objects})
  add_custom_target(${library}_objects DEPENDS ${_objects})
  add_dependencies(sparkv_cuda_objects ${library}_objects)
endfunction()
