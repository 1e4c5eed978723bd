# Text in and out of token ids: no LibTorch behind it.
sparkv_library(sparkv_text
  SOURCES bpe.cc chat_template.cc detokenizer.cc pretokenizer.cc pretokenizer_classes.cc tokenizer.cc tokenizer_gguf.cc
  DEPS sparkv_base sparkv_gguf absl::flat_hash_map)
