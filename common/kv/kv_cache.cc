#include "common/kv/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr size_t kPageAlignment = 64;

uint64_t PageBytes(const KvGeometry& g) { return g.token_bytes() * kPageTokens; }

// Calls fn(page, first row in page, rows, rows done before) over the pages of [begin, begin+n).
template <typename Fn>
void ForEachPage(uint32_t begin, uint32_t n, Fn fn) {
  for (uint32_t done = 0; done < n;) {
    const uint32_t token = begin + done;
    const uint32_t row = token % kPageTokens;
    const uint32_t rows = std::min(kPageTokens - row, n - done);
    fn(token / kPageTokens, row, rows, done);
    done += rows;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<KvPagePool>> KvPagePool::Create(const KvGeometry& geometry,
                                                               uint64_t budget_bytes) {
  RETURN_IF_ERROR(geometry.Validate());
  if (budget_bytes < PageBytes(geometry)) {
    return absl::InvalidArgumentError(absl::StrCat("kv_budget_bytes is ", budget_bytes,
                                                   ", one page of ", kPageTokens, " tokens needs ",
                                                   PageBytes(geometry)));
  }
  return std::shared_ptr<KvPagePool>(new KvPagePool(geometry, budget_bytes));
}

KvPagePool::KvPagePool(const KvGeometry& geometry, uint64_t budget_bytes)
    : geometry_(geometry), page_bytes_(PageBytes(geometry)), budget_bytes_(budget_bytes) {}

KvPagePool::~KvPagePool() {
  absl::MutexLock lock(&mutex_);
  for (std::byte* page : free_) std::free(page);
}

uint64_t KvPagePool::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return used_pages_ * page_bytes_;
}

absl::StatusOr<std::shared_ptr<std::byte>> KvPagePool::Allocate() {
  std::byte* page = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if ((used_pages_ + 1) * page_bytes_ > budget_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the KV memory budget is used: ", used_pages_ * page_bytes_, " of ",
                       budget_bytes_, " bytes; raise kv_budget_bytes or use a shorter context"));
    }
    ++used_pages_;
    if (!free_.empty()) {
      page = free_.back();
      free_.pop_back();
    }
  }
  if (page == nullptr) {
    const size_t rounded = (page_bytes_ + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
    page = static_cast<std::byte*>(std::aligned_alloc(kPageAlignment, rounded));
    if (page == nullptr) {
      absl::MutexLock lock(&mutex_);
      --used_pages_;
      return absl::ResourceExhaustedError(
          absl::StrCat("the system has no ", rounded, " bytes left for a KV page"));
    }
  }
  return std::shared_ptr<std::byte>(
      page, [self = shared_from_this()](std::byte* p) { self->Release(p); });
}

void KvPagePool::Release(std::byte* page) {
  absl::MutexLock lock(&mutex_);
  --used_pages_;
  free_.push_back(page);
}

absl::Status KvCache::Extend(uint32_t tokens) {
  if (tokens > kMaxContextTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence of ", tokens, " tokens, allowed: ", kMaxContextTokens));
  }
  const size_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  const size_t before = pages_.size();
  while (pages_.size() < pages) {
    absl::StatusOr<std::shared_ptr<std::byte>> page = pool_->Allocate();
    if (!page.ok()) {
      pages_.resize(before);
      return page.status();
    }
    pages_.push_back(*std::move(page));
  }
  tokens_ = std::max(tokens_, tokens);
  return absl::OkStatus();
}

void KvCache::Truncate(uint32_t tokens) {
  if (tokens >= tokens_) return;
  tokens_ = tokens;
  pages_.resize((tokens + kPageTokens - 1) / kPageTokens);
}

absl::Status KvCache::SharePrefix(const KvCache& other, uint32_t tokens) {
  if (!pages_.empty()) return absl::InternalError("SharePrefix into a sequence that is not empty");
  if (other.pool_ != pool_) return absl::InternalError("SharePrefix between two pools");
  if (tokens > other.tokens_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prefix of ", tokens, " tokens of a sequence of ", other.tokens_));
  }
  const uint32_t full = tokens / kPageTokens;
  pages_.assign(other.pages_.begin(), other.pages_.begin() + full);
  if (tokens % kPageTokens != 0) {
    absl::StatusOr<std::shared_ptr<std::byte>> page = pool_->Allocate();
    if (!page.ok()) {
      pages_.clear();
      return page.status();
    }
    std::memcpy(page->get(), other.pages_[full].get(), pool_->page_bytes());
    pages_.push_back(*std::move(page));
  }
  tokens_ = tokens;
  return absl::OkStatus();
}

