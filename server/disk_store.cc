#include "server/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/kv/context_id.h"

namespace sparkv {
namespace {

// 2: contexts.profile.
constexpr int64_t kSchemaVersion = 2;
constexpr const char* kSchema = R"sql(
CREATE TABLE IF NOT EXISTS columns(key BLOB PRIMARY KEY, bytes INTEGER NOT NULL, last_used INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contexts(id BLOB PRIMARY KEY, name TEXT NOT NULL, model BLOB NOT NULL,
  codec_digest BLOB NOT NULL, codec TEXT NOT NULL, token_count INTEGER NOT NULL, level_bytes BLOB NOT NULL,
  created INTEGER NOT NULL, last_used INTEGER NOT NULL, tokens BLOB NOT NULL, profile BLOB NOT NULL DEFAULT x'');
CREATE INDEX IF NOT EXISTS contexts_by_use ON contexts(last_used, id);
CREATE TABLE IF NOT EXISTS context_columns(context BLOB NOT NULL, position INTEGER NOT NULL, key BLOB NOT NULL,
  PRIMARY KEY(context, position)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS context_columns_by_key ON context_columns(key);
PRAGMA user_version = 2;
)sql";
constexpr const char* kFromVersion1 =
    "ALTER TABLE contexts ADD COLUMN profile BLOB NOT NULL DEFAULT x''";

// Kept so that what frees space can be written down when the disk is full.
constexpr char kReserveFile[] = "/reserve";
constexpr off_t kReserveBytes = 1 << 20;

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), path) : absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(error, path);
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::Open(const DiskStoreOptions& options) {
  std::unique_ptr<DiskStore> store(new DiskStore(options));
  RETURN_IF_ERROR(store->Start());
  return store;
}

DiskStore::~DiskStore() {
  absl::MutexLock lock(&mutex_);
  if (db_ != nullptr) FlushUses().IgnoreError();
  db_.reset();
}

absl::Status DiskStore::Start() {
  if (options_.path.empty()) return absl::InvalidArgumentError("the store needs a folder");
  for (const char* sub : {"", "/columns", "/tmp"}) RETURN_IF_ERROR(MakeFolder(options_.path + sub));
  ASSIGN_OR_RETURN(folder_lock_, FolderLock::Take(options_.path));
  absl::MutexLock lock(&mutex_);
  // On a full disk SQLite needs this space even to open; it is taken back at the end.
  ::unlink((options_.path + kReserveFile).c_str());
  const absl::Status opened = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(db_, Database::Open(options_.path + "/store.db"));
    RETURN_IF_ERROR(CreateSchema());
    return Recover();
  }();
  KeepReserve();
  if (!absl::IsDataLoss(opened)) return opened;
  return absl::DataLossError(
      absl::StrCat(options_.path, "/store.db: ", opened.message(), "; move ", options_.path,
                   " away and start again: contexts are precomputed anew when they are added"));
}

absl::Status DiskStore::CreateSchema() {
  int64_t version = 0;
  {
    ASSIGN_OR_RETURN(SqlStatement read, db_->Prepare("PRAGMA user_version"));
    RETURN_IF_ERROR(read.Step().status());
    version = read.Int(0);
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(options_.path, "/store.db has version ",
                                                      version, "; this server reads up to ",
                                                      kSchemaVersion));
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
  if (version == 1) RETURN_IF_ERROR(db_->Exec(kFromVersion1));
  RETURN_IF_ERROR(db_->Exec(kSchema));
  RETURN_IF_ERROR(transaction.Commit());
  return SyncFolder(options_.path);
}

