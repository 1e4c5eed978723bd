#include "edge/catalogue.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/kv/geometry.h"
#include "common/rpc/wire.h"

namespace sparkv {
namespace {

constexpr std::string_view kMagic = "SKVCTX";
constexpr uint16_t kVersion = 1;
constexpr size_t kHeaderBytes = 6 + 2 + 8 + 4;
constexpr uint32_t kMaxLevels = 64;
constexpr uint32_t kMaxCodecBytes = 64;
// Above any valid entry: 4 M tokens and the strings.
constexpr uint64_t kMaxFileBytes = uint64_t{kMaxContextTokens} * 4 + (1 << 16);
constexpr char kSuffix[] = ".ctx";

absl::StatusOr<uint32_t> ReadCount(ByteReader* reader, uint32_t max, const char* what) {
  ASSIGN_OR_RETURN(const uint32_t n, reader->Read<uint32_t>(what));
  if (n > max)
    return absl::DataLossError(absl::StrCat(what, ": got ", n, ", at most ", max, " is allowed"));
  return n;
}

absl::StatusOr<std::string> ReadString(ByteReader* reader, uint32_t max, const char* what) {
  ASSIGN_OR_RETURN(const uint32_t n, ReadCount(reader, max, what));
  ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, reader->ReadBytes(n, what));
  return std::string(AsStringView(bytes));
}

absl::StatusOr<Digest> ReadDigest(ByteReader* reader, const char* what) {
  ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, reader->ReadBytes(32, what));
  return DigestFromBytes(AsStringView(bytes));
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadVector(ByteReader* reader, uint32_t max, const char* what) {
  ASSIGN_OR_RETURN(const uint32_t n, ReadCount(reader, max, what));
  ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes,
                   reader->ReadBytes(uint64_t{n} * sizeof(T), what));
  std::vector<T> out(n);
  if (n > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

bool LooksLikeContextId(std::string_view text) {
  return text.size() >= 8 && text.size() <= 64 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string EncodeCatalogueEntry(const CatalogueEntry& entry) {
  ByteWriter payload;
  payload.WriteBytes(entry.id);
  payload.WriteBytes(entry.model_fingerprint);
  payload.WriteBytes(entry.codec_digest);
  payload.Write<uint8_t>(entry.raw);
  payload.Write<uint8_t>(entry.on_server);
  payload.Write<int64_t>(entry.created_unix_ms);
  payload.Write<uint64_t>(entry.stored_bytes);
  payload.Write<uint32_t>(static_cast<uint32_t>(entry.name.size()));
  payload.WriteBytes(entry.name);
  payload.Write<uint32_t>(static_cast<uint32_t>(entry.codec.size()));
  payload.WriteBytes(entry.codec);
  payload.Write<uint32_t>(static_cast<uint32_t>(entry.level_bytes.size()));
  for (const uint64_t bytes : entry.level_bytes) payload.Write<uint64_t>(bytes);
  payload.Write<uint32_t>(static_cast<uint32_t>(entry.tokens.size()));
  payload.WriteBytes(
      {reinterpret_cast<const uint8_t*>(entry.tokens.data()), entry.tokens.size() * 4});
  ByteWriter out;
  out.WriteBytes(kMagic);
  out.Write<uint16_t>(kVersion);
  out.Write<uint64_t>(payload.size());
  out.Write<uint32_t>(Crc32c(AsBytes(payload.str())));
  out.WriteBytes(payload.str());
  return out.Take();
}

absl::StatusOr<CatalogueEntry> DecodeCatalogueEntry(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("not a context file (bad magic)");
  }
  ByteReader header(AsBytes(bytes.substr(kMagic.size())));
  ASSIGN_OR_RETURN(const uint16_t version, header.Read<uint16_t>("version"));
  if (version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("version: got ", version, ", this program reads ", kVersion));
  }
  ASSIGN_OR_RETURN(const uint64_t size, header.Read<uint64_t>("payload bytes"));
  ASSIGN_OR_RETURN(const uint32_t crc, header.Read<uint32_t>("checksum"));
  if (size != header.remaining()) {
    return absl::DataLossError(
        absl::StrCat("payload: ", size, " bytes declared, ", header.remaining(), " there"));
  }
  ASSIGN_OR_RETURN(const std::span<const uint8_t> payload, header.ReadBytes(size, "payload"));
  if (Crc32c(payload) != crc) return absl::DataLossError("checksum mismatch");
  ByteReader reader(payload);
  CatalogueEntry entry;
  ASSIGN_OR_RETURN(entry.id, ReadDigest(&reader, "id"));
  ASSIGN_OR_RETURN(entry.model_fingerprint, ReadDigest(&reader, "model fingerprint"));
  ASSIGN_OR_RETURN(entry.codec_digest, ReadDigest(&reader, "codec digest"));
  ASSIGN_OR_RETURN(const uint8_t raw, reader.Read<uint8_t>("raw"));
  ASSIGN_OR_RETURN(const uint8_t on_server, reader.Read<uint8_t>("on_server"));
  entry.raw = raw != 0;
  entry.on_server = on_server != 0;
  ASSIGN_OR_RETURN(entry.created_unix_ms, reader.Read<int64_t>("created"));
  ASSIGN_OR_RETURN(entry.stored_bytes, reader.Read<uint64_t>("stored bytes"));
  ASSIGN_OR_RETURN(entry.name, ReadString(&reader, kMaxContextNameBytes, "name"));
  ASSIGN_OR_RETURN(entry.codec, ReadString(&reader, kMaxCodecBytes, "codec"));
  ASSIGN_OR_RETURN(entry.level_bytes, ReadVector<uint64_t>(&reader, kMaxLevels, "levels"));
  ASSIGN_OR_RETURN(entry.tokens, ReadVector<int32_t>(&reader, kMaxContextTokens, "tokens"));
  if (entry.name.empty() || entry.tokens.empty())
    return absl::DataLossError("empty name or no tokens");
  if (reader.remaining() > 0)
    return absl::DataLossError(absl::StrCat(reader.remaining(), " bytes too many"));
  return entry;
}

absl::StatusOr<std::unique_ptr<Catalogue>> Catalogue::Open(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the context folder ", folder, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> folder_lock, FolderLock::Take(folder));
  std::unique_ptr<Catalogue> catalogue(new Catalogue(folder, std::move(folder_lock)));
  fs::directory_iterator it(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot list the context folder ", folder, ": ", error.message()));
  }
  absl::MutexLock lock(&catalogue->mutex_);
  for (; it != fs::directory_iterator(); it.increment(error)) {
    if (error) break;
    const std::string path = it->path().string();
    if (it->path().extension() != kSuffix) continue;
    std::error_code odd;
    const absl::StatusOr<std::string> bytes =
        it->is_regular_file(odd)
            ? ReadFile(path, kMaxFileBytes)
            : absl::StatusOr<std::string>(absl::InvalidArgumentError("not a regular file"));
    absl::StatusOr<CatalogueEntry> entry =
        bytes.ok() ? DecodeCatalogueEntry(*bytes) : absl::StatusOr<CatalogueEntry>(bytes.status());
    if (entry.ok() && catalogue->PathOf(*entry) != path) {
      entry = absl::DataLossError("the file's name does not match its content");
    }
    if (!entry.ok()) {
      catalogue->broken_.push_back(absl::StrCat(path, ": ", entry.status().message()));
      continue;
    }
    Key key{entry->id, entry->name};
    catalogue->entries_.emplace(std::move(key), *std::move(entry));
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot list the context folder ", folder, ": ", error.message()));
  }
  return catalogue;
}

std::string Catalogue::PathOf(const CatalogueEntry& entry) const {
  const Digest digest =
      Sha256().Field("id", AsStringView(entry.id)).Field("name", entry.name).Finish();
  return absl::StrCat(folder_, "/", DigestToHex(digest).substr(0, 40), kSuffix);
}

absl::Status Catalogue::CheckNameLocked(const std::string& name, const Digest& id) const {
  if (name.empty() || name.size() > kMaxContextNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("name: got ", name.size(), " bytes, 1 to ",
                                                   kMaxContextNameBytes, " are allowed"));
  }
  RETURN_IF_ERROR(CheckPrintable(name));
  // Else the name would hide a context's id.
  if (LooksLikeContextId(name) && DigestToHex(id).substr(0, name.size()) != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: '", name, "' looks like the id of another context"));
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.name == name && entry.id != id) {
      return absl::InvalidArgumentError(
          absl::StrCat("name: '", name, "' belongs to the context ", DigestToHex(entry.id),
                       " with other content; remove it first or choose another name"));
    }
  }
  return absl::OkStatus();
}

