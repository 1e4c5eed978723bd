#include "common/llm/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

// GPT-2's expression (Radford et al. 2019, encoder.py).
constexpr char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Family {
  const char* names;   // separated by blanks
  const char* first;   // expressions of the stages; nullptr: none
  const char* second;
  bool whole_words_first;
};

// smollm splits every digit off before GPT-2's expression runs on what lies between.
constexpr Family kFamilies[] = {
    {"smollm starcoder refact command-r", kDigit, kGpt2, false},
    {"llama-bpe llama3 llama-v3", kLlama3, nullptr, true},
    {"qwen2", kQwen2, nullptr, false},
    {"gpt-2 gpt2", kGpt2, nullptr, false},
};

bool HasName(const char* names, const std::string& name) {
  return !name.empty() && absl::StrCat(" ", names, " ").find(absl::StrCat(" ", name, " ")) != std::string::npos;
}

// Length of a maximal run of bytes at `begin` that is no UTF-8, at least 1.
size_t Utf8Length(const uint8_t* p, size_t left) {
  if (p[0] < 0x80) return 1;
  const auto follows = [&](size_t i, uint8_t low, uint8_t high) { return i < left && p[i] >= low && p[i] <= high; };
  if (p[0] >= 0xC2 && p[0] <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (p[0] >= 0xE0 && p[0] <= 0xEF) {
    const uint8_t low = p[0] == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = p[0] == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (p[0] >= 0xF0 && p[0] <= 0xF4) {
    const uint8_t low = p[0] == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = p[0] == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// Cuts text into runs of valid UTF-8 and runs of other bytes.
template <typename Fn>
void ForEachRun(std::string_view text, Fn fn) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  size_t begin = 0;
  bool valid = true;
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(p + i, text.size() - i);
    const bool now = length != 0;
    if (now != valid) {
      if (i > begin) fn(text.substr(begin, i - begin), valid);
      begin = i;
      valid = now;
    }
    i += now ? length : 1;
  }
  if (text.size() > begin) fn(text.substr(begin), valid);
}

}  // namespace

struct PreTokenizer::Stage {
  pcre2_code* code = nullptr;
  ~Stage() { pcre2_code_free(code); }

  // Matches and what lies between them, in order.
  void Split(std::string_view text, std::vector<std::string_view>* out) const {
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
    size_t at = 0;
    size_t word = 0;  // start of what no match has taken yet
    while (at < text.size()) {
      const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                 PCRE2_NO_UTF_CHECK, match, context);
      // No further match, or a limit of the matcher: the rest is one word, which BPE handles at any length.
      if (rc < 0) break;
      const size_t* range = pcre2_get_ovector_pointer(match);
      if (range[0] > word) out->push_back(text.substr(word, range[0] - word));
      if (range[1] > range[0]) out->push_back(text.substr(range[0], range[1] - range[0]));
      word = range[1];
      at = range[1] > range[0] ? range[1] : range[1] + 1;
    }
    if (word < text.size()) out->push_back(text.substr(word));
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(const std::string& name) {
  for (const Family& family : kFamilies) {
    if (!HasName(family.names, name)) continue;
    auto out = std::unique_ptr<PreTokenizer>(new PreTokenizer);
    out->whole_words_first_ = family.whole_words_first;
    for (const char* expression : {family.first, family.second}) {
      if (expression == nullptr) continue;
      int error = 0;
      PCRE2_SIZE offset = 0;
      auto stage = std::make_unique<Stage>();
      stage->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
      if (stage->code == nullptr) {
        return absl::InternalError(absl::StrCat("PCRE2 error ", error, " at ", offset, " of ", expression));
      }
      pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter does the same
      out->stages_.push_back(std::move(stage));
    }
    return out;
  }
  std::string supported;
  for (const Family& family : kFamilies) absl::StrAppend(&supported, " ", family.names);
  return absl::UnimplementedError(
      absl::StrCat("pre-tokenizer \"", name, "\" is not supported; supported:", supported));
}

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> words;
  ForEachRun(text, [&](std::string_view run, bool valid) {
    if (!valid) {
      words.push_back(run);
      return;
    }
    std::vector<std::string_view> pieces = {run};
    for (const auto& stage : stages_) {
      std::vector<std::string_view> next;
      for (const std::string_view piece : pieces) stage->Split(piece, &next);
      pieces = std::move(next);
    }
    words.insert(words.end(), pieces.begin(), pieces.end());
  });
  return words;
}

}  // namespace sparkv
