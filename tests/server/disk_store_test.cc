#include "server/disk_store.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <thread>

#include "tests/catch.h"
#include "tests/server/store_fixture.h"

namespace sparkv {
namespace {

using testing::FileOf;
using testing::FilesOf;
using testing::OpenStore;
using testing::PutContext;
using testing::ReadWhole;
using testing::TempFolder;
using testing::TestBlob;
using testing::TestRecord;
using testing::TestTokens;

uint64_t BlobBytes(uint32_t tokens) { return TestBlob(Digest{}, tokens).size(); }

TEST_CASE("A context that was put is there after the store was closed and opened") {
  TempFolder folder;
  const ContextRecord record = TestRecord(TestTokens(1, 2500), "a name");
  int64_t created = 0;
  {
    auto store = OpenStore(folder.path());
    REQUIRE_OK(PutContext(store.get(), record));
    created = store->GetContext(record.id)->created_unix_ms;
    CHECK(created > 0);
  }
  auto store = OpenStore(folder.path());
  CHECK(store->recovery().removed_files == 0);
  CHECK(store->recovery().dropped_columns == 0);
  const auto reader = store->OpenContext(record.id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  CHECK(m.context_id == record.id);
  CHECK(m.tokens == record.tokens);
  CHECK(m.codec == "f16");
  CHECK(m.geometry == testing::kTestGeometry);
  REQUIRE(m.columns.size() == 3);
  CHECK(m.columns[2].tokens == 452);
  CHECK(m.columns[1].key == record.columns[1]);
  CHECK(m.columns[0].active_blocks.empty());
  const ContextRecord got = *store->GetContext(record.id);
  CHECK(got.name == "a name");
  CHECK(got.created_unix_ms == created);
  CHECK(got.level_bytes == record.level_bytes);
  CHECK(got.stored_bytes == 2 * BlobBytes(1024) + BlobBytes(452));
  CHECK(store->Usage().used_bytes == got.stored_bytes);
  CHECK(store->Usage().columns == 3);
  CHECK(store->Usage().contexts == 1);
  REQUIRE_OK(ReadWhole(store.get(), record.id));
  CHECK(store->ReadColumn(record.columns[2]).value() == TestBlob(record.columns[2], 452));
  CHECK((*reader)->ReadItem(3, 0, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK((*reader)->ReadItem(0, 2, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK((*reader)->ReadItem(0, 0, 1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("What is not there is NotFound, what does not fit is refused") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  const ContextRecord record = TestRecord(TestTokens(1, 10), "");
  CHECK(absl::IsNotFound(store->GetContext(record.id).status()));
  CHECK(absl::IsNotFound(store->OpenContext(record.id).status()));
  CHECK(absl::IsNotFound(store->DeleteContext(record.id).status()));
  CHECK(absl::IsNotFound(store->ReadColumn(record.id).status()));
  CHECK(absl::IsNotFound(store->DiscardColumn(record.id)));
  CHECK(absl::IsFailedPrecondition(store->CommitContext(record)));
  ContextRecord odd = record;
  odd.columns.push_back(odd.id);
  CHECK(absl::IsInvalidArgument(store->CommitContext(odd)));
  CHECK(absl::IsInvalidArgument(store->PutColumn(record.id, "")));
  REQUIRE_OK(PutContext(store.get(), record));
  // An id never stands for other tokens.
  odd = record;
  odd.tokens[3] += 1;
  CHECK(absl::IsInvalidArgument(store->CommitContext(odd)));
  // Another model's column is no hit, and stays.
  Digest other{};
  CHECK(absl::IsFailedPrecondition(
      store->FindColumn(record.id, other, record.codec_digest).status()));
  CHECK(store->FindColumn(record.id, record.model_fingerprint, record.codec_digest).ok());
}

TEST_CASE("A second server on the same folder is refused") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  const auto second = DiskStore::Open({.path = folder.path()});
  CHECK(absl::IsFailedPrecondition(second.status()));
  store.reset();
  CHECK(DiskStore::Open({.path = folder.path()}).ok());
}

TEST_CASE("Contexts with a common prefix share its columns, and deleting one keeps them") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  std::vector<int32_t> tokens = TestTokens(1, 1500);
  const ContextRecord a = TestRecord(tokens, "a");
  tokens.push_back(7);
  const ContextRecord b = TestRecord(tokens, "b");
  CHECK(a.columns[0] == b.columns[0]);
  REQUIRE_OK(PutContext(store.get(), a));
  REQUIRE_OK(PutContext(store.get(), b));
  CHECK(store->Usage().columns == 3);
  CHECK(store->DeleteContext(a.id).value() == BlobBytes(476));
  CHECK(store->Usage().columns == 2);
  REQUIRE_OK(ReadWhole(store.get(), b.id));
  CHECK(store->DeleteContext(b.id).value() == BlobBytes(1024) + BlobBytes(477));
  CHECK(store->Usage().used_bytes == 0);
  CHECK(FilesOf(folder.path()).empty());
}

TEST_CASE("A context being read is neither deleted nor evicted") {
  TempFolder folder;
  const uint64_t one = BlobBytes(100);
  auto store = OpenStore(folder.path(), 3 * one);
  const ContextRecord a = TestRecord(TestTokens(1000, 100), "a");
  const ContextRecord b = TestRecord(TestTokens(2000, 100), "b");
  const ContextRecord c = TestRecord(TestTokens(3000, 100), "c");
  const ContextRecord d = TestRecord(TestTokens(4000, 100), "d");
  for (const auto* r : {&a, &b, &c}) REQUIRE_OK(PutContext(store.get(), *r));
  auto reader = store->OpenContext(a.id);
  REQUIRE_OK(reader);
  CHECK(absl::IsFailedPrecondition(store->DeleteContext(a.id).status()));
  // b is the least recently used that may go.
  REQUIRE_OK(PutContext(store.get(), d));
  CHECK(absl::IsNotFound(store->GetContext(b.id).status()));
  CHECK(store->GetContext(a.id).ok());
  CHECK((*reader)->ReadItem(0, 0, 0).ok());
  // With everything pinned there is no room, and nothing is lost by asking.
  auto reader_c = store->OpenContext(c.id);
  auto reader_d = store->OpenContext(d.id);
  CHECK(absl::IsResourceExhausted(PutContext(store.get(), b)));
  CHECK(store->Usage().contexts == 3);
  CHECK(FilesOf(folder.path()).size() == 3);
  reader->reset();
  CHECK(store->DeleteContext(a.id).ok());
}

TEST_CASE("Eviction takes columns without a context first, then the least recently used context") {
  TempFolder folder;
  const uint64_t one = BlobBytes(100);
  auto store = OpenStore(folder.path(), 4 * one);
  const ContextRecord a = TestRecord(TestTokens(1000, 100), "a");
  const ContextRecord b = TestRecord(TestTokens(2000, 100), "b");
  const ContextRecord unfinished = TestRecord(TestTokens(3000, 100), "u");
  const ContextRecord pinned = TestRecord(TestTokens(4000, 100), "p");
  REQUIRE_OK(PutContext(store.get(), a));
  REQUIRE_OK(PutContext(store.get(), b));
  REQUIRE_OK(store->PutColumn(unfinished.id, TestBlob(unfinished.id, 100)));
  const auto pin = store->PinColumns(pinned.columns);
  REQUIRE_OK(store->PutColumn(pinned.id, TestBlob(pinned.id, 100)));
  REQUIRE_OK(ReadWhole(store.get(), a.id));  // now b is older
  const ContextRecord c = TestRecord(TestTokens(5000, 100), "c");
  REQUIRE_OK(PutContext(store.get(), c));
  CHECK(absl::IsNotFound(store->ReadColumn(unfinished.id).status()));
  CHECK(store->ReadColumn(pinned.id).ok());
  CHECK(store->Usage().contexts == 3);
  const ContextRecord d = TestRecord(TestTokens(6000, 100), "d");
  REQUIRE_OK(PutContext(store.get(), d));
  CHECK(absl::IsNotFound(store->GetContext(b.id).status()));
  CHECK(store->GetContext(a.id).ok());
  CHECK(store->ReadColumn(pinned.id).ok());
  CHECK(store->Usage().used_bytes <= 4 * one);
}

TEST_CASE("Eviction frees what only shared columns hold") {
  TempFolder folder;
  auto store = OpenStore(folder.path(), BlobBytes(1024) + BlobBytes(1) + BlobBytes(2));
  std::vector<int32_t> tokens = TestTokens(1, 1025);
  const ContextRecord a = TestRecord(tokens, "a");
  tokens.push_back(5);
  const ContextRecord b = TestRecord(tokens, "b");
  REQUIRE_OK(PutContext(store.get(), a));
  REQUIRE_OK(PutContext(store.get(), b));
  const ContextRecord c = TestRecord(TestTokens(500, 1024), "c");
  REQUIRE_OK(PutContext(store.get(), c));
  CHECK(store->Usage().contexts == 1);
  CHECK(FilesOf(folder.path()).size() == 1);
}

TEST_CASE("More than the whole budget is refused and evicts nothing") {
  TempFolder folder;
  auto store = OpenStore(folder.path(), BlobBytes(100));
  const ContextRecord a = TestRecord(TestTokens(1000, 100), "a");
  REQUIRE_OK(PutContext(store.get(), a));
  const ContextRecord big = TestRecord(TestTokens(1, 1000), "big");
  const absl::Status status = PutContext(store.get(), big);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(std::string(status.message()).find("disk_budget") != std::string::npos);
  REQUIRE_OK(ReadWhole(store.get(), a.id));
}

TEST_CASE("List gives pages, most recently used first") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  std::vector<Digest> ids;
  for (int i = 0; i < 5; ++i) {
    const ContextRecord r = TestRecord(TestTokens(1000 * (i + 1), 10), std::to_string(i));
    REQUIRE_OK(PutContext(store.get(), r));
    ids.push_back(r.id);
  }
  REQUIRE_OK(ReadWhole(store.get(), ids[1]));
  std::string names;
  std::string token;
  do {
    const auto page = store->ListContexts(2, token);
    REQUIRE_OK(page);
    CHECK(page->contexts.size() <= 2);
    for (const ContextRecord& r : page->contexts) names += r.name;
    token = page->next_page_token;
  } while (!token.empty());
  CHECK(names == "14320");
  CHECK(absl::IsInvalidArgument(store->ListContexts(2, "x").status()));
  CHECK(absl::IsInvalidArgument(store->ListContexts(0, "").status()));
}

TEST_CASE(
    "D2: a column file that vanished is a miss, the size is corrected and the process lives") {
  TempFolder folder;
  const uint64_t one = BlobBytes(100);
  auto store = OpenStore(folder.path(), 4 * one);
  std::vector<ContextRecord> records;
  for (int i = 0; i < 4; ++i) {
    records.push_back(TestRecord(TestTokens(1000 * (i + 1), 100), ""));
    REQUIRE_OK(PutContext(store.get(), records.back()));
  }
  auto reader = store->OpenContext(records[0].id);
  REQUIRE_OK(reader);
  std::filesystem::remove(FileOf(folder.path(), records[0].id));
  CHECK(absl::IsDataLoss((*reader)->ReadItem(0, 0, 0).status()));
  CHECK(store->Usage().used_bytes == 3 * one);
  CHECK(absl::IsNotFound(store->GetContext(records[0].id).status()));
  CHECK(absl::IsDataLoss((*reader)->ReadItem(0, 0, 0).status()));
  reader->reset();
  // Gone before anyone looked, then filled past the limit: eviction meets the missing file.
  std::filesystem::remove(FileOf(folder.path(), records[1].id));
  for (int i = 4; i < 9; ++i) {
    records.push_back(TestRecord(TestTokens(1000 * (i + 1), 100), ""));
    REQUIRE_OK(PutContext(store.get(), records.back()));
  }
  CHECK(store->Usage().used_bytes == 4 * one);
  CHECK(FilesOf(folder.path()).size() == 4);
  // Stored again, it is there again.
  REQUIRE_OK(PutContext(store.get(), records[0]));
  REQUIRE_OK(ReadWhole(store.get(), records[0].id));
  // A vanished file that a look-up meets first.
  std::filesystem::remove(FileOf(folder.path(), records[0].id));
  CHECK(absl::IsDataLoss(store->OpenContext(records[0].id).status()));
  CHECK(absl::IsNotFound(store->OpenContext(records[0].id).status()));
  CHECK(absl::IsNotFound(
      store->FindColumn(records[0].id, records[0].model_fingerprint, records[0].codec_digest)
          .status()));
}

TEST_CASE(
    "A flipped byte is DataLoss for that item only, and the column is made anew by the next put") {
  TempFolder folder;
  std::vector<std::string> drops;
  auto opened = DiskStore::Open(
      {.path = folder.path(),
       .on_drop = [&](const Digest& key, uint64_t contexts, std::string_view reason) {
         drops.push_back(absl::StrCat(DigestToHex(key), " ", contexts, " ", std::string(reason)));
       }});
  REQUIRE_OK(opened);
  const auto store = *std::move(opened);
  const ContextRecord r = TestRecord(TestTokens(1, 1100), "");
  REQUIRE_OK(PutContext(store.get(), r));
  auto reader = store->OpenContext(r.id);
  REQUIRE_OK(reader);
  const std::string path = FileOf(folder.path(), r.columns[1]);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  CHECK((*reader)->ReadItem(1, 0, 0).ok());
  CHECK(absl::IsDataLoss((*reader)->ReadItem(1, 1, 0).status()));
  CHECK((*reader)->ReadItem(0, 1, 0).ok());  // the other column is still pinned and there
  // The file is gone for others; who reads it already still gets its other items.
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK((*reader)->ReadItem(1, 0, 0).ok());
  const absl::Status again = (*reader)->ReadItem(1, 1, 0).status();
  CHECK(absl::IsDataLoss(again));
  CHECK(again.message().find(folder.path()) == absl::string_view::npos);
  REQUIRE(drops.size() == 1);
  CHECK(drops[0].find(DigestToHex(r.columns[1]) + " 1 item of layer 1") == 0);
  reader->reset();
  CHECK(absl::IsNotFound(store->OpenContext(r.id).status()));
  CHECK(store->FindColumn(r.columns[0], r.model_fingerprint, r.codec_digest).ok());
  REQUIRE_OK(PutContext(store.get(), r));
  REQUIRE_OK(ReadWhole(store.get(), r.id));
}

TEST_CASE(
    "D2: at open, orphans and unfinished files go, rows without their whole file go with their "
    "contexts") {
  TempFolder folder;
  std::vector<ContextRecord> records;
  for (int i = 0; i < 4; ++i) records.push_back(TestRecord(TestTokens(1000 * (i + 1), 1100), ""));
  {
    auto store = OpenStore(folder.path());
    for (const auto& r : records) REQUIRE_OK(PutContext(store.get(), r));
  }
  std::filesystem::remove(FileOf(folder.path(), records[0].columns[1]));
  std::filesystem::resize_file(FileOf(folder.path(), records[1].columns[0]), 100);
  Digest orphan{};
  std::filesystem::create_directories(folder.path() + "/columns/00");
  std::ofstream(FileOf(folder.path(), orphan)) << "x";
  std::ofstream(folder.path() + "/tmp/7") << "x";
  // Somebody else's, in a folder that was no empty one: they stay.
  std::ofstream(folder.path() + "/columns/00/strange") << "x";
  std::ofstream(folder.path() + "/tmp/notes.txt") << "x";
  auto store = OpenStore(folder.path());
  CHECK(store->recovery().dropped_columns == 2);
  CHECK(store->recovery().dropped_contexts == 2);
  CHECK(store->recovery().removed_files == 2);
  CHECK(std::filesystem::remove(folder.path() + "/columns/00/strange"));
  CHECK(std::filesystem::remove(folder.path() + "/tmp/notes.txt"));
  CHECK(absl::IsNotFound(store->OpenContext(records[0].id).status()));
  CHECK(absl::IsNotFound(store->OpenContext(records[1].id).status()));
  REQUIRE_OK(ReadWhole(store.get(), records[2].id));
  REQUIRE_OK(ReadWhole(store.get(), records[3].id));
  CHECK(FilesOf(folder.path()).size() == store->Usage().columns);
  CHECK(store->Usage().used_bytes == 3 * BlobBytes(1024) + 3 * BlobBytes(76));
}

TEST_CASE("At open, a file that cannot be looked at is an error, and its rows stay") {
  TempFolder folder;
  const ContextRecord record = TestRecord(TestTokens(1, 1100), "");
  {
    auto store = OpenStore(folder.path());
    REQUIRE_OK(PutContext(store.get(), record));
  }
  // A link to itself in the folder's place fails with ELOOP, for root as well.
  const std::filesystem::path columns =
      std::filesystem::path(FileOf(folder.path(), record.columns[0])).parent_path();
  const std::filesystem::path aside = folder.path() + "/aside";
  std::filesystem::rename(columns, aside);
  std::filesystem::create_symlink(columns.filename(), columns);
  CHECK_FALSE(DiskStore::Open({.path = folder.path()}).ok());
  std::filesystem::remove(columns);
  std::filesystem::rename(aside, columns);
  auto store = OpenStore(folder.path());
  CHECK(store->recovery().dropped_columns == 0);
  REQUIRE_OK(ReadWhole(store.get(), record.id));
}

TEST_CASE("A damaged database is an error that says so") {
  TempFolder folder;
  std::filesystem::create_directories(folder.path());
  std::ofstream(folder.path() + "/store.db") << std::string(8192, 'x');
  const absl::Status status = DiskStore::Open({.path = folder.path()}).status();
  CHECK(absl::IsDataLoss(status));
  CHECK(std::string(status.message()).find(folder.path() + "/store.db") != std::string::npos);
}

TEST_CASE("Folders that vanish and a FIFO in a column's place do no lasting harm") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  const ContextRecord record = TestRecord(TestTokens(1, 1100), "");
  REQUIRE_OK(PutContext(store.get(), record));
  const std::string file = FileOf(folder.path(), record.columns[0]);
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0644) == 0);
  CHECK_FALSE(ReadWhole(store.get(), record.id).ok());  // at once: nobody writes into it
  REQUIRE_OK(PutContext(store.get(), record));
  REQUIRE_OK(ReadWhole(store.get(), record.id));
  std::filesystem::remove_all(folder.path() + "/columns");
  std::filesystem::remove_all(folder.path() + "/tmp");
  for (const Digest& key : record.columns) {
    CHECK(absl::IsNotFound(
        store->FindColumn(key, record.model_fingerprint, record.codec_digest).status()));
  }
  REQUIRE_OK(PutContext(store.get(), record));
  REQUIRE_OK(ReadWhole(store.get(), record.id));
}

TEST_CASE("A context keeps its codec's profile, and a store of version 1 is taken over") {
  TempFolder folder;
  ContextRecord record = TestRecord(TestTokens(1, 1100), "");
  record.profile_digest = testing::TestFingerprint();
  ContextRecord plain = TestRecord(TestTokens(500, 50), "");
  {
    auto store = OpenStore(folder.path());
    REQUIRE_OK(PutContext(store.get(), record));
    REQUIRE_OK(PutContext(store.get(), plain));
  }
  {
    auto store = OpenStore(folder.path());
    CHECK(store->GetContext(record.id)->profile_digest == record.profile_digest);
    CHECK((*store->OpenContext(record.id))->manifest().profile_digest == record.profile_digest);
    CHECK_FALSE(store->GetContext(plain.id)->profile_digest.has_value());
  }
  {
    auto db = Database::Open(folder.path() + "/store.db");
    REQUIRE_OK(db);
    REQUIRE_OK((*db)->Exec("ALTER TABLE contexts DROP COLUMN profile; PRAGMA user_version = 1;"));
  }
  {
    auto store = OpenStore(folder.path());
    CHECK_FALSE(store->GetContext(record.id)->profile_digest.has_value());
    REQUIRE_OK(ReadWhole(store.get(), plain.id));
    REQUIRE_OK(store->CommitContext(record));
    CHECK(store->GetContext(record.id)->profile_digest == record.profile_digest);
  }
  {
    auto db = Database::Open(folder.path() + "/store.db");
    REQUIRE_OK(db);
    REQUIRE_OK((*db)->Exec("UPDATE contexts SET profile = x'0102'"));
  }
  auto store = OpenStore(folder.path());
  CHECK(absl::IsDataLoss(store->GetContext(record.id).status()));
}

TEST_CASE("A context's row with damaged tokens is put right by the next commit") {
  TempFolder folder;
  const ContextRecord record = TestRecord(TestTokens(1, 1100), "");
  {
    auto store = OpenStore(folder.path());
    REQUIRE_OK(PutContext(store.get(), record));
  }
  {
    auto db = Database::Open(folder.path() + "/store.db");
    REQUIRE_OK(db);
    REQUIRE_OK((*db)->Exec("UPDATE contexts SET tokens = zeroblob(length(tokens))"));
    REQUIRE_OK((*db)->Exec("DELETE FROM context_columns WHERE position = 0"));
  }
  auto store = OpenStore(folder.path());
  CHECK_FALSE(ReadWhole(store.get(), record.id).ok());
  REQUIRE_OK(store->CommitContext(record));
  CHECK((*store->OpenContext(record.id))->manifest().tokens == record.tokens);
  REQUIRE_OK(ReadWhole(store.get(), record.id));
  REQUIRE_OK(store->DeleteContext(record.id));
}

TEST_CASE("A step that fails leaves no debris and the store usable") {
  for (const char* bad :
       {"opened", "written", "synced", "renamed", "folder_synced", "column_row", "context_rows"}) {
    INFO(bad);
    TempFolder folder;
    bool armed = true;
    const auto store = OpenStore(folder.path(), 0, [&](std::string_view step) {
      return armed && step == bad ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
    });
    const ContextRecord r = TestRecord(TestTokens(1, 100), "");
    CHECK(absl::IsResourceExhausted(PutContext(store.get(), r)));
    CHECK(absl::IsNotFound(store->GetContext(r.id).status()));
    CHECK(FilesOf(folder.path()).size() == store->Usage().columns);
    armed = false;
    REQUIRE_OK(PutContext(store.get(), r));
    REQUIRE_OK(ReadWhole(store.get(), r.id));
  }
}

TEST_CASE(
    "A full disk is ResourceExhausted, leaves no debris, and what was stored stays readable") {
  TempFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=3m") != 0)
    SKIP("needs CAP_SYS_ADMIN to mount a tmpfs");
  {
    auto store = OpenStore(folder.path());
    std::vector<ContextRecord> stored;
    absl::Status status;
    for (int i = 0; i < 200 && status.ok(); ++i) {
      const ContextRecord r = TestRecord(TestTokens(1000 * (i + 1), 1024), "");
      status = PutContext(store.get(), r);
      if (status.ok()) stored.push_back(r);
    }
    INFO(status.ToString());
    CHECK(absl::IsResourceExhausted(status));
    CHECK(stored.size() >= 2);
    CHECK(FilesOf(folder.path()).size() == store->Usage().columns);
    for (const auto& r : stored) CHECK(ReadWhole(store.get(), r.id).ok());
    store.reset();
    store = OpenStore(folder.path());
    CHECK(store->recovery().removed_files == 0);
    for (const auto& r : stored) CHECK(ReadWhole(store.get(), r.id).ok());
    // Others took the last byte: the store opens, deletes and can be filled again.
    store.reset();
    std::ofstream filler(folder.path() + "/filler");
    while (filler << std::string(4096, 'x') << std::flush) {
    }
    filler.close();
    store = OpenStore(folder.path());
    for (const auto& r : stored) CHECK(ReadWhole(store.get(), r.id).ok());
    for (const auto& r : stored) REQUIRE_OK(store->DeleteContext(r.id));
    REQUIRE_OK(PutContext(store.get(), stored[0]));
    CHECK(ReadWhole(store.get(), stored[0].id).ok());
  }
  CHECK(::umount(folder.path().c_str()) == 0);
}

TEST_CASE("Threads put, read, list, delete and evict at once") {
  TempFolder folder;
  auto store = OpenStore(folder.path(), 8 * BlobBytes(100));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int w = 0; w < 4; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < 40; ++i) {
        const ContextRecord r = TestRecord(TestTokens(1000 * ((w * 7 + i) % 12 + 1), 100), "");
        const absl::Status put = PutContext(store.get(), r);
        // Between a column's put and the commit another thread may evict it.
        if (!put.ok() && !absl::IsFailedPrecondition(put) && !absl::IsResourceExhausted(put))
          ++wrong;
        const absl::Status read = ReadWhole(store.get(), r.id);
        if (!read.ok() && !absl::IsNotFound(read)) ++wrong;
        if (i % 5 == 0) {
          const absl::Status removed = store->DeleteContext(r.id).status();
          if (!removed.ok() && !absl::IsNotFound(removed) && !absl::IsFailedPrecondition(removed))
            ++wrong;
        }
        if (!store->ListContexts(10, "").ok()) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(store->Usage().used_bytes <= 8 * BlobBytes(100));
  CHECK(FilesOf(folder.path()).size() == store->Usage().columns);
}

}  // namespace
}  // namespace sparkv
