# Kernels of the model engine: row operations of a transformer and decode attention.
target_sources(sparkv_kernels PRIVATE
  "${CMAKE_CURRENT_LIST_DIR}/attention_decode.cc"
  "${CMAKE_CURRENT_LIST_DIR}/row_ops.cc")
