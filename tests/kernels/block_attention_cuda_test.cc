// The attention kernels on the cases of the CPU twins, in the emulator and on a GPU.
#include "kernels/block_attention_cuda.h"

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/block_attention_launch.h"
#include "tests/catch.h"
#include "tests/kernels/block_attention_cases.h"
#include "tests/kernels/cuda_target.h"
#include "tests/testing/cuda_emulator/sanitizers.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

// Weights are rounded to f16 before they meet the values; a value is 4 at most.
constexpr double kTolerance = 4e-3;
// Of the emulator: a case's work() counts 1 for each of some 1e9 multiply-adds a second.
#if !defined(NDEBUG) || !defined(__x86_64__) || defined(SPARKV_ADDRESS_SANITIZER) || \
    defined(SPARKV_THREAD_SANITIZER)
constexpr size_t kMostWork = size_t{1} << 17, kMostSpecialWork = size_t{3} << 20;
constexpr size_t kMostDecodeWork = size_t{1} << 18;
#else
constexpr size_t kMostWork = size_t{1} << 20, kMostSpecialWork = size_t{32} << 20;
constexpr size_t kMostDecodeWork = size_t{1} << 20;
#endif

// Those of every head size, of eight query heads to a KV head and of poison may take longer.
std::vector<BlockAttentionCase> EmulatedCases() {
  std::vector<BlockAttentionCase> cases = BlockAttentionCases(kMostSpecialWork);
  std::erase_if(cases, [](const BlockAttentionCase& c) {
    const bool special = c.poison != Poison::kNone || (c.dim != 64 && c.group == 1) ||
                         (c.dim == 64 && c.group == 8 && c.kv_heads == 1);
    return !special && c.work() > kMostWork;
  });
  return cases;
}

// A problem in a device's memory. Pages are apart, so that a read beside one is found.
class OnDevice {
 public:
  OnDevice(CudaTarget& target, BlockAttentionProblem& problem) : target_(target), host_(problem) {
    const BlockAttentionArgs& a = host_.args();
    device_ = a;
    const size_t heads = a.heads, rows = a.rows, lists = heads * a.query_blocks();
    floats_ =
        rows == 0 ? 0 : (heads - 1) * a.out_head_stride + (rows - 1) * a.out_row_stride + a.kv.dim;
    device_.kv.k = Pages("key page", a.kv.k);
    device_.kv.v = Pages("value page", a.kv.v);
    device_.q = Put("q", a.q, floats_);
    device_.out = Put("out", a.out, floats_);
    device_.log_sum = Put("log_sum", a.log_sum, heads * rows);
    size_t masses = lists * a.key_blocks();
    if (a.lists.begin != nullptr) {
      masses = a.lists.begin[lists];
      device_.lists.begin = Put("list begins", a.lists.begin, lists + 1);
      device_.lists.blocks = Put("list blocks", a.lists.blocks, masses);
    }
    masses_ = masses;
    device_.mass = Put("mass", a.mass, masses);
    const uint32_t none = 0;
    faults_ = Put("faults", &none, 1);
    scratch_floats_ = PagedDecodeScratchFloats(a);
    const std::vector<float> nan(scratch_floats_, std::numeric_limits<float>::quiet_NaN());
    scratch_ = Put("scratch", nan.data(), scratch_floats_);
  }
  ~OnDevice() { target_.Clear(); }

  absl::Status Run(bool decode) {
    const absl::Status status = target_.Run([&]() -> absl::Status {
      if (!target_.emulated()) {
        return decode ? PagedDecodeAttentionCuda(device_, scratch_, scratch_floats_, faults_,
                                                 target_.stream())
                      : BlockSparseAttentionCuda(device_, faults_, target_.stream());
      }
      if (device_.rows == 0) return absl::OkStatus();
      const char* error =
          decode ? emulated::LaunchPagedDecode(device_, scratch_, faults_, target_.stream())
                 : emulated::LaunchBlockAttention(device_, faults_, target_.stream());
      if (error == nullptr && device_.mass != nullptr)
        error = emulated::LaunchAttentionMass(device_, target_.stream());
      return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
    });
    if (!status.ok()) return status;
    const BlockAttentionArgs& a = host_.args();
    Get(device_.out, a.out, floats_);
    Get(device_.log_sum, a.log_sum, a.heads * a.rows);
    Get(device_.mass, a.mass, masses_);
    Get(faults_, &faulted_, 1);
    return status;
  }
  bool faulted() const { return faulted_ != 0; }
  BlockAttentionArgs& device() { return device_; }

 private:
  template <typename T>
  T* Put(const char* what, const T* values, size_t count) {
    if (count == 0) return nullptr;
    return target_.PutArray(what, std::span<const T>(values, count));
  }
  template <typename T>
  void Get(const T* from, T* to, size_t count) {
    if (count > 0 && from != nullptr) std::memcpy(to, target_.Result(from), count * sizeof(T));
  }
  const uint16_t* const* Pages(const char* what, const uint16_t* const* pages) {
    const PagedKv& kv = host_.args().kv;
    // 16-byte aligned ones are a multiple of that long; two bytes more in front spoil it.
    const size_t halves = (kv.kv_heads - 1) * kv.head_stride + kKeyBlock * kv.dim;
    const bool odd = host_.problem().misaligned;
    std::vector<const uint16_t*> at;
    for (size_t p = 0; p < kv.pages; ++p) {
      std::vector<uint16_t> page(halves + (odd ? 8 : 0), 0x7E00);
      std::memcpy(page.data() + (odd ? 1 : 0), pages[p], 2 * halves);
      at.push_back(Put(what, page.data(), page.size()) + (odd ? 1 : 0));
    }
    return Put("pages", at.data(), at.size());
  }

