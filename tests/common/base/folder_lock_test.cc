#include "common/base/folder_lock.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/catch.h"
#include "tests/testing/temp_folder.h"

namespace sparkv {
namespace {

// Whether another process can take the lock.
bool FreeForOthers(const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(FolderLock::Take(folder).ok() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("a folder has one holder at a time, in this process and in others") {
  testing::TempFolder dir;
  {
    const auto first = FolderLock::Take(dir.path());
    REQUIRE_OK(first);
    const auto second = FolderLock::Take(dir.path());
    CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(second.status().message()).find(dir.path()) != std::string::npos);
    CHECK_FALSE(FreeForOthers(dir.path()));
  }
  CHECK(FreeForOthers(dir.path()));
  REQUIRE_OK(FolderLock::Take(dir.path()));
}

TEST_CASE("an absent folder and a link in the lock's place are errors") {
  testing::TempFolder dir;
  CHECK(FolderLock::Take(dir.path() + "/absent").status().code() == absl::StatusCode::kNotFound);
  std::filesystem::create_symlink("/dev/null", dir.path() + "/lock");
  CHECK_FALSE(FolderLock::Take(dir.path()).ok());
}

}  // namespace
}  // namespace sparkv
