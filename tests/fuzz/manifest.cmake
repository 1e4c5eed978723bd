sparkv_add_fuzzer(NAME manifest_fuzz SOURCES manifest_fuzz.cc DEPS sparkv_codec_dec sparkv_rpc CORPUS manifest)
