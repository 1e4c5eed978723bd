#include "common/llm/fingerprint.h"

#include <filesystem>

#include "common/gguf/gguf_reader.h"
#include "common/llm/model_config.h"
#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

Digest Of(const std::string& gguf) {
  const auto reader =
      GgufReader::Parse({reinterpret_cast<const uint8_t*>(gguf.data()), gguf.size()});
  REQUIRE_OK(reader);
  const auto config = ReadModelConfig(**reader);
  REQUIRE_OK(config);
  return ComputeFingerprint(**reader, *config);
}

// Through the cache folder, as Model::Load does.
Digest Cached(const std::string& path, const std::string& folder) {
  const auto reader = GgufReader::Open(path);
  REQUIRE_OK(reader);
  const auto config = ReadModelConfig(**reader);
  REQUIRE_OK(config);
  return CachedFingerprint(path, folder, **reader, *config);
}

std::string OnlyFile(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

}  // namespace

TEST_CASE("the fingerprint sees weights, RoPE and tokenizer, and not the name") {
  const std::string gguf = TinyGguf("llama");
  const Digest original = Of(gguf);
  REQUIRE(Of(gguf) == original);

  std::string weights = gguf;
  TensorBytes(&weights, "blk.1.ffn_down.weight")[17] ^= 1;
  REQUIRE(Of(weights) != original);
  std::string rope = gguf;
  PatchKey(&rope, "llama.rope.freq_base", 10001.0f);
  REQUIRE(Of(rope) != original);
  std::string tokenizer = gguf;
  PatchKey(&tokenizer, "tokenizer.ggml.eos_token_id", uint32_t{257});
  REQUIRE(Of(tokenizer) != original);

  std::string name = gguf;
  const size_t at = name.find("general.name") + 12 + 4 + 8;
  name.replace(at, 5, "other");
  REQUIRE(Of(name) == original);
}

TEST_CASE(
    "a fingerprint comes from the cache until the file changes, and a broken cache is replaced") {
  const TempFolder folder;
  const std::string path = folder.Path("model.gguf"), cache = folder.Path("cache/sparkv");
  std::string gguf = TinyGguf("llama");
  WriteAll(path, gguf);
  const Digest original = Cached(path, cache);
  const std::string entry = OnlyFile(cache);

  // Only a reader of the cache can see a digest that was put there.
  std::string content = ReadAll(entry);
  REQUIRE(Contains(content, DigestToHex(original)));
  const Digest planted = Sha256().Field("planted", 1).Finish();
  content.replace(content.find(DigestToHex(original)), 64, DigestToHex(planted));
  WriteAll(entry, content);
  REQUIRE(Cached(path, cache) == planted);

  for (const std::string& broken :
       {std::string(), std::string("x"), content.substr(0, content.size() - 2), content + "x",
        "other" + content.substr(5)}) {
    WriteAll(entry, broken);
    REQUIRE(Cached(path, cache) == original);
    REQUIRE(Contains(ReadAll(entry), DigestToHex(original)));
  }

  WriteAll(entry, content);
  TensorBytes(&gguf, "blk.0.ffn_up.weight")[3] ^= 1;
  WriteAll(folder.Path("new.gguf"), gguf);
  std::filesystem::rename(folder.Path("new.gguf"), path);
  const Digest changed = Cached(path, cache);
  REQUIRE(changed != planted);
  REQUIRE(changed == Of(gguf));

  // No folder, or one that cannot be made: still an answer.
  REQUIRE(Cached(path, "") == changed);
  REQUIRE(Cached(path, path + "/not-a-folder") == changed);
}
