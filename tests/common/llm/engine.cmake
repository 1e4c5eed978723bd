sparkv_add_test(NAME engine_test
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/decoder_test.cc" "${CMAKE_CURRENT_LIST_DIR}/fingerprint_test.cc"
          "${CMAKE_CURRENT_LIST_DIR}/model_test.cc" "${CMAKE_CURRENT_LIST_DIR}/rope_table_test.cc"
          "${CMAKE_CURRENT_LIST_DIR}/sampler_test.cc" "${CMAKE_CURRENT_LIST_DIR}/tiny_models_test.cc"
          "${CMAKE_CURRENT_LIST_DIR}/work_team_test.cc" "${CMAKE_CURRENT_LIST_DIR}/engine_testing.cc"
  DEPS sparkv_llm)
# On SmolLM2 itself; skipped without the model.
sparkv_add_test(NAME smollm2_test
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/smollm2_test.cc" "${CMAKE_CURRENT_LIST_DIR}/engine_testing.cc"
          "${CMAKE_CURRENT_LIST_DIR}/../../golden/requantize_f16.cc"
  DEPS sparkv_llm)
