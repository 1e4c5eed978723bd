#include "common/codec/enc_huffman.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/codec/huffman_common.h"

namespace sparkv {
namespace {

// Depths of the leaves of Huffman's tree; ties go to the node made first, so that every machine
// builds the same tree.
int TreeDepths(std::span<const uint64_t> counts, std::span<uint8_t> lengths) {
  struct Node {
    uint64_t count;
    int left, right;  // -1: a leaf
    uint32_t symbol;
  };
  std::vector<Node> nodes;
  for (uint32_t s = 0; s < counts.size(); ++s) {
    if (counts[s] > 0) nodes.push_back({counts[s], -1, -1, s});
  }
  std::vector<int> roots(nodes.size());
  for (size_t i = 0; i < roots.size(); ++i) roots[i] = static_cast<int>(i);
  const auto take_least = [&] {
    const auto least = std::min_element(roots.begin(), roots.end(), [&](int a, int b) {
      return std::pair(nodes[a].count, a) < std::pair(nodes[b].count, b);
    });
    const int root = *least;
    roots.erase(least);
    return root;
  };
  while (roots.size() > 1) {
    const int a = take_least();
    const int b = take_least();
    roots.push_back(static_cast<int>(nodes.size()));
    nodes.push_back({nodes[a].count + nodes[b].count, a, b, 0});
  }
  std::vector<uint8_t> depth(nodes.size());
  uint8_t deepest = 0;
  for (size_t i = nodes.size(); i-- > 0;) {  // parents stand behind their children
    if (nodes[i].left < 0) {
      lengths[nodes[i].symbol] = depth[i];
      deepest = std::max(deepest, depth[i]);
    } else {
      depth[nodes[i].left] = depth[nodes[i].right] = static_cast<uint8_t>(depth[i] + 1);
    }
  }
  return deepest;
}

}  // namespace

void HuffmanLengths(std::span<const uint64_t> counts, std::span<uint8_t> lengths) {
  std::fill(lengths.begin(), lengths.end(), uint8_t{0});
  std::vector<uint64_t> scaled(counts.begin(), counts.end());
  while (TreeDepths(scaled, lengths) > kMaxHuffmanLength) {
    for (uint64_t& c : scaled) c = (c + 1) / 2;
  }
}

void EncodeHuffman(size_t n, int bits, const uint8_t* symbols, ByteWriter& out) {
  constexpr size_t kAlphabet = size_t{1} << kMaxHuffmanBits;
  std::array<uint64_t, kAlphabet> counts{};
  for (size_t i = 0; i < n; ++i) ++counts[symbols[i]];
  if (counts[symbols[0]] == n) {
    out.Write<uint8_t>(static_cast<uint8_t>(HuffmanMode::kConstant));
    out.Write<uint8_t>(symbols[0]);
    return;
  }
  const uint32_t alphabet = 1u << bits;
  std::array<uint8_t, kAlphabet> lengths{};
  std::array<uint16_t, kAlphabet> codes{};
  HuffmanLengths({counts.data(), alphabet}, {lengths.data(), alphabet});
  CanonicalCodes(lengths.data(), alphabet, codes.data());
  out.Write<uint8_t>(static_cast<uint8_t>(HuffmanMode::kCodes));
  for (uint32_t s = 0; s < alphabet; s += 2) {
    out.Write<uint8_t>(static_cast<uint8_t>(lengths[s] | lengths[s + 1] << 4));
  }
  uint64_t total = 0;
  for (uint32_t s = 0; s < alphabet; ++s) total += counts[s] * lengths[s];
  std::string bytes;
  bytes.reserve((total + 7) / 8);
  uint64_t pool = 0;
  int filled = 0;
  for (size_t i = 0; i < n; ++i) {
    pool |= uint64_t{codes[symbols[i]]} << filled;
    filled += lengths[symbols[i]];
    if (filled < 32) continue;
    for (int b = 0; b < 4; ++b) bytes.push_back(static_cast<char>((pool >> (8 * b)) & 0xFF));
    pool >>= 32;
    filled -= 32;
  }
  for (; filled > 0; filled -= 8, pool >>= 8) bytes.push_back(static_cast<char>(pool & 0xFF));
  out.Write<uint32_t>(static_cast<uint32_t>(bytes.size()));
  out.WriteBytes(bytes);
}

}  // namespace sparkv
