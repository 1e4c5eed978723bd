// The store on a local disk:
//   DIR/lock            held while a server uses the folder
//   DIR/store.db        SQLite: contexts, columns, which context needs which column
//   DIR/columns/ab/<64 hex digits of the key>.col
//   DIR/tmp/            files being written; emptied at open
//
// Order of writes: a column's file is written to tmp/, fsynced, renamed, its folder fsynced, then
// its row is committed; a context's row is committed when all its columns' rows are there. Rows go
// before files when something is removed. So a crash leaves at most files without a row, which Open
// removes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/folder_lock.h"
#include "server/sqlite.h"
#include "server/store.h"

namespace sparkv {

struct DiskStoreOptions {
  std::string path;                      // created when absent
  uint64_t budget_bytes = 0;             // of column files; 0: no limit
  std::function<int64_t()> now_unix_ms;  // null: the system's clock
  // Called at each step of a write with its name; tests crash the process or fail the step there.
  std::function<absl::Status(std::string_view step)> fault;
  // Told of each column whose file proved damaged or gone, and how many contexts went with it. On
  // the thread that found it, which may hold no lock of the store.
  std::function<void(const Digest& key, uint64_t contexts, std::string_view reason)> on_drop;
};

// What Open found and put right.
struct RecoveryReport {
  uint64_t removed_files = 0;     // without a row, or unfinished
  uint64_t dropped_columns = 0;   // row without its whole file
  uint64_t dropped_contexts = 0;  // that needed such a column
};

class DiskStore : public Store {
 public:
  // FailedPrecondition when another process uses the folder or a newer version made it; DataLoss
  // when the database is damaged; Unavailable or ResourceExhausted with the reason when the disk
  // refuses.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(const DiskStoreOptions& options);
  ~DiskStore() override;

  absl::StatusOr<ColumnHeader> FindColumn(const Digest& key, const Digest& model_fingerprint,
                                          const Digest& codec_digest) override;
  absl::StatusOr<std::string> ReadColumn(const Digest& key) override;
  absl::Status PutColumn(const Digest& key, std::string_view blob) override;
  std::unique_ptr<ColumnPin> PinColumns(std::span<const Digest> keys) override;
  absl::Status DiscardColumn(const Digest& key) override;
  absl::Status CommitContext(const ContextRecord& record) override;
  absl::StatusOr<ContextRecord> GetContext(const Digest& id) override;
  absl::StatusOr<std::unique_ptr<ContextReader>> OpenContext(const Digest& id) override;
  absl::StatusOr<ContextPage> ListContexts(uint32_t limit, std::string_view page_token) override;
  absl::StatusOr<uint64_t> DeleteContext(const Digest& id) override;
  StoreUsage Usage() override;

  const RecoveryReport& recovery() const { return recovery_; }

 private:
  class Pin;
  class Reader;

  explicit DiskStore(const DiskStoreOptions& options) : options_(options) {}
  absl::Status Start();
  absl::Status CreateSchema() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ColumnPath(const Digest& key) const;
  absl::Status Fault(std::string_view step) const;
  absl::Status WriteColumnFile(const Digest& key, std::string_view blob);
  absl::StatusOr<ColumnHeader> ReadHeader(const Digest& key) const;
  int64_t NextTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FlushUses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsColumnPinned(const Digest& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<uint64_t>> ColumnBytes(const Digest& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Rows go within a transaction, files after its commit.
  struct Removal {
    std::vector<std::pair<Digest, uint64_t>> columns;
    std::vector<Digest> contexts;
    uint64_t bytes = 0;
  };
  absl::Status RemoveColumnRow(const Digest& key, uint64_t bytes, Removal* removal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The context's rows, and the columns that only it needs and nobody pins.
  absl::Status RemoveContextRows(const Digest& id, Removal* removal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The columns that RemoveContextRows would remove, with their bytes.
  absl::StatusOr<std::vector<std::pair<Digest, uint64_t>>> OwnColumns(const Digest& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Commit(Transaction transaction, const Removal& removal, std::string_view step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteUses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropColumn(const Digest& key, const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status DropColumnLocked(const Digest& key, uint64_t* dropped_contexts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ContextRecord> ReadContext(const Digest& id, bool with_tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepReserve();
  // Runs work again with the reserve's space when the disk was full.
  absl::Status WithReserve(const std::function<absl::Status()>& work);
  void Unpin(std::span<const Digest> columns, const Digest* context);

  const DiskStoreOptions options_;
  std::unique_ptr<FolderLock> folder_lock_;  // before db_: outlives it
  RecoveryReport recovery_;
  absl::Mutex mutex_;
  std::unique_ptr<Database> db_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;      // of rows
  uint64_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of files being written
  uint64_t next_tmp_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_time_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Digest> writing_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, int> column_pins_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, int> context_pins_ ABSL_GUARDED_BY(mutex_);
  // Uses since the last write transaction: a look-up must not cost an fsync.
  std::map<Digest, int64_t> column_uses_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, int64_t> context_uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparkv
