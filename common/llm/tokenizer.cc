#include "common/llm/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/bpe.h"
#include "common/llm/pretokenizer.h"

namespace sparkv {
namespace {

// GPT-2's alphabet: each byte has a printable code point, its own where that is printable, else 256
// + n.
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

  // The bytes behind a token's text. A character outside the alphabet stands for its own UTF-8
  // bytes.
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

// Tokens that end an answer in the known model families, when they are no plain text.
constexpr std::string_view kEnds[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>",
    "<|eom_id|>", "<|end|>",       "<EOT>"};

absl::Status CheckSpec(const VocabSpec& spec) {
  constexpr size_t kMaxTokens = size_t{1} << 24;
  if (spec.tokens.empty() || spec.tokens.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.tokens has ",
                                                   spec.tokens.size(), " elements, allowed: 1..",
                                                   kMaxTokens));
  }
  if (!spec.kinds.empty() && spec.kinds.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.token_type has ",
                                                   spec.kinds.size(), " elements, expected ",
                                                   spec.tokens.size()));
  }
  for (const auto& [name, id] :
       {std::pair{"bos", spec.bos}, std::pair{"eos", spec.eos}, std::pair{"eot", spec.eot},
        std::pair{"padding", spec.pad}, std::pair{"unknown", spec.unknown}}) {
    if (id.has_value() && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
      return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.", name, "_token_id is ",
                                                     *id, ", but the vocabulary has ",
                                                     spec.tokens.size(), " tokens"));
    }
  }
  if (spec.add_bos && !spec.bos.has_value()) {
    return absl::InvalidArgumentError(
        "key tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  if (spec.add_eos && !spec.eos.has_value()) {
    return absl::InvalidArgumentError(
        "key tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
  }
  return absl::OkStatus();
}

}  // namespace

struct Tokenizer::Impl {
  using Ids = absl::flat_hash_map<std::string_view, int32_t>;

  explicit Impl(PreTokenizer pre_tokenizer) : pre(pre_tokenizer) {}

  VocabSpec spec;
  PreTokenizer pre;
  Bpe bpe;
  std::vector<std::string> bytes;  // of each id
  Ids by_bytes;                    // normal tokens; keys point into `bytes`
  // Control, user-defined and unknown tokens, by text.
  Ids by_text;
  std::vector<std::pair<std::string_view, int32_t>> special;  // the same, in order of their text
  bool special_first[256] = {};                               // first bytes of `special`
  std::vector<bool> ends;                                     // an id that ends a generation
  size_t longest = 1;                                         // bytes of the longest token

  TokenKind KindOf(int32_t id) const {
    return spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[static_cast<size_t>(id)];
  }
  void AddTokens();
  absl::Status AddMerges();
  // The longest special token that `text` begins with; null when there is none.
  const std::pair<std::string_view, int32_t>* SpecialAt(std::string_view text) const;
  absl::Status EncodeText(std::string_view text, const CancelledFn& cancelled,
                          std::vector<int32_t>* out) const;
};

void Tokenizer::Impl::AddTokens() {
  const auto n = static_cast<int32_t>(spec.tokens.size());
  bytes.resize(spec.tokens.size());
  ends.assign(spec.tokens.size(), false);
  by_bytes.reserve(spec.tokens.size());
  for (int32_t id = 0; id < n; ++id) {
    const std::string& text = spec.tokens[id];
    const TokenKind kind = KindOf(id);
    if (kind == TokenKind::kNormal || kind == TokenKind::kByte) {
      bytes[id] = Alphabet().Decode(text);
      by_bytes.emplace(bytes[id], id);
      longest = std::max(longest, bytes[id].size());
      continue;
    }
    bytes[id] = text;
    longest = std::max(longest, text.size());
    if (kind == TokenKind::kUnused || text.empty()) continue;
    if (by_text.emplace(bytes[id], id).second) {
      special.emplace_back(bytes[id], id);
      special_first[static_cast<uint8_t>(text[0])] = true;
    }
    if (std::find(std::begin(kEnds), std::end(kEnds), text) != std::end(kEnds)) ends[id] = true;
  }
  std::sort(special.begin(), special.end());
  for (const auto& id : {spec.eos, spec.eot}) {
    if (id.has_value()) ends[*id] = true;
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto it = by_bytes.find(std::string_view(&byte, 1));
    if (it != by_bytes.end()) bpe.SetByte(static_cast<uint8_t>(b), it->second);
  }
}

absl::Status Tokenizer::Impl::AddMerges() {
  bpe.ReserveMerges(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.merges: element ", rank,
                                                     " has no blank between two parts"));
    }
    const std::string left = Alphabet().Decode(merge.substr(0, blank));
    const std::string right = Alphabet().Decode(merge.substr(blank + 1));
    const auto left_id = by_bytes.find(left);
    const auto right_id = by_bytes.find(right);
    const auto merged = by_bytes.find(left + right);
    // A merge whose parts or result are no tokens can never apply.
    if (left_id == by_bytes.end() || right_id == by_bytes.end() || merged == by_bytes.end())
      continue;
    bpe.AddMerge(left_id->second, right_id->second, static_cast<int32_t>(rank), merged->second);
  }
  return absl::OkStatus();
}

