// The daemon's own durable list of contexts: token ids and identity, so that every context can be
// computed here when the server is gone. One file per (context, name), written durably.
//
// File: "SKVCTX" u16 version | u64 payload bytes | u32 CRC-32C of the payload | payload,
// little-endian:
//   id[32] model_fingerprint[32] codec_digest[32] u8 raw u8 on_server i64 created_unix_ms u64
//   stored_bytes u32 n name[n] | u32 n codec[n] | u32 n u64 level_bytes[n] | u32 n i32 tokens[n]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/folder_lock.h"
#include "common/base/sha256.h"

namespace sparkv {

inline constexpr size_t kMaxContextNameBytes = 256;

struct CatalogueEntry {
  Digest id{};
  std::string name;  // 1..256 bytes; several names may share an id
  std::string codec;
  Digest model_fingerprint{};
  Digest codec_digest{};
  bool raw = false;
  bool on_server = false;  // as far as is known
  int64_t created_unix_ms = 0;
  uint64_t stored_bytes = 0;  // on the server; 0: unknown
  std::vector<uint64_t> level_bytes;
  std::vector<int32_t> tokens;  // 1..kMaxContextTokens
};

// The bytes of an entry's file, and back. Any bytes are safe: DataLoss says what is wrong.
std::string EncodeCatalogueEntry(const CatalogueEntry& entry);
absl::StatusOr<CatalogueEntry> DecodeCatalogueEntry(std::string_view bytes);

// Thread-safe.
class Catalogue {
 public:
  // Reads the folder (made when absent) and keeps others off it. Files that cannot be read or are
  // broken are left alone and named in `broken`. Unavailable when the folder cannot be made or
  // listed, FailedPrecondition when another process uses it.
  static absl::StatusOr<std::unique_ptr<Catalogue>> Open(const std::string& folder);

  // Adds or replaces the entry of (id, name); after Ok it survives a crash. InvalidArgument when
  // the name is empty, too long, looks like an id or belongs to another context.
  absl::Status Put(const CatalogueEntry& entry);
  // By full id, unique prefix of at least 8 hex digits, or name (names win). NotFound;
  // InvalidArgument lists the candidates of an ambiguous prefix.
  absl::StatusOr<CatalogueEntry> Resolve(const std::string& reference) const;
  // Whether Put would accept the name for this context.
  absl::Status CheckName(const std::string& name, const Digest& id) const;
  // Removes what `reference` means: one entry for a name, all names of a context for an id. Returns
  // the removed ones.
  absl::StatusOr<std::vector<CatalogueEntry>> Remove(const std::string& reference);
  // Whether any entry has this id.
  bool Contains(const Digest& id) const;
  // Newest first. Token ids included.
  std::vector<CatalogueEntry> List() const;

  const std::vector<std::string>& broken() const { return broken_; }

 private:
  using Key = std::pair<Digest, std::string>;
  Catalogue(std::string folder, std::unique_ptr<FolderLock> lock)
      : folder_(std::move(folder)), folder_lock_(std::move(lock)) {}
  std::string PathOf(const CatalogueEntry& entry) const;
  absl::StatusOr<std::vector<Key>> Match(const std::string& reference) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNameLocked(const std::string& name, const Digest& id) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const std::unique_ptr<FolderLock> folder_lock_;
  std::vector<std::string> broken_;
  mutable absl::Mutex mutex_;
  std::map<Key, CatalogueEntry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Whether text is 8 to 64 lower-case hex digits.
bool LooksLikeContextId(std::string_view text);

}  // namespace sparkv
