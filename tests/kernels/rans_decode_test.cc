// Each twin, the CUDA kernel among them, against an encoder written from common/codec/FORMAT.md
// section 3, on streams that are right and streams that are not.
#include "kernels/rans_decode.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/rans_cuda.h"
#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"
#include "tests/kernels/rans_stream.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

std::vector<uint8_t> Bytes(const void* from, size_t bytes) {
  const auto* const first = static_cast<const uint8_t*>(from);
  return {first, first + bytes};
}

struct Job {
  RansStream stream;
  int shift = 0;
  bool right = false;      // must be decoded, to its symbols; else: as the scalar twin does
  bool half_word = false;  // a byte more than the words have
};

std::vector<uint8_t> WordBytes(const Job& job) {
  std::vector<uint8_t> bytes = Bytes(job.stream.words.data(), 2 * job.stream.words.size());
  if (job.half_word) bytes.push_back(0);
  return bytes;
}

struct Result {
  bool ok = false;
  std::vector<uint8_t> out;
};

// What lies where symbols are written, before.
uint8_t Background(size_t i) { return static_cast<uint8_t>(i * 37 + 11); }

// With guards on both sides of the output; the input is copied to blocks of just its size, so that
// AddressSanitizer sees a read beyond.
Result DecodeOnCpu(bool (*twin)(const RansInput&, uint8_t*), const Job& job) {
  const RansStream& s = job.stream;
  std::vector<RansTable> tables(s.frequencies.size());
  for (size_t t = 0; t < tables.size(); ++t) tables[t].Build(s.frequencies[t]);
  const std::vector<uint8_t> all_words = WordBytes(job);
  const size_t state_bytes = 4 * s.states.size(), word_bytes = all_words.size();
  const auto states = std::make_unique<uint8_t[]>(state_bytes);
  const auto words = std::make_unique<uint8_t[]>(word_bytes);
  std::copy_n(reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes, states.get());
  std::copy_n(all_words.data(), word_bytes, words.get());
  RansInput in;
  in.tables = tables;
  in.table_of_run = s.table_of_run;
  in.length = s.length;
  in.states = {states.get(), state_bytes};
  in.words = {words.get(), word_bytes};
  in.shift = job.shift;
  constexpr size_t kGuard = 64;
  constexpr uint8_t kGuardByte = 0xDB;
  std::vector<uint8_t> out(s.symbols.size() + 2 * kGuard, kGuardByte);
  for (size_t i = 0; i < s.symbols.size(); ++i) out[kGuard + i] = Background(i);
  Result r;
  r.ok = twin(in, out.data() + kGuard);
  const auto untouched = [](uint8_t b) { return b == kGuardByte; };
  REQUIRE(std::all_of(out.begin(), out.begin() + kGuard, untouched));
  REQUIRE(std::all_of(out.end() - kGuard, out.end(), untouched));
  r.out.assign(out.begin() + kGuard, out.end() - kGuard);
  return r;
}

