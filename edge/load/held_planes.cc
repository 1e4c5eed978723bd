#include "edge/load/held_planes.h"

namespace sparkv {

bool PlaneBudget::Take(uint64_t bytes) {
  uint64_t used = used_.load();
  while (used + bytes <= bytes_) {
    if (used_.compare_exchange_weak(used, used + bytes)) return true;
  }
  return false;
}

HeldPlanes::~HeldPlanes() {
  for (const auto& [key, bytes] : planes_) budget_->Give(bytes.size());
}

void HeldPlanes::Put(const ItemRef& item, const std::string& bytes) {
  absl::MutexLock lock(&mutex_);
  if (planes_.count(KeyOf(item)) > 0 || !budget_->Take(bytes.size())) return;
  planes_[KeyOf(item)] = bytes;
}

std::optional<std::string> HeldPlanes::Get(const ItemRef& item) const {
  absl::MutexLock lock(&mutex_);
  const auto found = planes_.find(KeyOf(item));
  if (found == planes_.end()) return std::nullopt;
  return found->second;
}

bool HeldPlanes::Contains(const ItemRef& item) const {
  absl::MutexLock lock(&mutex_);
  return planes_.count(KeyOf(item)) > 0;
}

}  // namespace sparkv
