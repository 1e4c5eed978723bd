#include "common/base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/bytes.h"
#include "tests/catch.h"
#include "tests/testing/temp_folder.h"

namespace sparkv {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a durable write replaces the content and leaves no temporary file") {
  testing::TempFolder dir;
  const std::string path = dir.Path("x");
  REQUIRE_OK(WriteFileDurably(path, "one"));
  REQUIRE_OK(WriteFileDurably(path, "two"));
  CHECK(*ReadFile(path, 100) == "two");
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(dir.path())) entries += entry.exists();
  CHECK(entries == 1);
}

TEST_CASE("a failed durable write keeps the old content") {
  testing::TempFolder dir;
  const std::string path = dir.Path("folder");
  fs::create_directory(path);  // rename over a folder fails
  fs::create_directory(path + "/inside");
  CHECK_FALSE(WriteFileDurably(path, "new").ok());
  CHECK(fs::is_directory(path + "/inside"));
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(dir.path())) entries += entry.exists();
  CHECK(entries == 1);
}

TEST_CASE("reads are bounded and name what is missing") {
  testing::TempFolder dir;
  const std::string path = dir.Path("y");
  REQUIRE_OK(WriteFileDurably(path, std::string(1000, 'a')));
  CHECK(ReadFile(path, 999).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReadFile(path, 1000).ok());
  CHECK(ReadFile(path + "no", 10).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE(
    "a mapping shows the bytes, and an empty file is an empty range, and a folder is refused") {
  testing::TempFolder dir;
  const std::string path = dir.Path("z");
  REQUIRE_OK(WriteFileDurably(path, "mapped"));
  auto file = MappedFile::Open(path);
  REQUIRE_OK(file);
  CHECK(AsStringView((*file)->bytes()) == "mapped");
  REQUIRE_OK(WriteFileDurably(path, ""));
  auto empty = MappedFile::Open(path);
  REQUIRE_OK(empty);
  CHECK((*empty)->bytes().empty());
  CHECK(MappedFile::Open(dir.path()).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(MappedFile::Open(path + "no").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
TEST_CASE("A folder and a FIFO that nobody writes to are refused, whole or mapped") {
  testing::TempFolder dir;
  const std::string fifo = dir.Path("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, dir.path()}) {
    CHECK(absl::IsInvalidArgument(ReadFile(path, 1 << 20).status()));
    CHECK(absl::IsInvalidArgument(MappedFile::Open(path).status()));
  }
}

}  // namespace sparkv
