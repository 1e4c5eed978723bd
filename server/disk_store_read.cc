// The reading half of DiskStore: columns, open contexts, lists, pins.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "server/disk_store.h"

namespace sparkv {
namespace {

constexpr uint64_t kMaxColumnBytes = uint64_t{1} << 36;

// Exactly `bytes` bytes at `offset`; DataLoss when the file ends before.
absl::Status ReadAt(int fd, uint64_t offset, uint64_t bytes, const std::string& path,
                    std::string* out) {
  out->resize(bytes);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(fd, out->data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": ends at ", offset + done, ", needs ", bytes, " bytes at ", offset));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

struct OpenFile {
  int fd = -1;
  uint64_t bytes = 0;
  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd(std::exchange(other.fd, -1)), bytes(other.bytes) {}
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

absl::StatusOr<OpenFile> OpenForRead(const std::string& path) {
  OpenFile file;
  file.fd =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not hold anyone up
  if (file.fd < 0) return ErrnoStatus(errno, path);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, ": is no file"));
  file.bytes = static_cast<uint64_t>(info.st_size);
  return file;
}

bool IsBroken(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status);
}

}  // namespace

class DiskStore::Pin : public ColumnPin {
 public:
  Pin(DiskStore* store, std::vector<Digest> keys) : store_(store), keys_(std::move(keys)) {}
  ~Pin() override { store_->Unpin(keys_, nullptr); }

 private:
  DiskStore* const store_;
  const std::vector<Digest> keys_;
};

class DiskStore::Reader : public ContextReader {
 public:
  // The caller has pinned the context and its columns; the reader unpins them.
  Reader(DiskStore* store, ContextRecord record) : store_(store), record_(std::move(record)) {}
  ~Reader() override { store_->Unpin(record_.columns, &record_.id); }

  absl::Status Load() {
    manifest_.context_id = record_.id;
    manifest_.model_fingerprint = record_.model_fingerprint;
    manifest_.codec_digest = record_.codec_digest;
    manifest_.codec = record_.codec;
    manifest_.profile_digest = record_.profile_digest;
    for (size_t t = 0; t < record_.columns.size(); ++t) {
      const absl::Status status = LoadColumn(static_cast<uint32_t>(t));
      if (status.ok()) continue;
      if (!IsBroken(status)) return status;
      store_->DropColumn(record_.columns[t], status);
      return absl::DataLossError(
          absl::StrCat("column ", t,
                       " of the context is damaged and was dropped; precompute the "
                       "context again: ",
                       status.message()));
    }
    manifest_.tokens = std::move(record_.tokens);
    record_.tokens.clear();
    return absl::OkStatus();
  }

  const Manifest& manifest() const override { return manifest_; }
  const ContextRecord& record() const override { return record_; }

  absl::StatusOr<std::string> ReadItem(uint32_t column, uint32_t layer, uint32_t plane) override {
    if (column >= headers_.size() || layer >= manifest_.geometry.layers ||
        plane >= manifest_.planes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "item (", column, ", ", layer, ", ", plane, ") is outside ", headers_.size(),
          " columns x ", manifest_.geometry.layers, " layers x ", manifest_.planes, " planes"));
    }
    const Digest& key = record_.columns[column];
    std::string bytes;
    bool kept = false, damaged = false;
    const absl::Status status = [&]() -> absl::Status {
      const std::string path = store_->ColumnPath(key);
      std::shared_ptr<const OpenFile> file;
      {
        absl::MutexLock lock(&mutex_);
        const auto it = kept_.find(column);
        if (it != kept_.end()) file = it->second;
      }
      kept = file != nullptr;
      if (!kept) {
        ASSIGN_OR_RETURN(OpenFile opened, OpenForRead(path));
        file = std::make_shared<const OpenFile>(std::move(opened));
      }
      const ByteRange range = headers_[column].ItemRange(layer, plane);
      RETURN_IF_ERROR(ReadAt(file->fd, range.offset, range.bytes, path, &bytes));
      const absl::Status verified = headers_[column].VerifyItem(layer, plane, AsBytes(bytes));
      damaged = !verified.ok();
      if (damaged) {
        absl::MutexLock lock(&mutex_);
        kept_.emplace(column, std::move(file));
      }
      return verified;
    }();
    if (status.ok()) return bytes;
    if (!IsBroken(status)) return status;
    if (!kept) store_->DropColumn(key, status);
    return absl::DataLossError(absl::StrCat(
        "item (", column, ", ", layer, ", ", plane,
        "): ", damaged ? status.message() : "the server can't read the column's file"));
  }

 private:
  absl::Status LoadColumn(uint32_t t) {
    ASSIGN_OR_RETURN(ColumnHeader header, store_->ReadHeader(record_.columns[t]));
    RETURN_IF_ERROR(
        header.CheckIdentity(record_.model_fingerprint, record_.codec_digest, record_.columns[t]));
    if (t == 0) {
      manifest_.geometry = header.geometry;
      manifest_.planes = header.planes;
    }
    if (!(header.geometry == manifest_.geometry) || header.planes != manifest_.planes ||
        header.tokens != ColumnTokens(record_.token_count, t)) {
      return absl::DataLossError(absl::StrCat("column ", t, " has another shape than its context"));
    }
    manifest_.needs_streamed_base |= header.needs_streamed_base;
    ManifestColumn column;
    column.key = record_.columns[t];
    column.tokens = header.tokens;
    column.items = header.items;
    // 0 everywhere is "not measured", which the manifest says with an empty list.
    for (const uint16_t blocks : header.active_blocks) {
      if (blocks != 0) {
        column.active_blocks.assign(header.active_blocks.begin(), header.active_blocks.end());
        break;
      }
    }
    manifest_.columns.push_back(std::move(column));
    header.active_blocks.clear();
    headers_.push_back(std::move(header));
    return absl::OkStatus();
  }

  DiskStore* const store_;
  ContextRecord record_;
  Manifest manifest_;
  std::vector<ColumnHeader> headers_;
  absl::Mutex mutex_;
  // Columns with a damaged item are dropped at once, but a stream under way gets their other items.
  std::map<uint32_t, std::shared_ptr<const OpenFile>> kept_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<ColumnHeader> DiskStore::ReadHeader(const Digest& key) const {
  const std::string path = ColumnPath(key);
  ASSIGN_OR_RETURN(const OpenFile file, OpenForRead(path));
  std::string bytes;
  RETURN_IF_ERROR(ReadAt(file.fd, 0, kColumnPreludeBytes, path, &bytes));
  ASSIGN_OR_RETURN(const uint64_t header_bytes, ColumnHeaderBytes(AsBytes(bytes)));
  if (header_bytes > kMaxColumnHeaderBytes || header_bytes > file.bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": header of ", header_bytes, " bytes in a file of ", file.bytes));
  }
  RETURN_IF_ERROR(ReadAt(file.fd, 0, header_bytes, path, &bytes));
  ASSIGN_OR_RETURN(ColumnHeader header, ParseColumnHeader(AsBytes(bytes)));
  if (header.file_bytes != file.bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", file.bytes, " bytes, its header says ", header.file_bytes));
  }
  return header;
}