// All jobs in one launch; every other stream lies at odd addresses.
std::vector<Result> DecodeByCuda(CudaTarget& target, const std::vector<Job>& jobs) {
  std::vector<RansCudaStream> streams;
  for (const Job& job : jobs) {
    const RansStream& s = job.stream;
    const bool odd = streams.size() % 2 == 1;
    std::vector<uint16_t> starts;
    for (const auto& table : s.frequencies) {
      uint32_t start = 0;
      for (const uint32_t f : table) {
        starts.push_back(static_cast<uint16_t>(start));
        start += f;
      }
    }
    std::vector<uint8_t> background(s.symbols.size());
    for (size_t i = 0; i < background.size(); ++i) background[i] = Background(i);
    RansCudaStream in;
    in.starts = target.PutArray<uint16_t>("starts", starts);
    in.table_of_run = target.Put("table_of_run", s.table_of_run, odd);
    in.states = target.Put("states", Bytes(s.states.data(), 4 * s.states.size()), odd);
    in.words = target.Put("words", WordBytes(job), odd);
    in.out = target.Put("out", background, odd);
    in.alphabet = static_cast<uint32_t>(s.frequencies[0].size());
    in.runs = static_cast<uint32_t>(s.table_of_run.size());
    in.length = s.length;
    in.state_bytes = static_cast<uint32_t>(4 * s.states.size());
    in.word_bytes = static_cast<uint32_t>(WordBytes(job).size());
    in.shift = static_cast<uint32_t>(job.shift);
    streams.push_back(in);
  }
  const auto* const all = target.PutArray<RansCudaStream>("streams", streams);
  uint8_t* const ok = target.Put("ok", std::vector<uint8_t>(jobs.size(), 7), false);
  const auto count = static_cast<uint32_t>(jobs.size());
  REQUIRE_OK(target.Run([&] {
    if (!target.emulated()) return RansDecodeCuda(all, count, ok, target.stream());
    const char* const error = emulated::LaunchRansDecode(all, count, ok, target.stream());
    return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
  }));
  std::vector<Result> results(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const uint8_t verdict = target.Result(ok)[i];
    REQUIRE(verdict <= 1);
    results[i].ok = verdict == 1;
    results[i].out = Bytes(target.Result(streams[i].out), jobs[i].stream.symbols.size());
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
  void Decode(RansStream stream, int shift) { Add({std::move(stream), shift, true, false}); }
  // `stream` may be wrong; refused() counts those that were refused.
  void Judge(RansStream stream, bool half_word = false) {
    Add({std::move(stream), 0, false, half_word});
  }

  size_t judged() const { return judged_; }
  size_t refused() const { return refused_; }

  // The last jobs.
  void Finish() {
    if (jobs_.empty()) return;
    std::vector<Result> scalar;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Job& job = jobs_[i];
      CAPTURE(job.stream.length, job.stream.frequencies[0].size(), job.shift);
      scalar.push_back(DecodeOnCpu(RansDecodeScalar, job));
      if (job.right) {
        REQUIRE(scalar[i].ok);
        REQUIRE(scalar[i].out == Wanted(job));
      } else {
        ++judged_;
        refused_ += scalar[i].ok ? 0 : 1;
      }
      Compare("RansDecode", job, scalar[i], DecodeOnCpu(RansDecode, job));
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

  static std::vector<uint8_t> Wanted(const Job& job) {
    std::vector<uint8_t> want = job.stream.symbols;
    for (size_t i = 0; i < want.size() && job.shift != 0; ++i) {
      want[i] = static_cast<uint8_t>(Background(i) << job.shift | want[i]);
    }
    return want;
  }

  static void Compare(const std::string& twin, const Job& job, const Result& scalar,
                      const Result& other) {
    if (scalar.ok == other.ok && (!scalar.ok || scalar.out == other.out)) return;
    CAPTURE(twin, job.stream.length, job.stream.frequencies[0].size(), job.shift);
    REQUIRE(scalar.ok == other.ok);
    REQUIRE(scalar.out == other.out);
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
    for (uint32_t alphabet : {1u, 2u, 3u, 8u, 15u, 16u, 17u, 64u, 256u}) {
      const RansStream s = RandomRansStream(rng, alphabet, 3, 7, length);
      twins.Decode(s, 0);
      twins.Decode(s, 1 + static_cast<int>((length + alphabet) % 8));
    }
  }
  for (uint32_t length : {127u, 128u, 1000u, 1024u}) {
    for (uint32_t alphabet : {16u, 256u}) {
      for (int shift = 0; shift <= 8; ++shift) {
        twins.Decode(RandomRansStream(rng, alphabet, 5, 20, length), shift);
      }
    }
  }
  twins.Finish();
}

void RestoreManyTables(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(2);
  for (uint32_t tables = 1; tables <= 64; ++tables) {
    twins.Decode(RandomRansStream(rng, 16, tables, tables + 10, 70), 0);
    twins.Decode(RandomRansStream(rng, 100, tables, tables + 10, 70), 4);
  }
  twins.Finish();
}

void FindEverySlot(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(3);
  for (uint32_t alphabet : {16u, 256u}) {
    for (int round = 0; round < 10; ++round) {
      // A state per slot, 32 at a time; the words after them are whatever they are.
      const std::vector<uint32_t> f = RandomFrequencies(rng, alphabet);
      for (uint32_t slot = 0; slot < kRansFrequencySum; slot += kRansLanes) {
        RansStream s;
        s.length = kRansLanes;
        s.frequencies = {f};
        s.table_of_run = {0};
        for (uint32_t i = 0; i < kRansLanes; ++i) {
          uint32_t left = slot + i, symbol = 0;
          while (left >= f[symbol]) left -= f[symbol++];
          s.symbols.push_back(static_cast<uint8_t>(symbol));
        }
        EncodeRans(&s);
        twins.Decode(s, 0);
      }
    }
  }
  twins.Finish();
}

void TakeNoWordAtTheBound(const Targets& targets) {
  Twins twins(targets);
  // Half the slots each: a symbol 0 halves the state, so that every 16th leaves exactly the bound,
  // also far from the end, where a fast twin works on whole groups.
  for (uint32_t alphabet : {2u, 17u}) {
    RansStream s;
    s.length = kRansLanes * 16 * 4;
    s.frequencies = {std::vector<uint32_t>(alphabet)};
    s.frequencies[0][0] = s.frequencies[0][1] = kRansFrequencySum / 2;
    s.table_of_run = {0, 0};
    s.symbols.assign(2 * s.length, 0);
    EncodeRans(&s);
    REQUIRE(s.words.size() == kRansLanes * 8);
    twins.Decode(s, 0);
  }
  twins.Finish();
}

void RefuseWrongSizes(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(4);
  for (uint32_t length : {1u, 31u, 32u, 33u, 96u, 100u}) {
    for (uint32_t alphabet : {16u, 200u}) {
      RansStream good = RandomRansStream(rng, alphabet, 4, 9, length);
      twins.Decode(good, 0);
      for (size_t cut = 1; cut <= good.words.size(); ++cut) {
        RansStream s = good;
        s.words.resize(s.words.size() - cut);
        twins.Judge(s);
      }
      for (size_t more : {size_t{1}, size_t{8}, size_t{40}, size_t{200}}) {
        RansStream s = good;
        s.words.resize(s.words.size() + more);
        twins.Judge(s);
      }
      twins.Judge(good, true);
      RansStream small;  // not every stream can start so
      do {
        small = RandomRansStream(rng, alphabet, 4, 9, length);
        small.words.clear();
        EncodeRans(&small, true);
      } while (small.states[0] >= kRansLowerBound);
      twins.Judge(small);
      for (size_t lane = 0; lane < good.states.size(); ++lane) {
        RansStream s = good;
        s.states[lane] = kRansLowerBound - 1;
        twins.Judge(s);
        s.states[lane] = 0;
        twins.Judge(s);
      }
      RansStream s = good;
      s.states.push_back(kRansLowerBound);
      twins.Judge(s);
      s.states.resize(good.states.size() - 1);
      twins.Judge(s);
    }
  }
  twins.Finish();
  CHECK(twins.refused() == twins.judged());
}

void AgreeOnDamage(const Targets& targets) {
  Twins twins(targets);
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    const uint32_t alphabet = round % 2 == 0 ? 16 : 256;
    const uint32_t tables = 1 + rng() % 4, runs = 1 + rng() % 6, length = 1 + rng() % 100;
    RansStream s = RandomRansStream(rng, alphabet, tables, runs, length);
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
      twins.Decode(RandomRansStream(rng, 1 + rng() % 40, 2, 2, 1 + rng() % 40), 0);
    }
    twins.Finish();
  }
}

}  // namespace

