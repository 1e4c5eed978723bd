// Byte-level BPE tokenizers as GGUF files carry them (tokenizer.ggml.model "gpt2").
//
// Text is any bytes: what is not UTF-8 is kept byte for byte, so that decoding an encoding gives
// back the input exactly, for every vocabulary that has a token for each of the 256 bytes. Some
// lack a few (SmolLM2: six control characters and the bytes that valid text never or hardly ever
// has); such bytes are left out, as llama.cpp and `tokenizers` do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/gguf/gguf_reader.h"

namespace sparkv {

// Of one Encode, and of a document or question on the wire; a single word of this size needs about
// 0.5 GB for a moment.
inline constexpr size_t kMaxEncodeBytes = size_t{16} << 20;

// Numbers of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// A vocabulary as read from a file or made by a test.
struct VocabSpec {
  std::string pre;  // tokenizer.ggml.pre: smollm, llama-bpe, qwen2, gpt-2, ...
  std::vector<std::string>
      tokens;  // in the byte-to-unicode alphabet of GPT-2; control tokens as plain text
  std::vector<TokenKind> kinds;     // empty: all normal
  std::vector<std::string> merges;  // "left right", best first
  std::optional<int32_t> bos, eos, eot, pad, unknown;
  bool add_bos = false;
  bool add_eos = false;
};

// Reads the tokenizer.ggml.* keys. Errors name the key: an id outside the vocabulary, add_bos
// without a bos id, another tokenizer model, lists of different lengths.
absl::StatusOr<VocabSpec> ReadVocab(const GgufReader& gguf);

struct EncodeOptions {
  // The text of a control or user-defined token becomes that token: at each place the longest. Off:
  // it is text like any other (user-defined tokens too, unlike in llama.cpp), so that a document
  // can't hold tokens with a meaning.
  bool parse_special = false;
  bool add_bos = false;  // where the vocabulary asks for it, never a second one
  bool add_eos = false;  // where the vocabulary asks for it
  CancelledFn cancelled = nullptr;
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  // InvalidArgument (no tokens, an id out of range), Unimplemented "pre-tokenizer X is not
  // supported; supported: …". Two tokens with the same text: both decode, the first is used to
  // encode.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(VocabSpec spec);
  ~Tokenizer();

  // InvalidArgument for more than kMaxEncodeBytes; Cancelled soon after `cancelled` says so
  // (in words of megabytes: some 100 ms).
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const;
  // No fewer tokens than this can hold the text: says fast that it is too long.
  size_t MinTokens(std::string_view text) const;
  // The words that the pre-tokenizer finds, and the bytes of the tokens that Encode makes of plain
  // text, for tests and for people. Words concatenated are the text.
  std::vector<std::string_view> PreTokenize(std::string_view text) const;
  absl::StatusOr<std::vector<std::string>> EncodePieces(std::string_view text) const;
  // The bytes that the vocabulary has no token for, in order.
  std::string MissingBytes() const;

  // The bytes of a token; empty for an id outside the vocabulary. Valid as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  // All tokens' bytes one after the other, control tokens left out unless `special`.
  std::string Decode(std::span<const int32_t> ids, bool special = false) const;

  bool IsSpecial(int32_t id) const;  // control or unknown
  bool IsEndOfGeneration(int32_t id) const;
  // The id of a token by its text as it is stored ("<|im_end|>"); nullopt when there is none.
  std::optional<int32_t> FindSpecial(std::string_view text) const;

  int32_t size() const;
  const VocabSpec& spec() const;  // without the merges, which only Create needs

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sparkv
