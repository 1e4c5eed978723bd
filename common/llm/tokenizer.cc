#include "common/llm/tokenizer.h"

#include <algorithm>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/pretokenizer.h"

namespace sparkv {
namespace {

// GPT-2's alphabet: each byte has a printable code point, its own where that is printable, else 256 + n.
struct ByteAlphabet {
  std::string utf8[256];
  absl::flat_hash_map<uint32_t, uint8_t> byte_of;

  ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint32_t code = printable ? b : next++;
      if (code < 0x80) {
        utf8[b] = std::string(1, static_cast<char>(code));
      } else {
        utf8[b] = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
      }
      byte_of[code] = static_cast<uint8_t>(b);
    }
  }

  // The bytes behind a token's text. A character outside the alphabet stands for its own UTF-8 bytes.
  std::string Decode(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const auto lead = static_cast<uint8_t>(text[i]);
      if (lead < 0x80) {
        const auto it = byte_of.find(lead);
        out += it == byte_of.end() ? text[i] : static_cast<char>(it->second);
        ++i;
        continue;
      }
      if ((lead & 0xE0) == 0xC0 && i + 1 < text.size()) {
        const uint32_t code = ((lead & 0x1Fu) << 6) | (static_cast<uint8_t>(text[i + 1]) & 0x3Fu);
        const auto it = byte_of.find(code);
        if (it != byte_of.end()) {
          out += static_cast<char>(it->second);
          i += 2;
          continue;
        }
      }
      out += text[i++];
    }
    return out;
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet* const alphabet = new ByteAlphabet;
  return *alphabet;
}

constexpr int32_t kNone = -1;

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

struct Merge {
  int32_t rank;
  int32_t id;
};

}  // namespace

struct Tokenizer::Impl {
  VocabSpec spec;
  std::unique_ptr<PreTokenizer> pre;
  std::vector<std::string> bytes;                          // of each id
  absl::flat_hash_map<std::string, int32_t> by_bytes;      // normal tokens
  absl::flat_hash_map<std::string, int32_t> by_text;       // control and user-defined tokens
  std::vector<std::pair<std::string, int32_t>> special;    // the same, longest first
  bool special_first[256] = {};                            // first bytes of special
  absl::flat_hash_map<uint64_t, Merge> merges;
  int32_t byte_ids[256];
  std::vector<bool> end_of_generation;

  TokenKind KindOf(int32_t id) const {
    return spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[static_cast<size_t>(id)];
  }

  // Merges of one word: the pair of the lowest rank first, the leftmost of equal ones (Sennrich et al. 2016).
  void EncodeWord(std::string_view word, std::vector<int32_t>* out) const;
  void EncodeText(std::string_view text, std::vector<int32_t>* out) const {
    for (const std::string_view word : pre->Split(text)) EncodeWord(word, out);
  }
};