absl::Status DiskStore::Recover() {
  // Unfinished files.
  for (const std::string& name : NamesIn(options_.path + "/tmp")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;  // not ours
    if (::unlink((options_.path + "/tmp/" + name).c_str()) == 0) ++recovery_.removed_files;
  }
  // Rows without their whole file.
  std::map<Digest, uint64_t> rows;
  std::vector<Digest> broken;
  {
    ASSIGN_OR_RETURN(SqlStatement read, db_->Prepare("SELECT key, bytes FROM columns"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(const Digest key, read.ReadDigest(0));
      const uint64_t bytes = static_cast<uint64_t>(read.Int(1));
      rows[key] = bytes;
      used_bytes_ += bytes;
      struct stat info;
      if (::stat(ColumnPath(key).c_str(), &info) != 0) {
        // Only a file that is not there is lost; one that can't be seen now may come back.
        if (errno != ENOENT) return ErrnoStatus(errno, ColumnPath(key));
        broken.push_back(key);
      } else if (static_cast<uint64_t>(info.st_size) != bytes) {
        broken.push_back(key);
      }
    }
  }
  for (const Digest& key : broken) {
    RETURN_IF_ERROR(DropColumnLocked(key, &recovery_.dropped_contexts));
    ++recovery_.dropped_columns;
    rows.erase(key);
  }
  // A context whose column has no row at all: only a damaged or edited database has this.
  for (;;) {
    Digest id;
    {
      ASSIGN_OR_RETURN(SqlStatement read,
                       db_->Prepare("SELECT context FROM context_columns WHERE key NOT IN (SELECT "
                                    "key FROM columns) LIMIT 1"));
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(id, read.ReadDigest(0));
    }
    Removal removal;
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
    RETURN_IF_ERROR(RemoveContextRows(id, &removal));
    RETURN_IF_ERROR(Commit(std::move(transaction), removal, "recovered"));
    for (const auto& [key, bytes] : removal.columns) rows.erase(key);
    ++recovery_.dropped_contexts;
  }
  // Files without a row.
  const std::string columns = options_.path + "/columns";
  for (const std::string& folder : NamesIn(columns)) {
    for (const std::string& name : NamesIn(columns + "/" + folder)) {
      const absl::StatusOr<Digest> key = name.size() == 68 && name.substr(64) == ".col"
                                             ? DigestFromHex(name.substr(0, 64))
                                             : absl::InvalidArgumentError("");
      if (!key.ok()) continue;  // not ours
      if (rows.count(*key) != 0 && folder == name.substr(0, 2)) continue;
      if (::unlink((columns + "/" + folder + "/" + name).c_str()) == 0) ++recovery_.removed_files;
    }
  }
  ASSIGN_OR_RETURN(SqlStatement last,
                   db_->Prepare("SELECT max(coalesce((SELECT max(last_used) FROM columns), 0), "
                                "coalesce((SELECT max(last_used) FROM contexts), 0))"));
  RETURN_IF_ERROR(last.Step().status());
  last_time_ = last.Int(0);
  return absl::OkStatus();
}

absl::Status DiskStore::Fault(std::string_view step) const {
  return options_.fault ? options_.fault(step) : absl::OkStatus();
}

std::string DiskStore::ColumnPath(const Digest& key) const {
  const std::string hex = DigestToHex(key);
  return absl::StrCat(options_.path, "/columns/", hex.substr(0, 2), "/", hex, ".col");
}

// Strictly increasing, so that "least recently" never ties, also when the clock goes back.
int64_t DiskStore::NextTime() {
  const int64_t now =
      options_.now_unix_ms ? options_.now_unix_ms() : absl::ToUnixMillis(absl::Now());
  last_time_ = std::max(last_time_ + 1, now);
  return last_time_;
}

bool DiskStore::IsColumnPinned(const Digest& key) const { return column_pins_.count(key) != 0; }

absl::StatusOr<std::optional<uint64_t>> DiskStore::ColumnBytes(const Digest& key) {
  ASSIGN_OR_RETURN(SqlStatement read, db_->Prepare("SELECT bytes FROM columns WHERE key = ?"));
  ASSIGN_OR_RETURN(const bool found, read.Bind(1, key).Step());
  if (!found) return std::optional<uint64_t>();
  return std::optional<uint64_t>(static_cast<uint64_t>(read.Int(0)));
}

absl::Status DiskStore::WriteUses() {
  for (const auto& [table, id, uses] :
       {std::tuple{"columns", "key", &column_uses_}, {"contexts", "id", &context_uses_}}) {
    for (const auto& [digest, time] : *uses) {
      ASSIGN_OR_RETURN(
          SqlStatement update,
          db_->Prepare(absl::StrCat("UPDATE ", table, " SET last_used = ? WHERE ", id, " = ?")));
      RETURN_IF_ERROR(update.Bind(1, time).Bind(2, digest).Run());
    }
  }
  return absl::OkStatus();
}

absl::Status DiskStore::FlushUses() {
  if (column_uses_.empty() && context_uses_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
  RETURN_IF_ERROR(WriteUses());
  RETURN_IF_ERROR(transaction.Commit());
  column_uses_.clear();
  context_uses_.clear();
  return absl::OkStatus();
}

absl::Status DiskStore::RemoveColumnRow(const Digest& key, uint64_t bytes, Removal* removal) {
  ASSIGN_OR_RETURN(SqlStatement remove, db_->Prepare("DELETE FROM columns WHERE key = ?"));
  RETURN_IF_ERROR(remove.Bind(1, key).Run());
  removal->columns.emplace_back(key, bytes);
  removal->bytes += bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<Digest, uint64_t>>> DiskStore::OwnColumns(const Digest& id) {
  ASSIGN_OR_RETURN(
      SqlStatement read,
      db_->Prepare(
          "SELECT DISTINCT c.key, c.bytes FROM context_columns x JOIN columns c ON c.key = x.key "
          "WHERE x.context = ?1 AND NOT EXISTS "
          "(SELECT 1 FROM context_columns y WHERE y.key = x.key AND y.context != ?1)"));
  read.Bind(1, id);
  std::vector<std::pair<Digest, uint64_t>> own;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, read.Step());
    if (!more) return own;
    ASSIGN_OR_RETURN(const Digest key, read.ReadDigest(0));
    if (!IsColumnPinned(key)) own.emplace_back(key, static_cast<uint64_t>(read.Int(1)));
  }
}

absl::Status DiskStore::RemoveContextRows(const Digest& id, Removal* removal) {
  ASSIGN_OR_RETURN(const auto own, OwnColumns(id));
  for (const auto& [key, bytes] : own) RETURN_IF_ERROR(RemoveColumnRow(key, bytes, removal));
  for (const char* sql :
       {"DELETE FROM context_columns WHERE context = ?", "DELETE FROM contexts WHERE id = ?"}) {
    ASSIGN_OR_RETURN(SqlStatement remove, db_->Prepare(sql));
    RETURN_IF_ERROR(remove.Bind(1, id).Run());
  }
  removal->contexts.push_back(id);
  return absl::OkStatus();
}

absl::Status DiskStore::Commit(Transaction transaction, const Removal& removal,
                               std::string_view step) {
  RETURN_IF_ERROR(transaction.Commit());
  used_bytes_ -= removal.bytes;
  for (const Digest& id : removal.contexts) context_uses_.erase(id);
  RETURN_IF_ERROR(Fault(step));
  for (const auto& [key, bytes] : removal.columns) {
    column_uses_.erase(key);
    // It may have gone by itself; what can't be removed now is removed at the next start.
    ::unlink(ColumnPath(key).c_str());
  }
  return absl::OkStatus();
}

absl::Status DiskStore::MakeRoom(uint64_t bytes) {
  const uint64_t budget = options_.budget_bytes;
  if (budget == 0) return absl::OkStatus();
  const uint64_t wanted = used_bytes_ + reserved_bytes_ + bytes;
  if (wanted <= budget) return absl::OkStatus();
  const uint64_t need = wanted - budget;

  RETURN_IF_ERROR(FlushUses());
  uint64_t evictable = 0;
  std::vector<std::pair<Digest, uint64_t>> unused;  // without a context, least recently used first
  {
    ASSIGN_OR_RETURN(
        SqlStatement read,
        db_->Prepare(
            "SELECT key, bytes, EXISTS (SELECT 1 FROM context_columns x WHERE x.key = c.key) "
            "FROM columns c ORDER BY last_used"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(const Digest key, read.ReadDigest(0));
      if (IsColumnPinned(key)) continue;
      evictable += static_cast<uint64_t>(read.Int(1));
      if (read.Int(2) == 0) unused.emplace_back(key, static_cast<uint64_t>(read.Int(1)));
    }
  }
  if (evictable < need) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the disk budget of ", budget, " bytes does not fit ", bytes,
                     " bytes more: ", used_bytes_, " are used and only ", evictable,
                     " of them can be evicted; raise disk_budget or delete contexts"));
  }
  Removal removal;
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
  for (const auto& [key, size] : unused) {
    if (removal.bytes >= need) break;
    RETURN_IF_ERROR(RemoveColumnRow(key, size, &removal));
  }
  while (removal.bytes < need) {
    std::optional<Digest> victim;
    std::optional<Digest> oldest;
    ASSIGN_OR_RETURN(SqlStatement read,
                     db_->Prepare("SELECT id FROM contexts ORDER BY last_used, id"));
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(const Digest id, read.ReadDigest(0));
      if (context_pins_.count(id) != 0) continue;
      if (!oldest) oldest = id;
      ASSIGN_OR_RETURN(const auto own, OwnColumns(id));
      if (!own.empty()) {
        victim = id;
        break;
      }
    }
    // Where every column is shared, one of the sharers has to go before the last one frees
    // anything.
    if (!victim) victim = oldest;
    if (!victim) return absl::InternalError("the store found no context to evict");
    RETURN_IF_ERROR(RemoveContextRows(*victim, &removal));
  }
  return Commit(std::move(transaction), removal, "evicted");
}

