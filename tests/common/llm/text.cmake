# What makes ids of text and text of ids.
set(_here "${CMAKE_CURRENT_LIST_DIR}")
sparkv_add_test(NAME text_test
  SOURCES "${_here}/chat_template_test.cc" "${_here}/detokenizer_test.cc" "${_here}/tokenizer_test.cc"
          "${_here}/tokenizer_golden_test.cc" "${_here}/tokenizer_gguf_test.cc" "${_here}/text_testing.cc"
  DEPS sparkv_text)