TEST_CASE("the rANS twins restore every length, alphabet and shift") {
  RestoreEveryLength(testing::EmulatedTargets());
}
TEST_CASE("the rANS twins restore runs of 1 to 64 tables") {
  RestoreManyTables(testing::EmulatedTargets());
}
TEST_CASE("the rANS twins find the symbol of every slot") {
  FindEverySlot(testing::EmulatedTargets());
}
TEST_CASE("the rANS twins take no word at the lower bound itself") {
  TakeNoWordAtTheBound(testing::EmulatedTargets());
}
TEST_CASE("the rANS twins refuse streams cut short, with words left over, or of other states") {
  RefuseWrongSizes(testing::EmulatedTargets());
}
TEST_CASE("the rANS twins agree on every damaged stream") {
  AgreeOnDamage(testing::EmulatedTargets());
}

TEST_CASE("the rANS kernel decodes one stream and thousands in a launch") {
  DecodeFewAndMany(testing::EmulatedTargets());
}

TEST_CASE("the rANS kernel on a GPU does as the other twins") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  INFO(gpu->name());
  Targets targets;
  targets.push_back(std::move(gpu));
  RestoreEveryLength(targets);
  RestoreManyTables(targets);
  FindEverySlot(targets);
  TakeNoWordAtTheBound(targets);
  RefuseWrongSizes(targets);
  AgreeOnDamage(targets);
  DecodeFewAndMany(targets);
}

}  // namespace sparkv::kernels
