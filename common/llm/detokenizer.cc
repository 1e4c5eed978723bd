#include "common/llm/detokenizer.h"

#include <utility>

#include "common/base/utf8.h"

namespace sparkv {
std::string Detokenizer::Push(int32_t id) {
  if (!show_special_ && tokenizer_->IsSpecial(id)) return "";
  const std::string bytes = std::exchange(pending_, "") + std::string(tokenizer_->TokenBytes(id));
  return ToValidUtf8(bytes, &pending_);
}

std::string Detokenizer::Finish() { return ToValidUtf8(std::exchange(pending_, "")); }

}  // namespace sparkv
