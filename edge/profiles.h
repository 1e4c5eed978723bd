// The model profiles of codecs that this device holds: files in one folder, named by their SHA-256,
// fetched from the server in the background.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/base/sha256.h"
#include "common/codec/profile.h"

namespace sparkv {

struct ProfileStoreOptions {
  std::string folder;              // made when absent; nobody else may use it meanwhile
  Digest model_fingerprint{};      // profiles of other models are refused
  uint64_t max_bytes = 64u << 20;  // of a profile
  size_t max_files = 8;            // the least recently used ones go first
  // A fetch that failed is tried again after so long, then after twice as long, and so on.
  absl::Duration first_retry = absl::Seconds(1);
  absl::Duration last_retry = absl::Minutes(1);
};

// Gets a profile's bytes, whatever they are; ServerClient::GetProfile.
using ProfileFetcher = std::function<absl::StatusOr<std::string>(
    const Digest& digest, uint64_t max_bytes,
    const std::function<void(uint64_t done, uint64_t total)>& progress,
    const CancelledFn& cancelled)>;

// Thread-safe. Its own thread fetches, one profile after the other.
class ProfileStore {
 public:
  // fetcher: null where there is no server. Unavailable and the like when the folder cannot be made
  // or read.
  static absl::StatusOr<std::unique_ptr<ProfileStore>> Open(const ProfileStoreOptions& options,
                                                            ProfileFetcher fetcher);
  ~ProfileStore();
  ProfileStore(const ProfileStore&) = delete;
  ProfileStore& operator=(const ProfileStore&) = delete;

  // From memory, else from its file. NotFound when it is not here: a damaged file is removed and
  // counts as that. FailedPrecondition: it is of another model, codec or version.
  absl::StatusOr<std::shared_ptr<const CodecProfile>> Get(const Digest& digest);
  // The one used last of those here for the codec of this name. NotFound.
  absl::StatusOr<std::shared_ptr<const CodecProfile>> Latest(std::string_view codec);

  // Begins to fetch what Get did not find, unless it is being fetched; returns at once. What the
  // server lacks or what does not fit is not asked for again before last_retry has passed, and
  // other failures are tried again up to kTries times. Does nothing without a server.
  void Fetch(const Digest& digest);
  // Get, and when it is not here Fetch and at most `limit` of waiting. Besides Get's errors: those
  // of the fetch when it will not be tried again by itself, Unavailable when the time is over (the
  // fetch goes on), Cancelled.
  absl::StatusOr<std::shared_ptr<const CodecProfile>> Wait(const Digest& digest,
                                                           absl::Duration limit,
                                                           const CancelledFn& cancelled);

  struct State {
    Digest digest{};
    std::string codec;        // empty: not known yet
    uint64_t bytes = 0;       // 0: not known yet
    uint64_t bytes_done = 0;  // of a fetch
    std::string state;        // "held", "fetching", "waiting: REASON", "failed: REASON"
    double fetch_ms = 0;      // of its transfer; 0: it was here at the start
  };
  std::vector<State> States() const;

  // Ends the fetch under way and all waiting, with Cancelled. Idempotent; done by the destructor.
  void Stop();

  static constexpr int kTries = 8;

 private:
  struct Held {
    std::shared_ptr<const CodecProfile> profile;  // null: not read yet
    uint64_t bytes = 0;
    uint64_t used = 0;  // larger: later
    double fetch_ms = 0;
  };
  struct Want {
    int tries = 0;
    bool running = false;
    bool given_up = false;  // until someone asks again after next_try
    absl::Time next_try = absl::InfinitePast();
    uint64_t done = 0;
    uint64_t total = 0;
    absl::Status error;
  };

  ProfileStore(const ProfileStoreOptions& options, ProfileFetcher fetcher)
      : options_(options), fetcher_(std::move(fetcher)) {}
  absl::Status Scan();
  std::string PathOf(const Digest& digest) const;
  absl::StatusOr<std::shared_ptr<const CodecProfile>> Check(const Digest& digest,
                                                            std::string bytes) const;
  void Keep(const Digest& digest, std::shared_ptr<const CodecProfile> profile, double fetch_ms);
  void Run();

  const ProfileStoreOptions options_;
  const ProfileFetcher fetcher_;
  absl::Mutex files_;  // reads and changes files; taken before mutex_
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Digest, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, Want> wants_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses the others
};

}  // namespace sparkv