void Tokenizer::Impl::EncodeWord(std::string_view word, std::vector<int32_t>* out) const {
  if (pre->whole_words_first()) {
    const auto whole = by_bytes.find(std::string(word));
    if (whole != by_bytes.end()) {
      out->push_back(whole->second);
      return;
    }
  }
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };
  std::vector<Symbol> symbols(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto n = static_cast<int32_t>(i);
    symbols[i] = {byte_ids[static_cast<uint8_t>(word[i])], n - 1, i + 1 < word.size() ? n + 1 : kNone};
  }
  struct Candidate {
    int32_t rank;
    int32_t left;       // index of the left symbol
    int32_t left_id;    // ids when the candidate was found: stale ones are skipped
    int32_t right_id;
    int32_t merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const int32_t left_id = symbols[left].id;
    const int32_t right_id = symbols[symbols[left].next].id;
    if (left_id == kNone || right_id == kNone) return;
    const auto it = merges.find(PairKey(left_id, right_id));
    if (it != merges.end()) queue.push({it->second.rank, left, left_id, right_id, it->second.id});
  };
  for (size_t i = 0; i + 1 < word.size(); ++i) consider(static_cast<int32_t>(i));
  constexpr int32_t kGone = -2;
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next == kNone || symbols[left.next].id != best.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = best.merged;
    right.id = kGone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = 0; i != kNone && !symbols.empty(); i = symbols[i].next) {
    // A byte that the vocabulary lacks becomes the unknown token, if there is one.
    const int32_t id = symbols[i].id != kNone ? symbols[i].id : spec.unknown.value_or(kNone);
    if (id != kNone) out->push_back(id);
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(VocabSpec spec) {
  if (spec.tokens.empty() || spec.tokens.size() > (1u << 24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary of ", spec.tokens.size(), " tokens, allowed: 1..", 1u << 24));
  }
  if (!spec.kinds.empty() && spec.kinds.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type has ", spec.kinds.size(),
                                                   " elements, expected ", spec.tokens.size()));
  }
  for (const auto& [name, id] : {std::pair{"bos", spec.bos}, std::pair{"eos", spec.eos}, std::pair{"eot", spec.eot},
                                 std::pair{"padding", spec.pad}, std::pair{"unknown", spec.unknown}}) {
    if (id.has_value() && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", name, "_token_id is ", *id,
                                                     ", but the vocabulary has ", spec.tokens.size(), " tokens"));
    }
  }
  if (spec.add_bos && !spec.bos.has_value()) {
    return absl::InvalidArgumentError("tokenizer.ggml.add_bos_token is true, but there is no bos_token_id");
  }
  if (spec.add_eos && !spec.eos.has_value()) {
    return absl::InvalidArgumentError("tokenizer.ggml.add_eos_token is true, but there is no eos_token_id");
  }
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->pre, PreTokenizer::Create(spec.pre));
  impl->spec = std::move(spec);
  const VocabSpec& vocab = impl->spec;
  const auto n = static_cast<int32_t>(vocab.tokens.size());
  impl->bytes.resize(vocab.tokens.size());
  impl->end_of_generation.assign(vocab.tokens.size(), false);
  for (int32_t id = 0; id < n; ++id) {
    const std::string& text = vocab.tokens[id];
    const TokenKind kind = impl->KindOf(id);
    if (kind == TokenKind::kNormal || kind == TokenKind::kByte) {
      impl->bytes[id] = Alphabet().Decode(text);
      impl->by_bytes.emplace(impl->bytes[id], id);
    } else {
      impl->bytes[id] = text;
      if (kind != TokenKind::kUnused && !text.empty() && impl->by_text.emplace(text, id).second) {
        impl->special.emplace_back(text, id);
        impl->special_first[static_cast<uint8_t>(text[0])] = true;
      }
    }
    for (const char* end : {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"}) {
      if (text == end && kind != TokenKind::kNormal) impl->end_of_generation[id] = true;
    }
  }
  std::stable_sort(impl->special.begin(), impl->special.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& id : {vocab.eos, vocab.eot}) {
    if (id.has_value()) impl->end_of_generation[*id] = true;
  }
  for (int b = 0; b < 256; ++b) {
    const auto it = impl->by_bytes.find(std::string(1, static_cast<char>(b)));
    impl->byte_ids[b] = it == impl->by_bytes.end() ? kNone : it->second;
  }
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const std::string& merge = vocab.merges[rank];
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges: element ", rank, " has no blank"));
    }
    const std::string left = Alphabet().Decode(std::string_view(merge).substr(0, blank));
    const std::string right = Alphabet().Decode(std::string_view(merge).substr(blank + 1));
    const auto left_id = impl->by_bytes.find(left);
    const auto right_id = impl->by_bytes.find(right);
    const auto merged = impl->by_bytes.find(left + right);
    // A merge whose parts or result are no tokens can never apply.
    if (left_id == impl->by_bytes.end() || right_id == impl->by_bytes.end() || merged == impl->by_bytes.end()) continue;
    impl->merges.emplace(PairKey(left_id->second, right_id->second),
                         Merge{static_cast<int32_t>(rank), merged->second});
  }
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a text of ", text.size(), " bytes, allowed: ", kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (size_t i = 0; options.parse_special && i < text.size();) {
    const std::pair<std::string, int32_t>* found = nullptr;
    if (impl_->special_first[static_cast<uint8_t>(text[i])]) {
      for (const auto& special : impl_->special) {
        if (text.compare(i, special.first.size(), special.first) == 0) {
          found = &special;
          break;
        }
      }
    }
    if (found == nullptr) {
      ++i;
      continue;
    }
    impl_->EncodeText(text.substr(begin, i - begin), &ids);
    ids.push_back(found->second);
    i += found->first.size();
    begin = i;
  }
  impl_->EncodeText(text.substr(begin), &ids);
  if (options.add_special) {
    const VocabSpec& vocab = impl_->spec;
    if (vocab.add_bos && (ids.empty() || ids.front() != *vocab.bos)) ids.insert(ids.begin(), *vocab.bos);
    if (vocab.add_eos) ids.push_back(*vocab.eos);
  }
  return ids;
}

std::vector<std::string_view> Tokenizer::PreTokenize(std::string_view text) const { return impl_->pre->Split(text); }

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return impl_->bytes[static_cast<size_t>(id)];
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool special) const {
  std::string out;
  for (const int32_t id : ids) {
    if (special || !IsSpecial(id)) out += TokenBytes(id);
  }
  return out;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  if (id < 0 || id >= size()) return false;
  const TokenKind kind = impl_->KindOf(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return id >= 0 && id < size() && impl_->end_of_generation[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::FindSpecial(std::string_view text) const {
  const auto it = impl_->by_text.find(std::string(text));
  if (it == impl_->by_text.end()) return std::nullopt;
  return it->second;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->bytes.size()); }
const VocabSpec& Tokenizer::spec() const { return impl_->spec; }

}  // namespace sparkv
