// Each twin, the CUDA kernel among them, against an encoder written from common/codec/FORMAT.md
// section 3.1, on streams that are right and streams that are not.
#include "kernels/rans_thirds.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/rans_cuda.h"
#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"
#include "tests/kernels/thirds_stream.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

std::vector<uint8_t> Bytes(const void* from, size_t bytes) {
  const auto* const first = static_cast<const uint8_t*>(from);
  return {first, first + bytes};
}

struct Job {
  ThirdsStream stream;
  bool right = false;      // must be refined to its fine values; else: as the scalar twin does
  bool half_word = false;  // a byte more than the words have
};

std::vector<uint8_t> WordBytes(const Job& job) {
  std::vector<uint8_t> bytes = Bytes(job.stream.words.data(), 2 * job.stream.words.size());
  if (job.half_word) bytes.push_back(0);
  return bytes;
}

struct Result {
  bool ok = false;
  std::vector<int16_t> values;
};

// With guards on both sides of the values; the input is copied to blocks of just its size, so that
// AddressSanitizer sees a read beyond.
Result DecodeOnCpu(bool (*twin)(const ThirdsInput&, int16_t*), const Job& job) {
  const ThirdsStream& s = job.stream;
  const std::vector<uint8_t> all_words = WordBytes(job);
  const size_t state_bytes = 4 * s.states.size(), word_bytes = all_words.size();
  const auto states = std::make_unique<uint8_t[]>(state_bytes);
  const auto words = std::make_unique<uint8_t[]>(word_bytes);
  std::copy_n(reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes, states.get());
  std::copy_n(all_words.data(), word_bytes, words.get());
  constexpr size_t kGuard = 32;
  std::vector<int16_t> values(s.coarse.size() + 2 * kGuard, int16_t{12345});
  std::copy(s.coarse.begin(), s.coarse.end(), values.begin() + kGuard);
  Result r;
  r.ok = twin({s.models, s.length, {states.get(), state_bytes}, {words.get(), word_bytes}},
              values.data() + kGuard);
  const auto untouched = [](int16_t v) { return v == 12345; };
  REQUIRE(std::all_of(values.begin(), values.begin() + kGuard, untouched));
  REQUIRE(std::all_of(values.end() - kGuard, values.end(), untouched));
  r.values.assign(values.begin() + kGuard, values.end() - kGuard);
  return r;
}

// All jobs in one launch; the states and words of every other stream lie at odd addresses.
std::vector<Result> DecodeByCuda(CudaTarget& target, const std::vector<Job>& jobs) {
  std::vector<ThirdsCudaStream> streams;
  for (const Job& job : jobs) {
    const ThirdsStream& s = job.stream;
    const bool odd = streams.size() % 2 == 1;
    ThirdsCudaStream in;
    in.models = target.PutArray<ThirdsModel>("models", s.models);
    in.states = target.Put("states", Bytes(s.states.data(), 4 * s.states.size()), odd);
    in.words = target.Put("words", WordBytes(job), odd);
    in.values = target.PutArray<int16_t>("values", s.coarse);
    in.runs = static_cast<uint32_t>(s.models.size());
    in.length = s.length;
    in.state_bytes = static_cast<uint32_t>(4 * s.states.size());
    in.word_bytes = static_cast<uint32_t>(WordBytes(job).size());
    streams.push_back(in);
  }
  const auto* const all = target.PutArray<ThirdsCudaStream>("streams", streams);
  uint8_t* const ok = target.Put("ok", std::vector<uint8_t>(jobs.size(), 7), false);
  const auto count = static_cast<uint32_t>(jobs.size());
  REQUIRE_OK(target.Run([&] {
    if (!target.emulated()) return RansThirdsCuda(all, count, ok, target.stream());
    const char* const error = emulated::LaunchRansThirds(all, count, ok, target.stream());
    return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
  }));
  std::vector<Result> results(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const uint8_t verdict = target.Result(ok)[i];
    REQUIRE(verdict <= 1);
    results[i].ok = verdict == 1;
    results[i].values.resize(jobs[i].stream.coarse.size());
    std::memcpy(results[i].values.data(), target.Result(streams[i].values),
                2 * results[i].values.size());
  }
  target.Clear();
  return results;
}

