// Runs a fuzz target over every file of a corpus folder, without a fuzz engine, then over mutations
// of each (truncations and byte flips from a fixed seed), so that a plain test run covers the
// parser.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {
int Run(const std::vector<uint8_t>& bytes) {
  return LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  size_t files = 0;
  size_t runs = 0;
  std::mt19937 rng(1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)),
                               std::istreambuf_iterator<char>());
    ++files;
    Run(bytes);
    for (int i = 0; i < 200 && !bytes.empty(); ++i, ++runs) {
      std::vector<uint8_t> mutant = bytes;
      if (i % 4 == 0) mutant.resize(rng() % mutant.size());
      for (int k = 0; k < 1 + i % 3 && !mutant.empty(); ++k) {
        mutant[rng() % mutant.size()] = static_cast<uint8_t>(rng());
      }
      Run(mutant);
    }
  }
  std::printf("%zu corpus files, %zu mutations, no crash\n", files, runs);
  return files == 0 ? 1 : 0;
}
