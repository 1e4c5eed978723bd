// What both sides of the residual codecs must agree on; FORMAT.md section 4.6.
#pragma once

#include <cstdint>

namespace sparkv {

inline constexpr uint32_t kMaxResidualPlanes = 5;
inline constexpr uint32_t kEscapeSymbol = 255;
inline constexpr int32_t kMaxSymbolMagnitude = 127;  // that a symbol of the first plane can name
// Of a value of the first plane: four refinements, each to 3|v| + 1 at most, stay within 16 bits.
inline constexpr int32_t kMaxFirstMagnitude = 404;

// The first plane's value of a symbol: 0, -1, 1, -2, 2, ...
inline constexpr int32_t SymbolToValue(uint32_t symbol) {
  const auto half = static_cast<int32_t>((symbol + 1) / 2);
  return (symbol & 1) != 0 ? -half : half;
}
inline constexpr uint32_t ValueToSymbol(int32_t value) {
  return value < 0 ? static_cast<uint32_t>(-2 * value - 1) : static_cast<uint32_t>(2 * value);
}

inline constexpr uint32_t Pow3(uint32_t n) { return n == 0 ? 1 : 3 * Pow3(n - 1); }
// The value `refinements` planes before: of the three values that refine one, the middle one is its
// triple.
template <uint32_t kRefinements>
constexpr int32_t CoarserBy(int32_t value) {
  constexpr auto kFactor = static_cast<int32_t>(Pow3(kRefinements));
  const int32_t magnitude = ((value < 0 ? -value : value) + kFactor / 2) / kFactor;
  return value < 0 ? -magnitude : magnitude;
}
inline constexpr int32_t Coarser(int32_t value, uint32_t refinements) {
  switch (refinements) {
    case 0:
      return value;
    case 1:
      return CoarserBy<1>(value);
    case 2:
      return CoarserBy<2>(value);
    case 3:
      return CoarserBy<3>(value);
    default:
      return CoarserBy<4>(value);
  }
}

// Models of a refinement plane: frequency of a zero becoming +1 ...
inline constexpr uint16_t kZeroToOne[] = {0,   1,   2,   3,   4,   5,   6,    7,   8,   9,   10,
                                          11,  13,  15,  17,  20,  23,  27,   32,  38,  45,  53,
                                          62,  73,  86,  102, 121, 143, 169,  200, 237, 281, 333,
                                          395, 469, 556, 660, 783, 929, 1103, 1309};
inline constexpr uint32_t kZeroModels = sizeof(kZeroToOne) / sizeof(kZeroToOne[0]);
// ... and of another value moving towards zero or staying.
struct OtherModel {
  uint16_t inward, same;
};
inline constexpr OtherModel kOther[] = {{1365, 1366}, {1497, 1361}, {1620, 1350}, {1789, 1325},
                                        {1940, 1293}, {2158, 1233}, {2341, 1170}, {2626, 1050}};
inline constexpr uint32_t kOtherModels = sizeof(kOther) / sizeof(kOther[0]);

// A table or model number, one of m, is written as its difference to another modulo m, in zigzag
// order: z = 0, 1, 2 ... below m for 0, -1, 1 ..., as an Elias gamma code of z + 1.
inline constexpr int kMaxGammaBits = 6;  // below the leading one: m is at most 64

}  // namespace sparkv