absl::StatusOr<ColumnHeader> DiskStore::FindColumn(const Digest& key,
                                                   const Digest& model_fingerprint,
                                                   const Digest& codec_digest) {
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const std::optional<uint64_t> there, ColumnBytes(key));
    if (!there) return absl::NotFoundError(absl::StrCat("no column ", DigestToHex(key)));
    column_uses_[key] = NextTime();
  }
  absl::StatusOr<ColumnHeader> header = ReadHeader(key);
  if (header.ok()) {
    const absl::Status identity = header->CheckIdentity(model_fingerprint, codec_digest, key);
    if (identity.ok()) return header;
    if (!absl::IsDataLoss(identity)) return identity;
    header = identity;  // another column's bytes: as good as none
  }
  if (!IsBroken(header.status())) return header.status();
  DropColumn(key, header.status());
  return absl::NotFoundError(header.status().message());
}

absl::StatusOr<std::string> DiskStore::ReadColumn(const Digest& key) {
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const std::optional<uint64_t> there, ColumnBytes(key));
    if (!there) return absl::NotFoundError(absl::StrCat("no column ", DigestToHex(key)));
  }
  std::string blob;
  const absl::Status status = [&]() -> absl::Status {
    const std::string path = ColumnPath(key);
    ASSIGN_OR_RETURN(const OpenFile file, OpenForRead(path));
    if (file.bytes > kMaxColumnBytes)
      return absl::DataLossError(absl::StrCat(path, ": has ", file.bytes, " bytes"));
    RETURN_IF_ERROR(ReadAt(file.fd, 0, file.bytes, path, &blob));
    return VerifyColumn(AsBytes(blob));
  }();
  if (status.ok()) return blob;
  if (!IsBroken(status)) return status;
  DropColumn(key, status);
  return absl::DataLossError(status.message());
}

std::unique_ptr<ColumnPin> DiskStore::PinColumns(std::span<const Digest> keys) {
  absl::MutexLock lock(&mutex_);
  for (const Digest& key : keys) ++column_pins_[key];
  return std::make_unique<Pin>(this, std::vector<Digest>(keys.begin(), keys.end()));
}

void DiskStore::Unpin(std::span<const Digest> columns, const Digest* context) {
  absl::MutexLock lock(&mutex_);
  const auto release = [](std::map<Digest, int>* pins, const Digest& key) {
    const auto it = pins->find(key);
    if (it != pins->end() && --it->second == 0) pins->erase(it);
  };
  for (const Digest& key : columns) release(&column_pins_, key);
  if (context != nullptr) release(&context_pins_, *context);
}

