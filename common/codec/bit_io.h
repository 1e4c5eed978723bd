// Bit strings as in FORMAT.md: from the least significant bit of each byte upwards.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>

namespace sparkv {

// Reads fields of up to 16 bits from a byte range. Any bytes are safe.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  // False when the bytes run out.
  bool Read(int bits, uint32_t* value) {
    while (filled_ < bits) {
      if (next_ == bytes_.size()) return false;
      pool_ |= uint32_t{bytes_[next_++]} << filled_;
      filled_ += 8;
    }
    *value = pool_ & ((1u << bits) - 1);
    pool_ >>= bits;
    filled_ -= bits;
    return true;
  }
  // An Elias gamma code, n zeros, a one, the n bits below a number's leading one: a number of at
  // least 1. False when the bytes run out or n is above max_bits (at most 15).
  bool ReadGamma(int max_bits, uint32_t* value) {
    int n = 0;
    uint32_t bit = 0;
    while (Read(1, &bit) && bit == 0) {
      if (++n > max_bits) return false;
    }
    uint32_t low = 0;
    if (bit == 0 || (n > 0 && !Read(n, &low))) return false;
    *value = 1u << n | low;
    return true;
  }
  size_t bytes_read() const { return next_; }
  bool filling_is_zero() const { return pool_ == 0; }

 private:
  std::span<const uint8_t> bytes_;
  size_t next_ = 0;
  uint32_t pool_ = 0;
  int filled_ = 0;
};

// Appends fields of up to 24 bits.
class BitWriter {
 public:
  void Write(uint32_t value, int bits) {
    pool_ |= uint64_t{value} << filled_;
    filled_ += bits;
    while (filled_ >= 8) Flush8();
  }
  void WriteGamma(uint32_t value) {
    const int n = static_cast<int>(std::bit_width(value)) - 1;
    Write(0, n);
    Write(1, 1);
    Write(value & ((1u << n) - 1), n);
  }
  // The bytes so far, filled up with 0 bits.
  std::string Take() {
    if (filled_ > 0) Flush8();
    return std::move(out_);
  }

 private:
  void Flush8() {
    out_.push_back(static_cast<char>(pool_ & 0xFF));
    pool_ >>= 8;
    filled_ = filled_ > 8 ? filled_ - 8 : 0;
  }
  uint64_t pool_ = 0;
  int filled_ = 0;
  std::string out_;
};

}  // namespace sparkv
