sparkv_add_test(NAME engine_kernels_test
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/attention_decode_test.cc" "${CMAKE_CURRENT_LIST_DIR}/row_ops_test.cc"
  DEPS sparkv_kernels)
