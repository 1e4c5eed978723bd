// The few parts of SQLite that the store needs, with absl::Status. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sha256.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sparkv {

// A prepared statement. Must not outlive its database.
class SqlStatement {
 public:
  explicit SqlStatement(sqlite3_stmt* statement) : statement_(statement) {}
  ~SqlStatement();
  SqlStatement(SqlStatement&& other) noexcept : statement_(other.statement_) {
    other.statement_ = nullptr;
  }
  SqlStatement& operator=(SqlStatement&&) = delete;

  // Parameters from 1 on. The bytes are copied.
  SqlStatement& Bind(int index, int64_t value);
  SqlStatement& BindText(int index, std::string_view text);
  SqlStatement& BindBlob(int index, std::string_view bytes);
  SqlStatement& Bind(int index, const Digest& digest);

  // True while there is a row. Errors: see Database.
  absl::StatusOr<bool> Step();
  // Runs a statement without rows.
  absl::Status Run();

  // Columns from 0 on, of the current row; views live until the next Step.
  int64_t Int(int column) const;
  std::string_view Bytes(int column) const;
  // DataLoss unless the column holds 32 bytes.
  absl::StatusOr<Digest> ReadDigest(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// ResourceExhausted: disk full; DataLoss: the file is damaged or no database; Unavailable: anything
// else the disk refuses.
class Database {
 public:
  // Opens or creates, with WAL and synchronous=FULL: a committed transaction survives power loss.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  absl::Status Exec(const char* sql);
  absl::StatusOr<SqlStatement> Prepare(std::string_view sql);
  int64_t Changes() const;

 private:
  explicit Database(sqlite3* db) : db_(db) {}
  sqlite3* db_;
};

// BEGIN IMMEDIATE ... COMMIT; rolls back unless Commit succeeded.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Database* db);
  ~Transaction();
  Transaction(Transaction&& other) noexcept : db_(other.db_) { other.db_ = nullptr; }
  Transaction& operator=(Transaction&&) = delete;
  absl::Status Commit();

 private:
  explicit Transaction(Database* db) : db_(db) {}
  Database* db_;
};

}  // namespace sparkv
