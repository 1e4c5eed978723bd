#include "common/llm/chat_template.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/common/llm/text_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

using Ids = std::vector<int32_t>;

constexpr char kChatMl[] =
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}";
constexpr char kLlama3[] =
    "{{ bos_token }}{% for m in messages %}{{'<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\n\n' + m.content | trim "
    "+ '<|eot_id|>'}}{% endfor %}";

std::unique_ptr<Tokenizer> ChatTokenizer(bool add_bos = false) {
  VocabSpec spec = ByteVocab("llama-bpe", {},
                             {"<|begin_of_text|>", "<|im_start|>", "<|im_end|>",
                              "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  spec.bos = 256;
  spec.add_bos = add_bos;
  return MakeTokenizer(std::move(spec));
}

std::unique_ptr<ChatTemplate> Make(std::string_view source, const Tokenizer& tokenizer) {
  auto chat = ChatTemplate::Create(source, tokenizer);
  REQUIRE_OK(chat);
  return *std::move(chat);
}

Ids Ok(absl::StatusOr<Ids> ids) {
  REQUIRE_OK(ids);
  return *std::move(ids);
}

auto Count(const Ids& ids, int32_t id) { return std::count(ids.begin(), ids.end(), id); }

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("conversations are what Jinja makes of the templates (C4)") {
  const nlohmann::json golden = ReadTokenizerGolden("chat.json");
  REQUIRE(golden.size() == 30);
  for (const auto& item : golden) {
    const bool llama3 = item.at("format") == "llama3";
    const auto tokenizer = ChatTokenizer(llama3);
    const auto chat = Make(item.at("template").get<std::string>(), *tokenizer);
    INFO(item.at("name") << " " << item.at("messages"));
    CHECK(item.at("format") == chat->name());
    CHECK(chat->reason().empty());
    std::vector<ChatMessage> messages;
    for (const auto& message : item.at("messages"))
      messages.push_back({message.at(0), message.at(1)});
    const Ids ids = Ok(chat->Render(messages));
    CHECK(tokenizer->Decode(ids, true) == item.at("text").get<std::string>());
    // What people write closes no turn: each turn has one end, but for the assistant's open one.
    const auto starts = Count(ids, llama3 ? 259 : 257);
    CHECK(Count(ids, llama3 ? 261 : 258) == starts - 1);
    CHECK(Count(ids, 256) == (llama3 ? 1 : 0));
    // The same from its parts.
    const bool system = messages[0].role == "system";
    if (messages.size() == (system ? 2u : 1u)) {
      CHECK(Ok(chat->Prompt(system ? messages[0].content : "", messages.back().content)) == ids);
    }
  }
}

TEST_CASE("a stored context and its question are one user turn") {
  const auto tokenizer = ChatTokenizer();
  const auto chat = Make(kChatMl, *tokenizer);
  const Ids document = Ok(chat->Document("S", " doc <|im_end|> "));
  const Ids question = Ok(chat->Question(" q\n"));
  CHECK(tokenizer->Decode(document + question, true) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n doc <|im_end|> \n\n "
        "q\n<|im_end|>\n<|im_start|>assistant\n");
  CHECK(Count(document, 258) == 1);  // the document's own is text
  CHECK(Count(question, 258) == 1);

  const auto llama3 = Make(kLlama3, *tokenizer);
  CHECK(tokenizer->Decode(Ok(llama3->Document(" S ", " doc ")) + Ok(llama3->Question(" q\n ")),
                          true) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\ndoc \n\n q<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_CASE("a further turn closes the assistant's once") {
  const auto tokenizer = ChatTokenizer();
  const auto chat = Make(kChatMl, *tokenizer);
  const std::vector<ChatMessage> messages = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  const Ids whole = Ok(chat->Render(messages));
  const Ids begin = Ok(chat->Prompt("", "a"));
  CHECK(begin + Ids{'b'} + Ok(chat->NextTurn("c", false)) == whole);
  CHECK(begin + Ids{'b', 258} + Ok(chat->NextTurn("c", true)) == whole);

  const auto llama3 = Make(kLlama3, *tokenizer);
  const Ids whole3 = Ok(llama3->Render(messages));
  const Ids begin3 = Ok(llama3->Prompt("", "a"));
  CHECK(begin3 + Ids{'b'} + Ok(llama3->NextTurn(" c ", false)) == whole3);
  CHECK(begin3 + Ids{'b', 261} + Ok(llama3->NextTurn("c", true)) == whole3);
}

TEST_CASE("exactly one BOS, or none (C2)") {
  for (const bool add_bos : {false, true}) {
    const auto tokenizer = ChatTokenizer(add_bos);
    const auto llama3 = Make(kLlama3, *tokenizer);
    CHECK(Count(Ok(llama3->Prompt("", "<|begin_of_text|>a")), 256) == 1);
    CHECK(Count(Ok(llama3->Document("s", "a")) + Ok(llama3->Question("b")) +
                    Ok(llama3->NextTurn("c", true)),
                256) == 1);
    const auto chatml = Make(kChatMl, *tokenizer);
    CHECK(Count(Ok(chatml->Prompt("", "a")), 256) == (add_bos ? 1 : 0));
    const auto raw = Make("", *tokenizer);
    CHECK(Count(Ok(raw->Document("", "a")) + Ok(raw->Question("b")), 256) == (add_bos ? 1 : 0));
  }
}

TEST_CASE("Llama 3 trims as Python does, whatever the blanks") {
  const auto tokenizer = ChatTokenizer();
  const auto llama3 = Make(kLlama3, *tokenizer);
  const Ids plain = Ok(llama3->Prompt("", "x \xC2\xA0y"));
  CHECK(Ok(llama3->Prompt("", "\n\t \xC2\xA0\xE3\x80\x80x \xC2\xA0y\xE2\x80\x83\x1F \r\n")) ==
        plain);
  CHECK(Ok(llama3->Prompt("", "\xA0x \xC2\xA0y")) != plain);  // a lone byte is no blank
  CHECK(Ok(llama3->Prompt("", " \n ")) == Ok(llama3->Prompt("", "")));
}

TEST_CASE("a template that isn't known gives raw completion and says why") {
  const auto tokenizer = ChatTokenizer();
  const auto none = Make("", *tokenizer);
  CHECK(none->format() == ChatFormat::kRaw);
  CHECK(none->reason() == "the model has no chat template");
  CHECK(Ok(none->Document("ignored", "a<|im_end|>")) == Ok(tokenizer->Encode("a<|im_end|>", {})));
  const auto other = Make("{{ '[INST]' + messages[0].content + '[/INST]' }}", *tokenizer);
  CHECK(other->format() == ChatFormat::kRaw);
  CHECK(other->reason().find("none of chatml, llama3, qwen3") != std::string::npos);
  CHECK(other->Render(std::vector<ChatMessage>{{"user", "a"}}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  // ChatML's words without its tokens in the vocabulary.
  const auto plain = MakeTokenizer(ByteVocab("gpt-2"));
  CHECK(Make(kChatMl, *plain)->format() == ChatFormat::kRaw);
}

TEST_CASE("a broken template is an error with its position (C4)") {
  const auto tokenizer = ChatTokenizer();
  for (const auto& [source, place] :
       {std::pair{"{% for m in messages", "\"{%\" at byte 0"},
        std::pair{"ab{{ x }}{% if y %}{{ z }", "\"{{\" at byte 19"},
        std::pair{"{# never", "\"{#\" at byte 0"}, std::pair{"{{ 'open }}", "\"{{\" at byte 0"},
        std::pair{"x{{ '\\", "\"{{\" at byte 1"}, std::pair{"x{%", "\"{%\" at byte 1"}}) {
    const auto status = ChatTemplate::Create(source, *tokenizer).status();
    INFO(source << ": " << status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(status.message().find(place) != std::string::npos);
  }
  for (const char* source : {"{", "{}", "a}}", "%}", "{{ '}}' }}", "{{}}", "{%%}", "{##}"}) {
    CHECK(ChatTemplate::Create(source, *tokenizer).ok());
  }
}

TEST_CASE("messages outside of the format are refused") {
  const auto tokenizer = ChatTokenizer();
  const auto chat = Make(kChatMl, *tokenizer);
  CHECK_FALSE(chat->Render({}).ok());
  CHECK_FALSE(chat->Render(std::vector<ChatMessage>{{"user", "a"}, {"system", "b"}}).ok());
  const auto status = chat->Render(std::vector<ChatMessage>{{"us<|im_end|>er", "a"}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
}
