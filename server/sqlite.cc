#include "server/sqlite.h"

#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

absl::Status ErrorOf(sqlite3* db, int code) {
  const std::string text =
      absl::StrCat("database: ", db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    case SQLITE_CONSTRAINT:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_ERROR:
      return absl::InternalError(text);
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace

SqlStatement::~SqlStatement() { sqlite3_finalize(statement_); }

SqlStatement& SqlStatement::Bind(int index, int64_t value) {
  sqlite3_bind_int64(statement_, index, value);
  return *this;
}
SqlStatement& SqlStatement::BindText(int index, std::string_view text) {
  sqlite3_bind_text64(statement_, index, text.data() != nullptr ? text.data() : "", text.size(),
                      SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}
SqlStatement& SqlStatement::BindBlob(int index, std::string_view bytes) {
  sqlite3_bind_blob64(statement_, index, bytes.data() != nullptr ? bytes.data() : "", bytes.size(),
                      SQLITE_TRANSIENT);
  return *this;
}
SqlStatement& SqlStatement::Bind(int index, const Digest& digest) {
  return BindBlob(index, {reinterpret_cast<const char*>(digest.data()), digest.size()});
}

absl::StatusOr<bool> SqlStatement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ErrorOf(sqlite3_db_handle(statement_), code);
}

absl::Status SqlStatement::Run() { return Step().status(); }

int64_t SqlStatement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view SqlStatement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const char*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

absl::StatusOr<Digest> SqlStatement::ReadDigest(int column) const {
  const std::string_view bytes = Bytes(column);
  Digest digest;
  if (bytes.size() != digest.size()) {
    return absl::DataLossError(
        absl::StrCat("database: a digest of ", bytes.size(), " bytes, needs 32"));
  }
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(digest.data()));
  return digest;
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> db(new Database(raw));
  if (code != SQLITE_OK) return ErrorOf(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, 5000);
  RETURN_IF_ERROR(db->Exec("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(db->Exec("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(db->Exec("PRAGMA foreign_keys=ON"));
  return db;
}

Database::~Database() { sqlite3_close_v2(db_); }

absl::Status Database::Exec(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_, code);
}

absl::StatusOr<SqlStatement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(db_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return ErrorOf(db_, code);
  return SqlStatement(statement);
}

int64_t Database::Changes() const { return sqlite3_changes64(db_); }

absl::StatusOr<Transaction> Transaction::Begin(Database* db) {
  RETURN_IF_ERROR(db->Exec("BEGIN IMMEDIATE"));
  return Transaction(db);
}

Transaction::~Transaction() {
  // Fails harmlessly where SQLite has rolled back by itself (disk full).
  if (db_ != nullptr) db_->Exec("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  RETURN_IF_ERROR(db_->Exec("COMMIT"));
  db_ = nullptr;
  return absl::OkStatus();
}

}  // namespace sparkv