absl::Status DiskStore::WriteColumnFile(const Digest& key, std::string_view blob) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = next_tmp_++;
  }
  const std::string path = ColumnPath(key);
  const std::string folder = path.substr(0, path.rfind('/'));
  // Whatever happened to the folders since the start.
  std::error_code error;
  const bool new_folder = std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), folder);
  RETURN_IF_ERROR(MakeFolder(options_.path + "/tmp"));
  if (new_folder) {
    RETURN_IF_ERROR(SyncFolder(options_.path + "/columns"));
    RETURN_IF_ERROR(SyncFolder(options_.path));
  }
  const std::string tmp = absl::StrCat(options_.path, "/tmp/", number);
  const int fd = ::open(tmp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, tmp);
  absl::Cleanup remove_tmp = [&tmp] { ::unlink(tmp.c_str()); };
  {
    absl::Cleanup close_fd = [fd] { ::close(fd); };
    RETURN_IF_ERROR(Fault("opened"));
    for (size_t done = 0; done < blob.size();) {
      const ssize_t n = ::write(fd, blob.data() + done, blob.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, tmp);
      done += static_cast<size_t>(n);
    }
    RETURN_IF_ERROR(Fault("written"));
    if (::fsync(fd) != 0) return ErrnoStatus(errno, tmp);
  }
  RETURN_IF_ERROR(Fault("synced"));
  if (::rename(tmp.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, path);
  std::move(remove_tmp).Cancel();
  absl::Cleanup remove_file = [&path] { ::unlink(path.c_str()); };
  RETURN_IF_ERROR(Fault("renamed"));
  RETURN_IF_ERROR(SyncFolder(folder));
  RETURN_IF_ERROR(Fault("folder_synced"));
  std::move(remove_file).Cancel();
  return absl::OkStatus();
}

