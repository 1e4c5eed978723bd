// Where the server keeps columns and contexts. A column is one blob in the codec's container format
// (common/codec/format.h), addressed by its key; a context is a list of column keys with its token
// ids.
//
// Durable means: survives kill -9 and power loss once the call has returned Ok.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/codec/format.h"
#include "common/kv/manifest.h"

namespace sparkv {

struct ContextRecord {
  Digest id{};  // the last column's key
  std::string name;
  Digest model_fingerprint{};
  Digest codec_digest{};
  std::string codec;
  std::optional<Digest> profile_digest;  // that codec_digest covers; none: the codec needs none
  uint32_t token_count = 0;
  std::vector<int32_t> tokens;  // empty in what ListContexts and GetContext return
  std::vector<Digest> columns;  // ColumnCount(token_count) keys; empty in what ListContexts returns
  std::vector<uint64_t> level_bytes;  // bytes of the first 1, 2, ... planes of all blocks
  // Set by the store.
  uint64_t stored_bytes = 0;  // files of its columns, shared ones included
  int64_t created_unix_ms = 0;
  int64_t last_used_unix_ms = 0;
};

// While it lives, the columns that it names are never evicted, stored already or not yet.
class ColumnPin {
 public:
  virtual ~ColumnPin() = default;
};

// An open context. While it lives, neither the context nor its columns are evicted or deleted.
// Thread-safe. Must not outlive the store.
class ContextReader {
 public:
  virtual ~ContextReader() = default;
  virtual const Manifest& manifest() const = 0;
  virtual const ContextRecord& record() const = 0;
  // The bytes of one item, checked against its CRC. InvalidArgument outside the manifest; DataLoss
  // when the file has gone, is shorter or fails the check: the column and the contexts that need it
  // are then dropped from the store, so that the next precompute makes it anew; Unavailable when
  // the disk can't be read.
  virtual absl::StatusOr<std::string> ReadItem(uint32_t column, uint32_t layer, uint32_t plane) = 0;
};

struct StoreUsage {
  uint64_t used_bytes = 0;    // of all column files, those of unfinished precomputes included
  uint64_t budget_bytes = 0;  // 0: no limit
  uint64_t columns = 0;
  uint64_t contexts = 0;
};

struct ContextPage {
  std::vector<ContextRecord> contexts;  // most recently used first
  std::string next_page_token;          // empty: no more
};

// Thread-safe. Calls block on the disk.
class Store {
 public:
  virtual ~Store() = default;

  // The header of a stored column, checked for identity. NotFound when it isn't there (or was
  // broken: it is then dropped). Counts as a use.
  virtual absl::StatusOr<ColumnHeader> FindColumn(const Digest& key,
                                                  const Digest& model_fingerprint,
                                                  const Digest& codec_digest) = 0;
  // The whole blob, every CRC checked. NotFound, DataLoss as in ReadItem, Unavailable.
  virtual absl::StatusOr<std::string> ReadColumn(const Digest& key) = 0;

  // Makes the blob durable; a column that is there already stays as it is. Evicts what is used
  // least recently: first columns without a context, then contexts, never pinned ones, and never
  // more than needed. ResourceExhausted when the budget cannot be met (nothing is evicted then) or
  // the disk is full; no debris is left.
  virtual absl::Status PutColumn(const Digest& key, std::string_view blob) = 0;

  virtual std::unique_ptr<ColumnPin> PinColumns(std::span<const Digest> keys) = 0;

  // Drops a column whose bytes turned out to be wrong, and the contexts that need it. NotFound.
  virtual absl::Status DiscardColumn(const Digest& key) = 0;

  // Makes the context durable. FailedPrecondition when a column is missing; InvalidArgument for a
  // record that does not fit itself: its columns must be the keys of its token ids. A context that
  // exists keeps its creation time; a non-empty name replaces its name.
  virtual absl::Status CommitContext(const ContextRecord& record) = 0;

  // Without token ids. NotFound. Does not count as a use.
  virtual absl::StatusOr<ContextRecord> GetContext(const Digest& id) = 0;
  // Opens for reading and counts as a use. NotFound, DataLoss (a column's header is broken),
  // Unavailable.
  virtual absl::StatusOr<std::unique_ptr<ContextReader>> OpenContext(const Digest& id) = 0;
  // At most `limit` (1..1000) contexts. InvalidArgument for a page token that isn't one.
  virtual absl::StatusOr<ContextPage> ListContexts(uint32_t limit, std::string_view page_token) = 0;
  // The bytes that were freed. NotFound; FailedPrecondition while a ContextReader is open.
  virtual absl::StatusOr<uint64_t> DeleteContext(const Digest& id) = 0;

  virtual StoreUsage Usage() = 0;
};

}  // namespace sparkv
