// kill -9 at every step of a write: what was acknowledged is there, what was not leaves no debris.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/catch.h"
#include "tests/server/store_fixture.h"

namespace sparkv {
namespace {

using testing::FilesOf;
using testing::OpenStore;
using testing::PutContext;
using testing::ReadWhole;
using testing::TempFolder;
using testing::TestBlob;
using testing::TestRecord;
using testing::TestTokens;

ContextRecord Nth(int i) { return TestRecord(TestTokens(1000 * (i + 1), 1100), std::to_string(i)); }

// In the child: writes contexts for ever and reports each acknowledged one. Never returns.
[[noreturn]] void WriteForEver(const std::string& path, uint64_t budget, int report,
                               const std::function<absl::Status(std::string_view)>& fault) {
  auto store = DiskStore::Open({.path = path, .budget_bytes = budget, .fault = fault});
  if (!store.ok()) ::_exit(1);
  for (int i = 0;; ++i) {
    if (!PutContext(store->get(), Nth(i)).ok()) ::_exit(2);
    if (::write(report, &i, sizeof(i)) != sizeof(i)) ::_exit(3);
  }
}

// After the crash. `acknowledged`: how many contexts; with a budget older ones may have been
// evicted.
void CheckAfterCrash(const std::string& path, int acknowledged, bool evicting) {
  auto store = OpenStore(path);
  CHECK(FilesOf(path).size() == store->Usage().columns);
  CHECK(store->recovery().dropped_columns == 0);
  CHECK(store->recovery().dropped_contexts == 0);
  for (int i = 0; i < acknowledged; ++i) {
    const absl::Status read = ReadWhole(store.get(), Nth(i).id);
    INFO("context " << i << " of " << acknowledged << ": " << read.ToString());
    // The newest acknowledged one is never evicted.
    CHECK((read.ok() || (evicting && i + 1 < acknowledged && absl::IsNotFound(read))));
  }
  uint64_t bytes = 0;
  for (const std::string& file : FilesOf(path)) bytes += std::filesystem::file_size(file);
  CHECK(bytes == store->Usage().used_bytes);
  // And it goes on working.
  REQUIRE_OK(PutContext(store.get(), Nth(acknowledged)));
}

int Acknowledged(int pipe) {
  int last = -1;
  int i = 0;
  while (::read(pipe, &i, sizeof(i)) == sizeof(i)) last = i;
  return last + 1;
}

TEST_CASE("D2: SIGKILL at every step of a write loses nothing that was acknowledged") {
  const uint64_t context_bytes = TestBlob(Digest{}, 1024).size() + TestBlob(Digest{}, 76).size();
  for (const bool evicting : {false, true}) {
    // 14 steps make one context; later rounds meet evictions too.
    for (int kill_at = 1; kill_at <= (evicting ? 75 : 32); kill_at += evicting ? 3 : 1) {
      TempFolder folder;
      int pipe[2];
      REQUIRE(::pipe(pipe) == 0);
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        ::close(pipe[0]);
        int step = 0;
        WriteForEver(folder.path(), evicting ? 3 * context_bytes : 0, pipe[1],
                     [&](std::string_view) {
                       if (++step == kill_at) ::kill(::getpid(), SIGKILL);
                       return absl::OkStatus();
                     });
      }
      ::close(pipe[1]);
      const int acknowledged = Acknowledged(pipe[0]);
      ::close(pipe[0]);
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      INFO("killed at step " << kill_at << (evicting ? " with a budget" : ""));
      CheckAfterCrash(folder.path(), acknowledged, evicting);
    }
  }
}

TEST_CASE("D2: SIGKILL from outside at any time loses nothing that was acknowledged") {
  for (int round = 0; round < 8; ++round) {
    TempFolder folder;
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(pipe[0]);
      WriteForEver(folder.path(), 0, pipe[1], nullptr);
    }
    ::close(pipe[1]);
    int seen = 0;
    int i = 0;
    while (seen <= round && ::read(pipe[0], &i, sizeof(i)) == sizeof(i)) ++seen;
    // Another moment in each round, without a clock: hash a while.
    Sha256 spin;
    for (int k = 0; k < round * 500; ++k) spin.Update("some bytes to hash");
    ::kill(child, SIGKILL);
    const int rest = Acknowledged(pipe[0]);
    ::close(pipe[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CheckAfterCrash(folder.path(), std::max(seen, rest), false);
  }
}

}  // namespace
}  // namespace sparkv