absl::Status Catalogue::CheckName(const std::string& name, const Digest& id) const {
  absl::ReaderMutexLock lock(&mutex_);
  return CheckNameLocked(name, id);
}

absl::Status Catalogue::Put(const CatalogueEntry& entry) {
  if (entry.tokens.empty() || entry.tokens.size() > kMaxContextTokens ||
      entry.level_bytes.size() > kMaxLevels || entry.codec.size() > kMaxCodecBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("context: got ", entry.tokens.size(), " tokens, ", entry.level_bytes.size(),
                     " levels, codec of ", entry.codec.size(), " bytes"));
  }
  // The lock is held while writing so that two writers of one name cannot both pass the check.
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckNameLocked(entry.name, entry.id));
  RETURN_IF_ERROR(WriteFileDurably(PathOf(entry), EncodeCatalogueEntry(entry)));
  entries_[Key{entry.id, entry.name}] = entry;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Catalogue::Key>> Catalogue::Match(const std::string& reference) const {
  std::vector<Key> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry.name == reference) keys.push_back(key);
  }
  if (!keys.empty()) return keys;
  if (LooksLikeContextId(reference)) {
    std::set<Digest> ids;
    for (const auto& [key, entry] : entries_) {
      if (DigestToHex(entry.id).compare(0, reference.size(), reference) != 0) continue;
      keys.push_back(key);
      ids.insert(entry.id);
    }
    if (ids.size() > 1) {
      std::vector<std::string> candidates;
      for (const Key& key : keys)
        candidates.push_back(absl::StrCat(DigestToHex(key.first), " (", key.second, ")"));
      return absl::InvalidArgumentError(
          absl::StrCat("'", reference, "' is ambiguous: ", absl::StrJoin(candidates, ", ")));
    }
  }
  if (keys.empty()) return absl::NotFoundError(absl::StrCat("no context '", reference, "' here"));
  return keys;
}

absl::StatusOr<CatalogueEntry> Catalogue::Resolve(const std::string& reference) const {
  absl::ReaderMutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::vector<Key> keys, Match(reference));
  return entries_.at(keys.front());
}

absl::StatusOr<std::vector<CatalogueEntry>> Catalogue::Remove(const std::string& reference) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::vector<Key> keys, Match(reference));
  std::vector<CatalogueEntry> removed;
  for (const Key& key : keys) {
    const auto it = entries_.find(key);
    const std::string path = PathOf(it->second);
    if (std::remove(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, path);
    removed.push_back(std::move(it->second));
    entries_.erase(it);
  }
  return removed;
}

bool Catalogue::Contains(const Digest& id) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = entries_.lower_bound(Key{id, ""});
  return it != entries_.end() && it->first.first == id;
}

std::vector<CatalogueEntry> Catalogue::List() const {
  std::vector<CatalogueEntry> out;
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (const auto& [key, entry] : entries_) out.push_back(entry);
  }
  std::stable_sort(out.begin(), out.end(), [](const CatalogueEntry& a, const CatalogueEntry& b) {
    return a.created_unix_ms > b.created_unix_ms;
  });
  return out;
}

}  // namespace sparkv
