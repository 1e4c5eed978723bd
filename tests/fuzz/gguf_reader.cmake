sparkv_add_fuzzer(NAME gguf_reader_fuzz SOURCES gguf_reader_fuzz.cc DEPS sparkv_gguf CORPUS gguf_reader)