absl::Status DiskStore::PutColumn(const Digest& key, std::string_view blob) {
  if (blob.empty()) return absl::InvalidArgumentError("a column's blob is empty");
  {
    absl::MutexLock lock(&mutex_);
    // Another writer of the same column: its result is ours.
    const auto not_writing = [this, &key]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return writing_.count(key) == 0;
    };
    mutex_.Await(absl::Condition(&not_writing));
    ASSIGN_OR_RETURN(const std::optional<uint64_t> there, ColumnBytes(key));
    if (there) {
      column_uses_[key] = NextTime();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(
        WithReserve([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return MakeRoom(blob.size()); }));
    reserved_bytes_ += blob.size();
    writing_.insert(key);
  }
  absl::Status status = WriteColumnFile(key, blob);
  absl::MutexLock lock(&mutex_);
  reserved_bytes_ -= blob.size();
  writing_.erase(key);
  if (!status.ok()) return status;
  status = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
    ASSIGN_OR_RETURN(SqlStatement insert,
                     db_->Prepare("INSERT INTO columns(key, bytes, last_used) VALUES(?, ?, ?)"));
    RETURN_IF_ERROR(
        insert.Bind(1, key).Bind(2, static_cast<int64_t>(blob.size())).Bind(3, NextTime()).Run());
    RETURN_IF_ERROR(Fault("column_row"));
    return transaction.Commit();
  }();
  if (!status.ok()) {
    ::unlink(ColumnPath(key).c_str());
    return status;
  }
  used_bytes_ += blob.size();
  return Fault("column_committed");
}