absl::StatusOr<ContextRecord> DiskStore::ReadContext(const Digest& id, bool with_tokens) {
  ASSIGN_OR_RETURN(
      SqlStatement read,
      db_->Prepare(absl::StrCat(
          "SELECT name, model, codec_digest, codec, token_count, level_bytes, created, "
          "last_used, profile",
          with_tokens ? ", tokens" : "", " FROM contexts WHERE id = ?")));
  ASSIGN_OR_RETURN(const bool found, read.Bind(1, id).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("no context ", DigestToHex(id)));
  ContextRecord record;
  record.id = id;
  record.name = std::string(read.Bytes(0));
  ASSIGN_OR_RETURN(record.model_fingerprint, read.ReadDigest(1));
  ASSIGN_OR_RETURN(record.codec_digest, read.ReadDigest(2));
  record.codec = std::string(read.Bytes(3));
  if (!read.Bytes(8).empty()) {
    ASSIGN_OR_RETURN(record.profile_digest, read.ReadDigest(8));
  }
  const int64_t count = read.Int(4);
  if (count < 1 || count > static_cast<int64_t>(kMaxContextTokens)) {
    return absl::DataLossError(absl::StrCat("database: a context of ", count, " tokens"));
  }
  record.token_count = static_cast<uint32_t>(count);
  const std::string_view levels = read.Bytes(5);
  record.level_bytes.resize(levels.size() / sizeof(uint64_t));
  if (!levels.empty())
    std::memcpy(record.level_bytes.data(), levels.data(),
                record.level_bytes.size() * sizeof(uint64_t));
  record.created_unix_ms = read.Int(6);
  record.last_used_unix_ms = read.Int(7);
  const auto use = context_uses_.find(id);
  if (use != context_uses_.end()) record.last_used_unix_ms = use->second;
  if (with_tokens) {
    const std::string_view tokens = read.Bytes(9);
    if (tokens.size() != record.token_count * sizeof(int32_t)) {
      return absl::DataLossError(
          absl::StrCat("database: ", tokens.size(), " bytes of ids for ", count, " tokens"));
    }
    record.tokens.resize(record.token_count);
    std::memcpy(record.tokens.data(), tokens.data(), tokens.size());
  }
  ASSIGN_OR_RETURN(
      SqlStatement columns,
      db_->Prepare("SELECT x.key, coalesce(c.bytes, 0) FROM context_columns x LEFT JOIN columns c "
                   "ON c.key = x.key WHERE x.context = ? ORDER BY x.position"));
  columns.Bind(1, id);
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, columns.Step());
    if (!more) break;
    ASSIGN_OR_RETURN(const Digest key, columns.ReadDigest(0));
    record.columns.push_back(key);
    record.stored_bytes += static_cast<uint64_t>(columns.Int(1));
  }
  if (record.columns.size() != ColumnCount(record.token_count)) {
    return absl::DataLossError(
        absl::StrCat("database: ", record.columns.size(), " columns for ", count, " tokens"));
  }
  return record;
}

absl::StatusOr<ContextRecord> DiskStore::GetContext(const Digest& id) {
  absl::MutexLock lock(&mutex_);
  return ReadContext(id, /*with_tokens=*/false);
}

absl::StatusOr<std::unique_ptr<ContextReader>> DiskStore::OpenContext(const Digest& id) {
  std::unique_ptr<Reader> reader;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(ContextRecord record, ReadContext(id, /*with_tokens=*/true));
    const int64_t now = NextTime();
    record.last_used_unix_ms = now;
    context_uses_[id] = now;
    ++context_pins_[id];
    for (const Digest& key : record.columns) {
      ++column_pins_[key];
      column_uses_[key] = now;
    }
    reader = std::make_unique<Reader>(this, std::move(record));
  }
  RETURN_IF_ERROR(reader->Load());
  return reader;
}

absl::StatusOr<ContextPage> DiskStore::ListContexts(uint32_t limit, std::string_view page_token) {
  if (limit < 1 || limit > 1000)
    return absl::InvalidArgumentError(absl::StrCat("limit: got ", limit, ", allowed: 1..1000"));
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    const auto [end, error] =
        std::from_chars(page_token.data(), page_token.data() + page_token.size(), before);
    if (error != std::errc() || end != page_token.data() + page_token.size()) {
      return absl::InvalidArgumentError("page_token: is not one that List returned");
    }
  }
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(FlushUses());
  std::vector<Digest> ids;
  {
    // Times of use never repeat, so one number is a whole page token.
    ASSIGN_OR_RETURN(
        SqlStatement read,
        db_->Prepare(
            "SELECT id FROM contexts WHERE last_used < ? ORDER BY last_used DESC LIMIT ?"));
    read.Bind(1, before).Bind(2, static_cast<int64_t>(limit) + 1);
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, read.Step());
      if (!more) break;
      ASSIGN_OR_RETURN(const Digest id, read.ReadDigest(0));
      ids.push_back(id);
    }
  }
  ContextPage page;
  const bool more = ids.size() > limit;
  if (more) ids.pop_back();
  for (const Digest& id : ids) {
    ASSIGN_OR_RETURN(ContextRecord record, ReadContext(id, /*with_tokens=*/false));
    record.columns.clear();
    page.contexts.push_back(std::move(record));
  }
  if (more) page.next_page_token = absl::StrCat(page.contexts.back().last_used_unix_ms);
  return page;
}

}  // namespace sparkv
