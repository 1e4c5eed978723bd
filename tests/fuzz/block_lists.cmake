sparkv_add_fuzzer(NAME block_lists_fuzz CORPUS block_lists
  SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/block_lists_fuzz.cc" DEPS sparkv_kernels)