  CudaTarget& target_;
  BlockAttentionProblem& host_;
  BlockAttentionArgs device_;
  float* scratch_ = nullptr;
  uint32_t* faults_ = nullptr;
  uint32_t faulted_ = 0;
  size_t floats_ = 0, masses_ = 0, scratch_floats_ = 0;
};

void Solve(const Targets& targets, const std::vector<BlockAttentionCase>& cases, bool decode) {
  REQUIRE(cases.size() > 20);
  for (const BlockAttentionCase& c : cases) {
    BlockAttentionProblem problem(c);
    std::vector<float> first;  // the same bits in each order
    for (const auto& target : targets) {
      CAPTURE(target->name(), c.Name());
      problem.ClearOutputs();
      OnDevice on(*target, problem);
      REQUIRE_OK(on.Run(decode));
      CHECK(problem.Mismatch(kTolerance) == "");
      CHECK(!on.faulted());
      CHECK(target->bank_conflicts() == 0);
      if (!target->emulated() || c.rows == 0) continue;
      const BlockAttentionArgs& a = problem.args();
      std::vector<float> sums(a.log_sum, a.log_sum + a.heads * a.rows);
      for (float& sum : sums) sum = sum != sum ? 0 : sum;
      if (first.empty()) first = sums;
      CHECK(first == sums);
    }
  }
}

// Lists as they must not be: the kernels say so and touch nothing that isn't theirs.
void FindWrongLists(const Targets& targets) {
  struct Wrong {
    std::vector<uint32_t> begin, blocks;
  };
  // Three blocks of keys are seen.
  for (const Wrong& wrong :
       {Wrong{{0, 2}, {0, 3}}, Wrong{{0, 2}, {0, 0xFFFFFFFF}}, Wrong{{0, 2}, {1, 1}},
        Wrong{{0, 3}, {0, 2, 1}}, Wrong{{3, 2}, {0, 1, 2}}, Wrong{{0, 4}, {0, 1, 2, 3}},
        Wrong{{0xFFFFFFF0, 2}, {0, 1}}}) {
    for (const bool decode : {false, true}) {
      for (const auto& target : targets) {
        BlockAttentionProblem problem({.rows = 10, .begin = 180, .lists = ListKind::kAll});
        CAPTURE(target->name(), decode, wrong.begin, wrong.blocks);
        OnDevice on(*target, problem);
        on.device().lists = {
            target->PutArray("wrong begins", std::span<const uint32_t>(wrong.begin)),
            target->PutArray("wrong blocks", std::span<const uint32_t>(wrong.blocks))};
        on.device().mass = nullptr;
        REQUIRE_OK(on.Run(decode));
        CHECK(on.faulted());
      }
    }
  }
}

}  // namespace

TEST_CASE("BlockSparseAttention's CUDA kernel gives the answers of the cases") {
  Solve(testing::EmulatedTargets(), EmulatedCases(), false);
}
TEST_CASE("PagedDecodeAttention's CUDA kernels give the answers of the cases") {
  Solve(testing::EmulatedTargets(), DecodeAttentionCases(kMostDecodeWork), true);
}
TEST_CASE("the CUDA kernels of attention find lists that are wrong") {
  FindWrongLists(testing::EmulatedTargets());
}

TEST_CASE("attention on a GPU") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  Targets targets;
  targets.push_back(std::move(gpu));
  Solve(targets, BlockAttentionCases(), false);
  Solve(targets, DecodeAttentionCases(), true);
  FindWrongLists(targets);
}

TEST_CASE("CUDA calls of attention name the argument that is wrong") {
  BlockAttentionProblem problem({.rows = 5, .begin = 60});
  BlockAttentionArgs good = problem.args();
  float scratch = 0;
  const auto refused = [&](const char* what, auto change) {
    BlockAttentionArgs a = good;
    change(a);
    CAPTURE(what);
    for (const absl::Status& status :
         {BlockSparseAttentionCuda(a, nullptr, nullptr),
          PagedDecodeAttentionCuda(a, &scratch, size_t{1} << 40, nullptr, nullptr)}) {
      CAPTURE(status.ToString());
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(status.message()).find(what) != std::string::npos);
    }
  };
  refused("kv.dim", [](auto& a) { a.kv.dim = 72; });
  refused("heads", [](auto& a) { a.heads = 0; });
  refused("q is null", [](auto& a) { a.q = nullptr; });
  refused("kv.k is null", [](auto& a) { a.kv.k = nullptr; });
  refused("lists.blocks", [](auto& a) { a.lists.begin = reinterpret_cast<uint32_t*>(64); });
  refused("log_sum", [](auto& a) { a.log_sum = nullptr; });
  CHECK(PagedDecodeAttentionCuda(good, nullptr, 0, nullptr, nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
  BlockAttentionProblem many({.rows = 65, .begin = 60});
  CHECK(PagedDecodeAttentionCuda(many.args(), &scratch, size_t{1} << 40, nullptr, nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
#ifndef SPARKV_HAS_CUDA
  CHECK(BlockSparseAttentionCuda(good, nullptr, nullptr).code() ==
        absl::StatusCode::kUnimplemented);
#endif
}

}  // namespace sparkv::kernels
