#include "edge/kv_residency.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sparkv {

std::list<KvResidency::Entry>::iterator KvResidency::Locate(std::string_view key) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [key](const Entry& entry) { return entry.key == key; });
}

std::shared_ptr<const HeldKv> KvResidency::Find(std::string_view key) {
  absl::MutexLock lock(&mutex_);
  const auto it = Locate(key);
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return entries_.front().held;
}

void KvResidency::Put(std::string key, HeldKv held) {
  absl::MutexLock lock(&mutex_);
  const auto it = Locate(key);
  if (it != entries_.end()) entries_.erase(it);
  entries_.push_front({std::move(key), std::make_shared<const HeldKv>(std::move(held))});
}

void KvResidency::Drop(std::string_view key) {
  absl::MutexLock lock(&mutex_);
  const auto it = Locate(key);
  if (it != entries_.end()) entries_.erase(it);
}

absl::Status KvResidency::MakeRoom(uint64_t tokens, std::string_view keep) {
  absl::MutexLock lock(&mutex_);
  const uint64_t page = pool_->page_bytes();
  const uint64_t budget = pool_->budget_bytes() / page * page;
  const uint64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  if (pages > budget / page) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV memory: ", tokens, " tokens need ", pages * page,
                     " bytes, kv_budget_bytes allows ", pool_->budget_bytes()));
  }
  while (budget - std::min(budget, pool_->used_bytes()) < pages * page) {
    const auto victim = std::find_if(entries_.rbegin(), entries_.rend(),
                                     [keep](const Entry& entry) { return entry.key != keep; });
    if (victim == entries_.rend()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("KV memory: ", tokens, " more tokens need ", pages * page, " bytes, ",
                       pool_->used_bytes(), " of kv_budget_bytes = ", pool_->budget_bytes(),
                       " are in use by this request"));
    }
    entries_.erase(std::next(victim).base());
  }
  return absl::OkStatus();
}

bool KvResidency::Contains(std::string_view key) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [key](const Entry& entry) { return entry.key == key; });
}

uint32_t KvResidency::Count(std::string_view prefix) const {
  absl::MutexLock lock(&mutex_);
  return static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(), [prefix](const Entry& entry) {
        return std::string_view(entry.key).substr(0, prefix.size()) == prefix;
      }));
}

}  // namespace sparkv
