#include "tests/common/llm/engine_testing.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "common/gguf/gguf_reader.h"

namespace sparkv::testing {
namespace {

void RequireOk(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void WriteAll(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path);
}

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& path) {
  static const TempFolder* cache = [] {
    auto* folder = new TempFolder;
    ::setenv("XDG_CACHE_HOME", folder->Path("cache").c_str(), 1);
    std::atexit([] { delete cache; });
    return folder;
  }();
  return Model::Load(path);
}

absl::StatusOr<std::shared_ptr<const Model>> LoadBytes(std::string_view gguf) {
  const TempFolder folder;
  WriteAll(folder.Path("model.gguf"), gguf);
  return LoadModel(folder.Path("model.gguf"));  // the mapping outlives the name
}

std::string TinyGguf(std::string_view name) {
  return ReadAll(SourcePath("tests/golden/tiny/" + std::string(name) + ".gguf"));
}

TinyLogits ReadTinyLogits(std::string_view name) {
  const std::string bytes =
      ReadAll(SourcePath("tests/golden/tiny/" + std::string(name) + ".logits"));
  uint32_t head[2];
  std::memcpy(head, bytes.data(), sizeof(head));
  TinyLogits t;
  t.vocabulary = head[1];
  t.ids.resize(head[0]);
  t.logits.resize(size_t{head[0]} * head[1]);
  std::memcpy(t.ids.data(), bytes.data() + 8, head[0] * 4);
  std::memcpy(t.logits.data(), bytes.data() + 8 + head[0] * 4, t.logits.size() * 4);
  return t;
}

void PatchKey(std::string* gguf, std::string_view key, std::string_view value) {
  const size_t at = gguf->find(key);
  if (at == std::string::npos) throw std::runtime_error("no key " + std::string(key));
  gguf->replace(at + key.size() + 4, value.size(), value);  // 4 bytes of type
}

std::span<char> TensorBytes(std::string* gguf, std::string_view name) {
  const auto reader =
      GgufReader::Parse({reinterpret_cast<const uint8_t*>(gguf->data()), gguf->size()});
  RequireOk(reader.status());
  const GgufTensor* tensor = (*reader)->FindTensor(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + std::string(name));
  return {gguf->data() + tensor->offset, tensor->data.size()};
}

KvCache MakeCache(const Model& model, KvDtype dtype) {
  auto pool = KvPagePool::Create(model.config().Geometry(dtype), uint64_t{1} << 30);
  RequireOk(pool.status());
  return KvCache(*std::move(pool));
}

std::vector<float> LogitsByLayers(Decoder* decoder, std::span<const int32_t> ids, KvDtype dtype,
                                  uint32_t chunk) {
  const ModelConfig& c = decoder->model().config();
  const auto total = static_cast<uint32_t>(ids.size());
  if (chunk == 0) chunk = total;
  KvCache cache = MakeCache(decoder->model(), dtype);
  std::vector<float> logits(size_t{total} * c.vocabulary);
  for (uint32_t begin = 0; begin < total; begin += chunk) {
    const uint32_t n = std::min(chunk, total - begin);
    std::vector<float> hidden(size_t{n} * c.d_model);
    RequireOk(cache.Extend(begin + n));
    RequireOk(decoder->Embed(ids.subspan(begin, n), hidden.data()));
    for (uint32_t layer = 0; layer < c.layers; ++layer) {
      RequireOk(decoder->Project(layer, hidden.data(), begin, n, &cache));
      RequireOk(decoder->Attend(layer, hidden.data(), begin, n, cache));
    }
    RequireOk(decoder->Logits(hidden.data(), n, &logits[size_t{begin} * c.vocabulary]));
  }
  return logits;
}

std::vector<float> LogitsByDecode(Decoder* decoder, std::span<const int32_t> ids, KvDtype dtype) {
  const size_t vocabulary = decoder->model().config().vocabulary;
  KvCache cache = MakeCache(decoder->model(), dtype);
  std::vector<float> logits(ids.size() * vocabulary);
  for (size_t i = 0; i < ids.size(); ++i) {
    RequireOk(decoder->DecodeOne(ids[i], &cache, &logits[i * vocabulary]));
  }
  return logits;
}

float MaxDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  }
  return worst;
}

}  // namespace sparkv::testing
