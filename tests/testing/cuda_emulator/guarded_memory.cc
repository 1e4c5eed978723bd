#include "tests/testing/cuda_emulator/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sparkv::testing {
namespace {

constexpr uint8_t kPattern = 0xDB;

size_t Page() {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page;
}

// Pages between two that must not be touched, kept for the next of the same size: tests make
// thousands of small ones.
class Pool {
 public:
  uint8_t* Take(size_t bytes) {
    std::vector<uint8_t*>& free = free_[bytes];
    if (!free.empty()) {
      uint8_t* const pages = free.back();
      free.pop_back();
      return pages;
    }
    void* const all =
        mmap(nullptr, bytes + 2 * Page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t* const pages = static_cast<uint8_t*>(all) + Page();
    if (all == MAP_FAILED || mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0) {
      std::perror("guarded memory");
      std::abort();
    }
    return pages;
  }
  void Give(uint8_t* pages, size_t bytes) { free_[bytes].push_back(pages); }

 private:
  std::map<size_t, std::vector<uint8_t*>> free_;
};

// Never destroyed: memory may be released after main.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}
std::map<const uint8_t*, const GuardedMemory*>& Existing() {  // by the first of its pages
  static auto* const existing = new std::map<const uint8_t*, const GuardedMemory*>;
  return *existing;
}

}  // namespace

GuardedMemory::GuardedMemory(std::string name, size_t bytes, size_t alignment, Edge edge,
                             uint8_t fill)
    : name_(std::move(name)),
      bytes_(bytes),
      page_bytes_(std::max<size_t>(1, (bytes + Page() - 1) / Page()) * Page()) {
  pages_ = ThePool().Take(page_bytes_);
  const size_t before = edge == Edge::kStart ? 0 : (page_bytes_ - bytes) / alignment * alignment;
  data_ = pages_ + before;
  std::memset(pages_, kPattern, page_bytes_);
  std::memset(data_, fill, bytes_);
  Existing()[pages_] = this;
}

GuardedMemory::~GuardedMemory() {
  Existing().erase(pages_);
  ThePool().Give(pages_, page_bytes_);
}

bool GuardedMemory::SlackIntact() const {
  static const std::vector<uint8_t> pattern(Page(), kPattern);
  const auto before = static_cast<size_t>(data_ - pages_);  // below a page, as is what lies behind
  return std::memcmp(pages_, pattern.data(), before) == 0 &&
         std::memcmp(data_ + bytes_, pattern.data(), page_bytes_ - before - bytes_) == 0;
}

const GuardedMemory* GuardedMemory::Near(const void* address) {
  const auto* const at = static_cast<const uint8_t*>(address);
  for (const auto& [pages, memory] : Existing()) {
    if (at >= pages - Page() && at < pages + memory->page_bytes_ + Page()) return memory;
  }
  return nullptr;
}

std::string GuardedMemory::Describe(const void* address) const {
  return absl::StrCat("byte ", static_cast<const uint8_t*>(address) - data_, " of '", name_, "' (",
                      bytes_, " bytes)");
}

std::string GuardedMemory::Damaged() {
  for (const auto& [pages, memory] : Existing()) {
    if (!memory->SlackIntact()) return memory->name_;
  }
  return {};
}

}  // namespace sparkv::testing