void DiskStore::DropColumn(const Digest& key, const absl::Status& reason) {
  uint64_t contexts = 0;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Status dropped = WithReserve(
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return DropColumnLocked(key, &contexts); });
    if (!dropped.ok()) return;  // another thread did it, or the next reader will
  }
  if (options_.on_drop) options_.on_drop(key, contexts, std::string(reason.message()));
}

absl::Status DiskStore::DropColumnLocked(const Digest& key, uint64_t* dropped_contexts) {
  ASSIGN_OR_RETURN(const std::optional<uint64_t> bytes, ColumnBytes(key));
  if (!bytes) return absl::NotFoundError(absl::StrCat("no column ", DigestToHex(key)));
  std::vector<Digest> users;
  {
    ASSIGN_OR_RETURN(SqlStatement read,
                     db_->Prepare("SELECT DISTINCT context FROM context_columns WHERE key = ?"));
    read.Bind(1, key);
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(const Digest id, read.ReadDigest(0));
      users.push_back(id);
    }
  }
  // The contexts' other columns stay: the next precompute needs them.
  Removal removal;
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
  for (const Digest& id : users) {
    for (const char* sql :
         {"DELETE FROM context_columns WHERE context = ?", "DELETE FROM contexts WHERE id = ?"}) {
      ASSIGN_OR_RETURN(SqlStatement remove, db_->Prepare(sql));
      RETURN_IF_ERROR(remove.Bind(1, id).Run());
    }
    removal.contexts.push_back(id);
  }
  RETURN_IF_ERROR(RemoveColumnRow(key, *bytes, &removal));
  RETURN_IF_ERROR(Commit(std::move(transaction), removal, "dropped"));
  if (dropped_contexts != nullptr) *dropped_contexts += users.size();
  return absl::OkStatus();
}

absl::Status DiskStore::DiscardColumn(const Digest& key) {
  absl::MutexLock lock(&mutex_);
  return WithReserve(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return DropColumnLocked(key, nullptr); });
}