// Decodes what it is given by all twins.
class Twins {
 public:
  // batch: streams of a launch. Of 63 the last block lacks a warp.
  explicit Twins(const Targets& targets, size_t batch = 63) : targets_(targets), batch_(batch) {}

  // `stream` is right.
  void Decode(ThirdsStream stream) { Add({std::move(stream), true, false}); }
  // `stream` may be wrong; refused() counts those that were refused.
  void Judge(ThirdsStream stream, bool half_word = false) {
    Add({std::move(stream), false, half_word});
  }

  size_t judged() const { return judged_; }
  size_t refused() const { return refused_; }

  // The last jobs.
  void Finish() {
    if (jobs_.empty()) return;
    std::vector<Result> scalar;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Job& job = jobs_[i];
      CAPTURE(job.stream.length, job.stream.models.size());
      scalar.push_back(DecodeOnCpu(RansThirdsScalar, job));
      if (job.right) {
        REQUIRE(scalar[i].ok);
        REQUIRE(scalar[i].values == job.stream.fine);
      } else {
        ++judged_;
        refused_ += scalar[i].ok ? 0 : 1;
      }
      Compare("RansThirds", job, scalar[i], DecodeOnCpu(RansThirds, job));
    }
    for (const auto& target : targets_) {
      CAPTURE(target->name());
      const std::vector<Result> results = DecodeByCuda(*target, jobs_);
      for (size_t i = 0; i < jobs_.size(); ++i) {
        Compare(target->name(), jobs_[i], scalar[i], results[i]);
      }
    }
    jobs_.clear();
  }

 private:
  void Add(Job job) {
    jobs_.push_back(std::move(job));
    if (jobs_.size() == batch_) Finish();
  }

  static void Compare(const std::string& twin, const Job& job, const Result& scalar,
                      const Result& other) {
    if (scalar.ok == other.ok && (!scalar.ok || scalar.values == other.values)) return;
    CAPTURE(twin, job.stream.length, job.stream.models.size());
    REQUIRE(scalar.ok == other.ok);
    REQUIRE(scalar.values == other.values);
  }

  const Targets& targets_;
  const size_t batch_;
  std::vector<Job> jobs_;
  size_t judged_ = 0, refused_ = 0;
};

// What the twins must do, on whatever they run.

void RestoreEveryLength(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(1);
  for (uint32_t length = 1; length <= 100; ++length) {
    for (const int most : {1, 3, 404, 10922}) {
      twins.Decode(RandomThirdsStream(rng, 7, length, most));
    }
  }
  for (const uint32_t length : {127u, 128u, 1000u, 1024u}) {
    twins.Decode(RandomThirdsStream(rng, 20, length, 404));
  }
  twins.Finish();
}

void FindEverySlot(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(2);
  for (int round = 0; round < 20; ++round) {
    const ThirdsModel m = RandomModel(rng);
    for (const int b : {0, 1, -1, 10922, -10922}) {
      for (uint32_t slot = 0; slot < kRansFrequencySum; slot += kRansLanes) {
        ThirdsStream s;
        s.length = kRansLanes;
        s.models = {m};
        for (uint32_t i = 0; i < kRansLanes; ++i) {
          for (const int c : {-1, 0, 1}) {
            const ThirdsPart p = PartOf(m, b, 3 * b + c);
            if (slot + i < p.start || slot + i >= p.start + p.frequency) continue;
            s.coarse.push_back(static_cast<int16_t>(b));
            s.fine.push_back(static_cast<int16_t>(3 * b + c));
          }
        }
        REQUIRE(s.fine.size() == kRansLanes);
        EncodeThirds(&s);
        twins.Decode(s);
      }
    }
  }
  twins.Finish();
}

void TakeNoWordAtTheBound(const Targets& targets) {
  Twins twins(targets);
  // Half the slots each: a way halves the state, so that every 16th leaves exactly the bound, also
  // far from the end, where a fast twin works on whole groups.
  ThirdsStream s;
  s.length = kRansLanes * 16 * 4;
  s.models = {{2048, 2048, 2047}, {2048, 2048, 2047}};
  s.coarse.assign(2 * s.length, 0);
  s.fine.assign(2 * s.length, 1);
  EncodeThirds(&s);
  REQUIRE(s.words.size() == kRansLanes * 8);
  twins.Decode(s);
  s.coarse.assign(2 * s.length, -5);  // the same by the model of other values
  s.fine.assign(2 * s.length, -14);
  EncodeThirds(&s);
  REQUIRE(s.words.size() == kRansLanes * 8);
  twins.Decode(s);
  twins.Finish();
}

