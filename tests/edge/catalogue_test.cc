#include "edge/catalogue.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/catch.h"
#include "tests/testing/temp_folder.h"

namespace sparkv {
namespace {

CatalogueEntry Entry(uint8_t first, const std::string& name) {
  CatalogueEntry entry;
  entry.id.fill(0xAB);
  entry.id[31] = first;
  entry.name = name;
  entry.codec = "generic";
  entry.model_fingerprint.fill(7);
  entry.codec_digest.fill(8);
  entry.raw = true;
  entry.created_unix_ms = 1000 + first;
  entry.stored_bytes = 12345;
  entry.level_bytes = {1, 2, 3};
  entry.tokens = {5, 0, 49151, first};
  return entry;
}

std::unique_ptr<Catalogue> Open(const testing::TempFolder& folder) {
  auto catalogue = Catalogue::Open(folder.path());
  REQUIRE(catalogue.ok());
  return *std::move(catalogue);
}

TEST_CASE("entries survive a restart with every field") {
  testing::TempFolder folder;
  REQUIRE(Open(folder)->Put(Entry(1, "one")).ok());
  const auto entry = Open(folder)->Resolve("one");
  REQUIRE(entry.ok());
  const CatalogueEntry expected = Entry(1, "one");
  CHECK(entry->id == expected.id);
  CHECK(entry->name == "one");
  CHECK(entry->codec == "generic");
  CHECK(entry->model_fingerprint == expected.model_fingerprint);
  CHECK(entry->codec_digest == expected.codec_digest);
  CHECK(entry->raw);
  CHECK_FALSE(entry->on_server);
  CHECK(entry->created_unix_ms == 1001);
  CHECK(entry->stored_bytes == 12345);
  CHECK(entry->level_bytes == expected.level_bytes);
  CHECK(entry->tokens == expected.tokens);
}

TEST_CASE("a reference is a name, an id or a unique prefix") {
  testing::TempFolder folder;
  auto catalogue = Open(folder);
  REQUIRE(catalogue->Put(Entry(0x10, "one")).ok());
  REQUIRE(catalogue->Put(Entry(0x20, "two")).ok());
  const std::string id = DigestToHex(Entry(0x20, "two").id);
  CHECK(catalogue->Resolve(id)->name == "two");
  CHECK(catalogue->Resolve(id.substr(0, 63))->name == "two");
  const auto ambiguous = catalogue->Resolve(id.substr(0, 8));
  CHECK(ambiguous.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(ambiguous.status().message()).find("(one)") != std::string::npos);
  CHECK(std::string(ambiguous.status().message()).find("(two)") != std::string::npos);
  CHECK(catalogue->Resolve(id.substr(0, 7)).status().code() == absl::StatusCode::kNotFound);
  CHECK(catalogue->Resolve("three").status().code() == absl::StatusCode::kNotFound);
  CHECK(catalogue->Resolve("").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a name belongs to one content") {
  testing::TempFolder folder;
  auto catalogue = Open(folder);
  REQUIRE(catalogue->Put(Entry(1, "doc")).ok());
  CHECK(catalogue->Put(Entry(1, "doc")).ok());
  CHECK(catalogue->Put(Entry(2, "doc")).code() == absl::StatusCode::kInvalidArgument);
  CHECK(catalogue->Put(Entry(1, "")).code() == absl::StatusCode::kInvalidArgument);
  CHECK(catalogue->Put(Entry(1, std::string(257, 'n'))).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(catalogue->Put(Entry(1, "a\nb")).code() == absl::StatusCode::kInvalidArgument);
  CHECK(catalogue->Put(Entry(1, "deadbeef")).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("removing a name keeps the other names of the context, and removing the id takes all") {
  testing::TempFolder folder;
  auto catalogue = Open(folder);
  REQUIRE(catalogue->Put(Entry(1, "a")).ok());
  REQUIRE(catalogue->Put(Entry(1, "b")).ok());
  REQUIRE(catalogue->Put(Entry(1, "c")).ok());
  CHECK(catalogue->Remove("a")->size() == 1);
  CHECK(catalogue->Contains(Entry(1, "").id));
  catalogue.reset();
  catalogue = Open(folder);
  CHECK(catalogue->List().size() == 2);
  CHECK(catalogue->Remove(DigestToHex(Entry(1, "").id))->size() == 2);
  CHECK_FALSE(catalogue->Contains(Entry(1, "").id));
  CHECK(catalogue->Remove("a").status().code() == absl::StatusCode::kNotFound);
  catalogue.reset();
  CHECK(Open(folder)->List().empty());
}

TEST_CASE("broken files are named and skipped, never deleted") {
  testing::TempFolder folder;
  std::string path;
  {
    auto catalogue = Open(folder);
    REQUIRE(catalogue->Put(Entry(1, "good")).ok());
    REQUIRE(catalogue->Put(Entry(2, "bad")).ok());
    catalogue->Remove("good").IgnoreError();
    path = std::filesystem::directory_iterator(folder.path())->path().string();
    REQUIRE(catalogue->Put(Entry(1, "good")).ok());
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.put('\x55');
  }
  std::ofstream(folder.path() + "/empty.ctx").close();
  std::ofstream(folder.path() + "/notes.txt") << "not ours";
  auto catalogue = Open(folder);
  CHECK(catalogue->broken().size() == 2);
  CHECK(catalogue->List().size() == 1);
  CHECK(catalogue->Resolve("good").ok());
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("any damage to a file is an error, not a crash") {
  const std::string bytes = EncodeCatalogueEntry(Entry(1, "name"));
  REQUIRE(DecodeCatalogueEntry(bytes).ok());
  for (size_t n = 0; n < bytes.size(); ++n) {
    if (DecodeCatalogueEntry(bytes.substr(0, n)).ok()) FAIL("cut at " << n << " was accepted");
    std::string flipped = bytes;
    flipped[n] = static_cast<char>(flipped[n] ^ 0x40);
    if (DecodeCatalogueEntry(flipped).ok()) FAIL("flip at " << n << " was accepted");
  }
  CHECK_FALSE(DecodeCatalogueEntry(bytes + "x").ok());
}

TEST_CASE("the list has the newest first") {
  testing::TempFolder folder;
  auto catalogue = Open(folder);
  REQUIRE(catalogue->Put(Entry(1, "old")).ok());
  REQUIRE(catalogue->Put(Entry(9, "new")).ok());
  const auto list = catalogue->List();
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "new");
}

}  // namespace
}  // namespace sparkv
