# Cross build for 64-bit Arm on a Debian or Ubuntu x86-64 machine; tests run in qemu-user. SPARKV_ARM_ROOT holds the
# libraries that are not the compiler's own, as scripts/arm_check.sh unpacks them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(NOT SPARKV_ARM_ROOT)
  set(SPARKV_ARM_ROOT "${CMAKE_CURRENT_LIST_DIR}/../../.deps/arm64/root")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SPARKV_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH "${SPARKV_ARM_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(CMAKE_CXX_FLAGS_INIT "-isystem ${SPARKV_ARM_ROOT}/usr/include/aarch64-linux-gnu")  # opensslconf.h
set(_libraries "${SPARKV_ARM_ROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${_libraries}")
# -L: the loader and the C and C++ libraries that came with the compiler.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=${_libraries}")