void RefuseWrongSizes(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(4);
  for (const uint32_t length : {1u, 31u, 32u, 33u, 96u, 100u}) {
    const ThirdsStream good = RandomThirdsStream(rng, 9, length, 20);
    twins.Decode(good);
    for (size_t cut = 1; cut <= good.words.size(); ++cut) {
      ThirdsStream s = good;
      s.words.resize(s.words.size() - cut);
      twins.Judge(s);
    }
    for (const size_t more : {size_t{1}, size_t{8}, size_t{40}, size_t{200}}) {
      ThirdsStream s = good;
      s.words.resize(s.words.size() + more);
      twins.Judge(s);
    }
    twins.Judge(good, true);
    ThirdsStream small;  // not every stream can start so
    do {
      small = RandomThirdsStream(rng, 9, length, 20);
      EncodeThirds(&small, true);
    } while (small.states[0] >= kRansLowerBound);
    twins.Judge(small);
    for (size_t lane = 0; lane < good.states.size(); ++lane) {
      for (const uint32_t state : {kRansLowerBound - 1, 0u}) {
        ThirdsStream s = good;
        s.states[lane] = state;
        twins.Judge(s);
      }
    }
    ThirdsStream s = good;
    s.states.push_back(kRansLowerBound);
    twins.Judge(s);
    s.states.resize(good.states.size() - 1);
    twins.Judge(s);
  }
  twins.Finish();
  CHECK(twins.refused() == twins.judged());
}

void AgreeOnDamage(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    ThirdsStream s = RandomThirdsStream(rng, 1 + rng() % 6, 1 + rng() % 100, 30);
    for (uint32_t k = 1 + rng() % 3; k > 0; --k) {
      if (!s.words.empty() && rng() % 2 == 0) {
        s.words[rng() % s.words.size()] ^= static_cast<uint16_t>(1 + rng() % 65535);
      } else if (rng() % 4 == 0) {
        s.states[rng() % s.states.size()] = 0xFFFFFFFF;
      } else {
        s.states[rng() % s.states.size()] ^= 1u << (rng() % 32);
      }
    }
    twins.Judge(std::move(s));
  }
  twins.Finish();
  CHECK(twins.refused() > 2900);  // what is left are flips that undid each other
}

void DecodeFewAndMany(const Targets& targets) {
  std::mt19937 rng(6);
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{5}, size_t{2000}}) {
    Twins twins(targets, count);
    for (size_t i = 0; i < count; ++i) {
      twins.Decode(RandomThirdsStream(rng, 2, 1 + rng() % 40, 30));
    }
    twins.Finish();
  }
}

}  // namespace

TEST_CASE("the THIRDS twins restore every length and magnitude") {
  RestoreEveryLength(testing::EmulatedTargets());
}
TEST_CASE("the THIRDS twins find the way of every slot, of zeros and of both signs") {
  FindEverySlot(testing::EmulatedTargets());
}
TEST_CASE("the THIRDS twins take no word at the lower bound itself") {
  TakeNoWordAtTheBound(testing::EmulatedTargets());
}
TEST_CASE("the THIRDS twins refuse streams cut short, with words left over, or of other states") {
  RefuseWrongSizes(testing::EmulatedTargets());
}
TEST_CASE("the THIRDS twins agree on every damaged stream") {
  AgreeOnDamage(testing::EmulatedTargets());
}
TEST_CASE("the THIRDS kernel decodes one stream and thousands in a launch") {
  DecodeFewAndMany(testing::EmulatedTargets());
}

TEST_CASE("the THIRDS kernel on a GPU does as the other twins") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  INFO(gpu->name());
  Targets targets;
  targets.push_back(std::move(gpu));
  RestoreEveryLength(targets);
  FindEverySlot(targets);
  TakeNoWordAtTheBound(targets);
  RefuseWrongSizes(targets);
  AgreeOnDamage(targets);
  DecodeFewAndMany(targets);
}

}  // namespace sparkv::kernels
