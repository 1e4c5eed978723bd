// Small real columns for tests of the store and the service: the f16 codec over 2 layers x 1 head x
// 4 values.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/codec/codec.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_column.h"
#include "common/kv/context_id.h"
#include "server/disk_store.h"
#include "tests/catch.h"
#include "tests/testing/temp_folder.h"

namespace sparkv::testing {

inline const KvGeometry kTestGeometry{2, 1, 4, KvDtype::kF16};

inline Digest TestFingerprint() {
  Digest d{};
  d[0] = 0x4d;
  return d;
}

inline const BlockEncoder& TestEncoder() {
  static const BlockEncoder* encoder = FindEncoder("f16").value();
  return *encoder;
}

inline ContextIdentity TestIdentity() {
  ContextIdentity identity;
  identity.model_fingerprint = TestFingerprint();
  identity.codec_digest = CodecDigest(TestEncoder().info());
  return identity;
}

// Ids that begin with `seed`, so that different seeds share nothing.
inline std::vector<int32_t> TestTokens(int32_t seed, uint32_t n) {
  std::vector<int32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = seed + static_cast<int32_t>(i % 97);
  return tokens;
}

// The blob of one column. Its values depend on the number of tokens only, so that its size does
// too.
inline std::string TestBlob(const Digest& key, uint32_t tokens) {
  ColumnWriter writer =
      ColumnWriter::Create(kTestGeometry, tokens, TestEncoder().info(), TestFingerprint(), key)
          .value();
  const BlockShape shape{kTestGeometry.kv_heads, tokens, kTestGeometry.head_dim};
  std::vector<uint16_t> k(shape.elements()), v(shape.elements());
  for (uint32_t layer = 0; layer < kTestGeometry.layers; ++layer) {
    for (size_t i = 0; i < k.size(); ++i) {
      k[i] = static_cast<uint16_t>(i * 2654435761u >> 7) + static_cast<uint16_t>(layer);
      v[i] = static_cast<uint16_t>(k[i] ^ 0x155);
    }
    const std::vector<std::string> planes =
        TestEncoder()
            .EncodeBlock({.shape = shape, .place = {}, .k = k.data(), .v = v.data()})
            .value();
    if (!writer.AppendLayer(planes).ok()) std::abort();
  }
  return writer.Finish().value();
}

inline ContextRecord TestRecord(const std::vector<int32_t>& tokens, const std::string& name) {
  ContextRecord record;
  record.columns = ColumnKeys(TestIdentity(), tokens);
  record.id = record.columns.back();
  record.name = name;
  record.model_fingerprint = TestFingerprint();
  record.codec_digest = CodecDigest(TestEncoder().info());
  record.codec = "f16";
  record.token_count = static_cast<uint32_t>(tokens.size());
  record.tokens = tokens;
  record.level_bytes = {123};
  return record;
}

// Puts all columns and commits.
inline absl::Status PutContext(Store* store, const ContextRecord& record) {
  for (size_t t = 0; t < record.columns.size(); ++t) {
    const uint32_t n = ColumnTokens(record.token_count, static_cast<uint32_t>(t));
    RETURN_IF_ERROR(store->PutColumn(record.columns[t], TestBlob(record.columns[t], n)));
  }
  return store->CommitContext(record);
}

inline std::unique_ptr<DiskStore> OpenStore(
    const std::string& path, uint64_t budget = 0,
    std::function<absl::Status(std::string_view)> fault = nullptr) {
  auto store = DiskStore::Open({.path = path, .budget_bytes = budget, .fault = std::move(fault)});
  REQUIRE_OK(store);
  return *std::move(store);
}

// Regular files below columns/ and tmp/: what a store without debris has exactly one of per column.
inline std::set<std::string> FilesOf(const std::string& path) {
  std::set<std::string> files;
  for (const char* sub : {"/columns", "/tmp"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path + sub)) {
      if (entry.is_regular_file()) files.insert(entry.path().string());
    }
  }
  return files;
}

inline std::string FileOf(const std::string& path, const Digest& key) {
  const std::string hex = DigestToHex(key);
  return path + "/columns/" + hex.substr(0, 2) + "/" + hex + ".col";
}

// Reads every item: all CRCs hold.
inline absl::Status ReadWhole(Store* store, const Digest& id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ContextReader> reader, store->OpenContext(id));
  const Manifest& m = reader->manifest();
  for (uint32_t t = 0; t < m.columns.size(); ++t) {
    for (uint32_t l = 0; l < m.geometry.layers; ++l) {
      for (uint32_t p = 0; p < m.planes; ++p) RETURN_IF_ERROR(reader->ReadItem(t, l, p).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace sparkv::testing
