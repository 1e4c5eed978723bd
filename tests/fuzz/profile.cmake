sparkv_add_fuzzer(NAME profile_fuzz SOURCES profile_fuzz.cc DEPS sparkv_codec_dec CORPUS profile)
