#include "edge/profiles.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/codec/dec_aatc.h"

namespace sparkv {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".skvp";
constexpr size_t kMaxWants = 16;  // digests come from the server's manifests
constexpr absl::Duration kPoll = absl::Milliseconds(20);

// Whether asking again soon cannot help.
bool Settled(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

std::string CodecOf(const CodecProfile& profile) {
  const absl::StatusOr<const CodecInfo*> info = ProfileCodec(profile);
  return info.ok() ? std::string((*info)->name) : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileStore>> ProfileStore::Open(const ProfileStoreOptions& options,
                                                                 ProfileFetcher fetcher) {
  std::unique_ptr<ProfileStore> store(new ProfileStore(options, std::move(fetcher)));
  RETURN_IF_ERROR(store->Scan());
  if (store->fetcher_) store->thread_ = std::thread([self = store.get()] { self->Run(); });
  return store;
}

ProfileStore::~ProfileStore() { Stop(); }

void ProfileStore::Stop() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

absl::Status ProfileStore::Scan() {
  std::error_code error;
  fs::create_directories(options_.folder, error);
  if (error) return ErrnoStatus(error.value(), options_.folder);
  std::vector<std::pair<fs::file_time_type, Digest>> found;
  std::map<Digest, uint64_t> bytes;
  fs::directory_iterator it(options_.folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find(".skvp.tmp.") != std::string::npos) {  // of a daemon that was killed
      ::unlink(it->path().c_str());
      continue;
    }
    if (it->path().extension() != kSuffix) continue;
    const absl::StatusOr<Digest> digest = DigestFromHex(it->path().stem().string());
    if (!digest.ok()) continue;
    std::error_code gone;
    const auto time = fs::last_write_time(it->path(), gone);
    const uint64_t size = fs::file_size(it->path(), gone);
    if (gone) continue;
    found.emplace_back(time, *digest);
    bytes[*digest] = size;
  }
  if (error) return ErrnoStatus(error.value(), options_.folder);
  std::sort(found.begin(), found.end());
  absl::MutexLock lock(&mutex_);
  for (const auto& [time, digest] : found) {
    held_[digest] = {.bytes = bytes[digest], .used = ++uses_};
  }
  return absl::OkStatus();
}

std::string ProfileStore::PathOf(const Digest& digest) const {
  return absl::StrCat(options_.folder, "/", DigestToHex(digest), kSuffix);
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> ProfileStore::Check(const Digest& digest,
                                                                        std::string bytes) const {
  ASSIGN_OR_RETURN(std::shared_ptr<const CodecProfile> profile,
                   CodecProfile::Parse(std::move(bytes)));
  if (profile->digest() != digest) {
    return absl::DataLossError(absl::StrCat(
        "profile: its SHA-256 is ", DigestToHex(profile->digest()), ", not ", DigestToHex(digest)));
  }
  RETURN_IF_ERROR(ProfileCodec(*profile).status());
  if (profile->shape().model_fingerprint != options_.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the profile ", DigestToHex(digest).substr(0, 12), " is of another model (fingerprint ",
        DigestToHex(profile->shape().model_fingerprint).substr(0, 12), ", this daemon's is ",
        DigestToHex(options_.model_fingerprint).substr(0, 12), ")"));
  }
  return profile;
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> ProfileStore::Get(const Digest& digest) {
  const auto in_memory = [&]() -> std::optional<std::shared_ptr<const CodecProfile>> {
    absl::MutexLock lock(&mutex_);
    const auto it = held_.find(digest);
    if (it == held_.end()) return nullptr;
    it->second.used = ++uses_;
    if (it->second.profile == nullptr) return std::nullopt;
    return it->second.profile;
  };
  const absl::Status missing = absl::NotFoundError(
      absl::StrCat("the profile ", DigestToHex(digest).substr(0, 12), " is not here"));
  std::optional<std::shared_ptr<const CodecProfile>> known = in_memory();
  if (!known) {
    absl::MutexLock files(&files_);
    known = in_memory();
    if (!known) {
      const std::string path = PathOf(digest);
      absl::StatusOr<std::string> bytes = ReadFile(path, options_.max_bytes);
      absl::StatusOr<std::shared_ptr<const CodecProfile>> profile =
          bytes.ok() ? Check(digest, *std::move(bytes)) : bytes.status();
      absl::MutexLock lock(&mutex_);
      if (profile.ok()) {
        held_[digest].profile = *profile;
        ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // the order of use survives a restart
        return profile;
      }
      if (absl::IsFailedPrecondition(profile.status()) || absl::IsUnavailable(profile.status()))
        return profile.status();
      ::unlink(path.c_str());  // damaged
      held_.erase(digest);
      return missing;
    }
  }
  if (*known == nullptr) return missing;
  return *known;
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> ProfileStore::Latest(std::string_view codec) {
  std::vector<std::pair<uint64_t, Digest>> order;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [digest, held] : held_) order.emplace_back(held.used, digest);
  }
  std::sort(order.rbegin(), order.rend());
  std::shared_ptr<const CodecProfile> best;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {  // the best is used last
    const absl::StatusOr<std::shared_ptr<const CodecProfile>> profile = Get(it->second);
    if (profile.ok() && CodecOf(**profile) == codec) best = *profile;
  }
  if (best == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no profile of codec ", std::string(codec), " is here"));
  }
  return best;
}

void ProfileStore::Keep(const Digest& digest, std::shared_ptr<const CodecProfile> profile,
                        double fetch_ms) {
  absl::MutexLock files(&files_);
  for (;;) {
    std::optional<Digest> oldest;
    {
      absl::MutexLock lock(&mutex_);
      held_.erase(digest);
      if (held_.size() < std::max<size_t>(1, options_.max_files)) break;
      uint64_t used = 0;
      for (const auto& [one, held] : held_) {
        if (!oldest || held.used < used) {
          oldest = one;
          used = held.used;
        }
      }
      held_.erase(*oldest);
    }
    ::unlink(PathOf(*oldest).c_str());
  }
  // Where the disk refuses, it is held until the daemon ends.
  WriteFileDurably(PathOf(digest), profile->bytes(), 0600).IgnoreError();
  absl::MutexLock lock(&mutex_);
  const uint64_t bytes = profile->bytes().size();
  held_[digest] = {
      .profile = std::move(profile), .bytes = bytes, .used = ++uses_, .fetch_ms = fetch_ms};
}

void ProfileStore::Fetch(const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  if (!fetcher_ || stopping_ || held_.count(digest) != 0) return;
  auto it = wants_.find(digest);
  if (it != wants_.end()) {
    if (!it->second.given_up || it->second.next_try > absl::Now()) return;
    it->second = {};
  } else {
    if (wants_.size() >= kMaxWants) {
      const auto idle = std::find_if(wants_.begin(), wants_.end(),
                                     [](const auto& one) { return one.second.given_up; });
      if (idle == wants_.end()) return;
      wants_.erase(idle);
    }
    wants_[digest] = {};
  }
  changed_.SignalAll();
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> ProfileStore::Wait(
    const Digest& digest, absl::Duration limit, const CancelledFn& cancelled) {
  const absl::Time deadline = absl::Now() + limit;
  for (;;) {
    absl::StatusOr<std::shared_ptr<const CodecProfile>> profile = Get(digest);
    if (!absl::IsNotFound(profile.status())) return profile;
    if (cancelled && cancelled()) return absl::CancelledError("the caller gave up");
    Fetch(digest);
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the daemon is shutting down");
    if (held_.count(digest) != 0) continue;
    const auto it = wants_.find(digest);
    if (it == wants_.end()) return profile.status();  // no server, or too many are asked for
    if (it->second.given_up) return it->second.error;
    const absl::Time now = absl::Now();
    if (now >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          profile.status().message(), " yet: ",
          !it->second.error.ok() ? std::string(it->second.error.message())
          : it->second.total == 0
              ? "its fetch has begun"
              : absl::StrCat(it->second.done, " of ", it->second.total, " bytes have come")));
    }
    changed_.WaitWithDeadline(&mutex_, std::min(deadline, now + kPoll));
  }
}

void ProfileStore::Run() {
  for (;;) {
    Digest digest;
    {
      absl::MutexLock lock(&mutex_);
      for (;;) {
        if (stopping_) return;
        auto next = wants_.end();
        for (auto it = wants_.begin(); it != wants_.end(); ++it) {
          if (it->second.given_up) continue;
          if (next == wants_.end() || it->second.next_try < next->second.next_try) next = it;
        }
        if (next != wants_.end() && next->second.next_try <= absl::Now()) {
          digest = next->first;
          next->second.running = true;
          next->second.done = next->second.total = 0;
          break;
        }
        changed_.WaitWithDeadline(
            &mutex_, next == wants_.end() ? absl::InfiniteFuture() : next->second.next_try);
      }
    }
    const absl::Duration begin = RealClock().Now();
    absl::StatusOr<std::string> bytes = fetcher_(
        digest, options_.max_bytes,
        [&](uint64_t done, uint64_t total) {
          absl::MutexLock lock(&mutex_);
          Want& want = wants_[digest];
          want.done = done;
          want.total = total;
        },
        [this] {
          absl::MutexLock lock(&mutex_);
          return stopping_;
        });
    const double fetch_ms = absl::ToDoubleMilliseconds(RealClock().Now() - begin);
    absl::StatusOr<std::shared_ptr<const CodecProfile>> profile =
        bytes.ok() ? Check(digest, *std::move(bytes)) : bytes.status();
    if (profile.ok()) Keep(digest, *std::move(profile), fetch_ms);
    absl::MutexLock lock(&mutex_);
    if (profile.ok()) {
      wants_.erase(digest);
    } else {
      Want& want = wants_[digest];
      want.running = false;
      want.error = profile.status();
      want.given_up = Settled(want.error) || ++want.tries >= kTries;
      absl::Duration delay = options_.last_retry;
      if (!want.given_up) {
        delay = std::min(delay, options_.first_retry * (int64_t{1} << (want.tries - 1)));
      }
      want.next_try = absl::Now() + delay;
    }
    changed_.SignalAll();
  }
}

std::vector<ProfileStore::State> ProfileStore::States() const {
  std::vector<State> states;
  absl::MutexLock lock(&mutex_);
  for (const auto& [digest, held] : held_) {
    states.push_back({.digest = digest,
                      .codec = held.profile ? CodecOf(*held.profile) : "",
                      .bytes = held.bytes,
                      .bytes_done = held.bytes,
                      .state = "held",
                      .fetch_ms = held.fetch_ms});
  }
  for (const auto& [digest, want] : wants_) {
    State state{.digest = digest, .bytes = want.total, .bytes_done = want.done};
    if (want.running || want.error.ok()) {
      state.state = "fetching";
    } else {
      state.state = absl::StrCat(want.given_up ? "failed: " : "waiting: ", want.error.message());
    }
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace sparkv