const std::pair<std::string_view, int32_t>* Tokenizer::Impl::SpecialAt(
    std::string_view text) const {
  const std::pair<std::string_view, int32_t>* found = nullptr;
  auto first = special.begin();
  auto last = special.end();
  // The tokens that share the first `depth` bytes with the text are neighbours; the shortest comes
  // first.
  for (size_t depth = 0; first != last; ++depth) {
    if (first->first.size() == depth) {
      found = &*first;
      ++first;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[depth]);
    first = std::partition_point(first, last, [&](const auto& token) {
      return static_cast<uint8_t>(token.first[depth]) < byte;
    });
    last = std::partition_point(first, last, [&](const auto& token) {
      return static_cast<uint8_t>(token.first[depth]) == byte;
    });
  }
  return found;
}

absl::Status Tokenizer::Impl::EncodeText(std::string_view text, const CancelledFn& cancelled,
                                         std::vector<int32_t>* out) const {
  constexpr size_t kPollWords = 4096;
  size_t words = 0;
  // Where a word was encoded before: most words of a text are repetitions.
  struct Place {
    uint32_t begin;
    uint32_t count;
  };
  constexpr size_t kMaxPlaces = size_t{1} << 16;
  constexpr size_t kMaxPlaceBytes = 64;
  absl::flat_hash_map<std::string_view, Place> places;
  for (size_t begin = 0; begin < text.size();) {
    if (cancelled && ++words % kPollWords == 0 && cancelled()) return CancelledByCaller();
    const size_t end = pre.WordEnd(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (word.size() == 1) {
      const int32_t id = bpe.byte_id(static_cast<uint8_t>(word[0]));
      if (id != Bpe::kNoToken) out->push_back(id);
      continue;
    }
    const bool remember = word.size() <= kMaxPlaceBytes;
    if (remember) {
      const auto it = places.find(word);
      if (it != places.end()) {
        const Place place = it->second;
        for (uint32_t i = 0; i < place.count; ++i) out->push_back((*out)[place.begin + i]);
        continue;
      }
    }
    const size_t before = out->size();
    const auto whole = pre.whole_words_first() ? by_bytes.find(word) : by_bytes.end();
    if (whole != by_bytes.end()) {
      out->push_back(whole->second);
    } else if (!bpe.Encode(word, cancelled, out)) {
      return CancelledByCaller();
    }
    if (remember && places.size() < kMaxPlaces) {
      places.emplace(
          word, Place{static_cast<uint32_t>(before), static_cast<uint32_t>(out->size() - before)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(VocabSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  ASSIGN_OR_RETURN(const PreTokenizer pre, PreTokenizer::Create(spec.pre));
  auto impl = std::make_unique<Impl>(pre);
  impl->spec = std::move(spec);
  impl->AddTokens();
  RETURN_IF_ERROR(impl->AddMerges());
  std::vector<std::string>().swap(impl->spec.merges);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kMaxEncodeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(), " bytes, allowed: ", kMaxEncodeBytes));
  }
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (size_t i = 0; options.parse_special && i < text.size();) {
    const std::pair<std::string_view, int32_t>* found =
        impl_->special_first[static_cast<uint8_t>(text[i])] ? impl_->SpecialAt(text.substr(i))
                                                            : nullptr;
    if (found == nullptr) {
      ++i;
      continue;
    }
    RETURN_IF_ERROR(impl_->EncodeText(text.substr(begin, i - begin), options.cancelled, &ids));
    ids.push_back(found->second);
    i += found->first.size();
    begin = i;
  }
  RETURN_IF_ERROR(impl_->EncodeText(text.substr(begin), options.cancelled, &ids));
  const VocabSpec& vocab = impl_->spec;
  if (options.add_bos && vocab.add_bos && (ids.empty() || ids.front() != *vocab.bos))
    ids.insert(ids.begin(), *vocab.bos);
  if (options.add_eos && vocab.add_eos) ids.push_back(*vocab.eos);
  return ids;
}

size_t Tokenizer::MinTokens(std::string_view text) const {
  size_t counts[256] = {};
  for (const char c : text) ++counts[static_cast<uint8_t>(c)];
  size_t bytes = 0;  // those without a token are left out by Encode
  for (int b = 0; b < 256; ++b) {
    if (impl_->bpe.byte_id(static_cast<uint8_t>(b)) != Bpe::kNoToken) bytes += counts[b];
  }
  return (bytes + impl_->longest - 1) / impl_->longest;
}

std::vector<std::string_view> Tokenizer::PreTokenize(std::string_view text) const {
  return impl_->pre.Split(text);
}

absl::StatusOr<std::vector<std::string>> Tokenizer::EncodePieces(std::string_view text) const {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Encode(text, EncodeOptions{}));
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) pieces.emplace_back(TokenBytes(id));
  return pieces;
}

std::string Tokenizer::MissingBytes() const {
  std::string missing;
  for (int b = 0; b < 256; ++b) {
    if (impl_->bpe.byte_id(static_cast<uint8_t>(b)) == Bpe::kNoToken)
      missing += static_cast<char>(b);
  }
  return missing;
}

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
  return id >= 0 && id < size() && impl_->ends[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::FindSpecial(std::string_view text) const {
  const auto it = impl_->by_text.find(text);
  if (it == impl_->by_text.end()) return std::nullopt;
  return it->second;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->bytes.size()); }
const VocabSpec& Tokenizer::spec() const { return impl_->spec; }

}  // namespace sparkv
