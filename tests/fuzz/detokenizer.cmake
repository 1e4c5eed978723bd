sparkv_add_fuzzer(NAME detokenizer_fuzz SOURCES detokenizer_fuzz.cc DEPS sparkv_text CORPUS detokenizer)
