# Text in and out of token ids: no LibTorch behind it.
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
sparkv_library(sparkv_text
  SOURCES chat_template.cc detokenizer.cc pretokenizer.cc tokenizer.cc tokenizer_gguf.cc
  DEPS sparkv_base sparkv_gguf absl::flat_hash_map PkgConfig::PCRE2)
