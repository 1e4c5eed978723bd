#include "common/base/file.h"

#include <unistd.h>

#include <filesystem>

#include "common/base/bytes.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

namespace fs = std::filesystem;

struct TempDir {
  TempDir() : path(fs::temp_directory_path() / ("sparkv_file_test." + std::to_string(::getpid()))) {
    fs::create_directories(path);
  }
  ~TempDir() { fs::remove_all(path); }
  fs::path path;
};

TEST_CASE("a durable write replaces the content and leaves no temporary file") {
  TempDir dir;
  const std::string path = (dir.path / "x").string();
  REQUIRE_OK(WriteFileDurably(path, "one"));
  REQUIRE_OK(WriteFileDurably(path, "two"));
  CHECK(*ReadFile(path, 100) == "two");
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(dir.path)) entries += entry.exists();
  CHECK(entries == 1);
}

TEST_CASE("a failed durable write keeps the old content") {
  TempDir dir;
  const std::string path = (dir.path / "folder").string();
  fs::create_directory(path);  // rename over a folder fails
  fs::create_directory(path + "/inside");
  CHECK_FALSE(WriteFileDurably(path, "new").ok());
  CHECK(fs::is_directory(path + "/inside"));
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(dir.path)) entries += entry.exists();
  CHECK(entries == 1);
}

TEST_CASE("reads are bounded and name what is missing") {
  TempDir dir;
  const std::string path = (dir.path / "y").string();
  REQUIRE_OK(WriteFileDurably(path, std::string(1000, 'a')));
  CHECK(ReadFile(path, 999).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReadFile(path, 1000).ok());
  CHECK(ReadFile(path + "no", 10).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE(
    "a mapping shows the bytes, and an empty file is an empty range, and a folder is refused") {
  TempDir dir;
  const std::string path = (dir.path / "z").string();
  REQUIRE_OK(WriteFileDurably(path, "mapped"));
  auto file = MappedFile::Open(path);
  REQUIRE_OK(file);
  CHECK(AsStringView((*file)->bytes()) == "mapped");
  REQUIRE_OK(WriteFileDurably(path, ""));
  auto empty = MappedFile::Open(path);
  REQUIRE_OK(empty);
  CHECK((*empty)->bytes().empty());
  CHECK(MappedFile::Open(dir.path.string()).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(MappedFile::Open(path + "no").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sparkv