absl::Status DiskStore::CommitContext(const ContextRecord& record) {
  if (record.tokens.empty() || record.tokens.size() > kMaxContextTokens ||
      record.columns.size() != ColumnCount(static_cast<uint32_t>(record.tokens.size())) ||
      record.columns.back() != record.id ||
      record.columns != ColumnKeys({.model_fingerprint = record.model_fingerprint,
                                    .codec_digest = record.codec_digest},
                                   record.tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("a context of ", record.tokens.size(),
                                                   " tokens with ", record.columns.size(),
                                                   " columns does not fit itself"));
  }
  const std::string_view tokens(reinterpret_cast<const char*>(record.tokens.data()),
                                record.tokens.size() * sizeof(int32_t));
  absl::MutexLock lock(&mutex_);
  for (const Digest& key : record.columns) {
    ASSIGN_OR_RETURN(const std::optional<uint64_t> there, ColumnBytes(key));
    if (!there) {
      return absl::FailedPreconditionError(
          absl::StrCat("column ", DigestToHex(key), " is not stored"));
    }
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
  RETURN_IF_ERROR(WriteUses());
  // The id is the tokens' digest: whatever a row of this id says, this is right, so a damaged one
  // is put right.
  const int64_t now = NextTime();
  const std::string_view levels(reinterpret_cast<const char*>(record.level_bytes.data()),
                                record.level_bytes.size() * sizeof(uint64_t));
  {
    ASSIGN_OR_RETURN(
        SqlStatement upsert,
        db_->Prepare(
            "INSERT INTO contexts(id, name, model, codec_digest, codec, token_count, level_bytes, "
            "created, last_used, tokens, profile) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT(id) DO UPDATE SET "
            "name = CASE WHEN excluded.name = '' THEN name ELSE excluded.name END, "
            "model = excluded.model, codec_digest = excluded.codec_digest, codec = excluded.codec, "
            "token_count = excluded.token_count, level_bytes = excluded.level_bytes, "
            "last_used = excluded.last_used, tokens = excluded.tokens, "
            "profile = excluded.profile"));
    RETURN_IF_ERROR(upsert.Bind(1, record.id)
                        .BindText(2, record.name)
                        .Bind(3, record.model_fingerprint)
                        .Bind(4, record.codec_digest)
                        .BindText(5, record.codec)
                        .Bind(6, static_cast<int64_t>(record.tokens.size()))
                        .BindBlob(7, levels)
                        .Bind(8, now)
                        .Bind(9, now)
                        .BindBlob(10, tokens)
                        .BindBlob(11, record.profile_digest ? AsStringView(*record.profile_digest)
                                                            : std::string_view())
                        .Run());
    ASSIGN_OR_RETURN(SqlStatement clear,
                     db_->Prepare("DELETE FROM context_columns WHERE context = ?"));
    RETURN_IF_ERROR(clear.Bind(1, record.id).Run());
  }
  for (size_t t = 0; t < record.columns.size(); ++t) {
    ASSIGN_OR_RETURN(
        SqlStatement add,
        db_->Prepare("INSERT INTO context_columns(context, position, key) VALUES(?, ?, ?)"));
    RETURN_IF_ERROR(
        add.Bind(1, record.id).Bind(2, static_cast<int64_t>(t)).Bind(3, record.columns[t]).Run());
  }
  RETURN_IF_ERROR(Fault("context_rows"));
  RETURN_IF_ERROR(transaction.Commit());
  column_uses_.clear();
  context_uses_.clear();
  return Fault("context_committed");
}

absl::StatusOr<uint64_t> DiskStore::DeleteContext(const Digest& id) {
  absl::MutexLock lock(&mutex_);
  {
    // Only whether it is there: a damaged row can be deleted too.
    ASSIGN_OR_RETURN(SqlStatement read, db_->Prepare("SELECT 1 FROM contexts WHERE id = ?"));
    ASSIGN_OR_RETURN(const bool exists, read.Bind(1, id).Step());
    if (!exists) return absl::NotFoundError(absl::StrCat("no context ", DigestToHex(id)));
  }
  if (context_pins_.count(id) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("context ", DigestToHex(id), " is being fetched now"));
  }
  Removal removal;
  const absl::Status status =
      WithReserve([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        removal = {};
        ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get()));
        RETURN_IF_ERROR(RemoveContextRows(id, &removal));
        return Commit(std::move(transaction), removal, "deleted");
      });
  if (!status.ok()) return status;
  return removal.bytes;
}

void DiskStore::KeepReserve() {
  const int fd =
      ::open((options_.path + kReserveFile).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return;
  // On a full disk not even a part of it is kept.
  if (::posix_fallocate(fd, 0, kReserveBytes) != 0)
    ::unlink((options_.path + kReserveFile).c_str());
  ::close(fd);
}

absl::Status DiskStore::WithReserve(const std::function<absl::Status()>& work) {
  absl::Status status = work();
  if (!absl::IsResourceExhausted(status) || ::unlink((options_.path + kReserveFile).c_str()) != 0)
    return status;
  status = work();
  KeepReserve();
  return status;
}

StoreUsage DiskStore::Usage() {
  absl::MutexLock lock(&mutex_);
  StoreUsage usage{.used_bytes = used_bytes_, .budget_bytes = options_.budget_bytes};
  for (const auto& [sql, out] : {std::pair{"SELECT count(*) FROM columns", &usage.columns},
                                 {"SELECT count(*) FROM contexts", &usage.contexts}}) {
    absl::StatusOr<SqlStatement> read = db_->Prepare(sql);
    if (read.ok() && read->Step().ok()) *out = static_cast<uint64_t>(read->Int(0));
  }
  return usage;
}

}  // namespace sparkv