void KvCache::WriteRows(uint32_t layer, uint32_t begin, uint32_t n, const float* k, const float* v,
                        size_t stride) {
  const KvGeometry& g = geometry();
  const uint32_t d = g.head_dim;
  ForEachPage(begin, n, [&](uint32_t page, uint32_t row, uint32_t rows, uint32_t done) {
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      const float* src = side == KvSide::kK ? k : v;
      for (uint32_t h = 0; h < g.kv_heads; ++h) {
        std::byte* base = PageData(page, layer, side, h);
        for (uint32_t r = 0; r < rows; ++r) {
          const float* from = src + (done + r) * stride + size_t{h} * d;
          if (g.dtype == KvDtype::kF16) {
            kernels::FloatToHalf(from, reinterpret_cast<uint16_t*>(base) + size_t{row + r} * d, d);
          } else {
            std::memcpy(reinterpret_cast<float*>(base) + size_t{row + r} * d, from,
                        d * sizeof(float));
          }
        }
      }
    }
  });
}

void KvCache::ReadRows(uint32_t layer, KvSide side, uint32_t begin, uint32_t n, float* out,
                       size_t head_stride) const {
  const KvGeometry& g = geometry();
  const size_t d = g.head_dim;
  ForEachPage(begin, n, [&](uint32_t page, uint32_t row, uint32_t rows, uint32_t done) {
    for (uint32_t h = 0; h < g.kv_heads; ++h) {
      const std::byte* base = PageData(page, layer, side, h);
      float* to = out + h * head_stride + done * d;
      if (g.dtype == KvDtype::kF16) {
        kernels::HalfToFloat(reinterpret_cast<const uint16_t*>(base) + row * d, to, rows * d);
      } else {
        std::memcpy(to, reinterpret_cast<const float*>(base) + row * d, rows * d * sizeof(float));
      }
    }
  });
}

absl::Status KvCache::ExportBlock(uint32_t layer, uint32_t begin, uint32_t n, uint16_t* k,
                                  uint16_t* v) const {
  const KvGeometry& g = geometry();
  if (g.dtype != KvDtype::kF16) {
    return absl::FailedPreconditionError("only an f16 KV cache can be encoded; this one is f32");
  }
  const size_t d = g.head_dim;
  ForEachPage(begin, n, [&](uint32_t page, uint32_t row, uint32_t rows, uint32_t done) {
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      uint16_t* out = side == KvSide::kK ? k : v;
      for (uint32_t h = 0; h < g.kv_heads; ++h) {
        const auto* base = reinterpret_cast<const uint16_t*>(PageData(page, layer, side, h));
        std::memcpy(out + (size_t{h} * n + done) * d, base + row * d, rows * d * sizeof(uint16_t));
      }
    }
  });
  return absl::OkStatus();
}

void KvCache::ImportBlock(uint32_t layer, uint32_t begin, uint32_t n, const uint16_t* k,
                          const uint16_t* v) {
  const KvGeometry& g = geometry();
  const size_t d = g.head_dim;
  ForEachPage(begin, n, [&](uint32_t page, uint32_t row, uint32_t rows, uint32_t done) {
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      const uint16_t* in = side == KvSide::kK ? k : v;
      for (uint32_t h = 0; h < g.kv_heads; ++h) {
        std::byte* base = PageData(page, layer, side, h);
        const uint16_t* from = in + (size_t{h} * n + done) * d;
        if (g.dtype == KvDtype::kF16) {
          std::memcpy(reinterpret_cast<uint16_t*>(base) + row * d, from,
                      rows * d * sizeof(uint16_t));
        } else {
          kernels::HalfToFloat(from, reinterpret_cast<float*>(base) + row * d, rows * d);
        }
      }
    }
  });
}

}  // namespace sparkv
