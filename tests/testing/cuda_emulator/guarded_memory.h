// Memory between two pages that must not be touched, for what an emulated kernel reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sparkv::testing {

// kEnd: the memory ends at the upper page, so that any access behind it is a fault. kStart: it
// starts at the lower one, so that any access before it is. What is left of the first and last page
// holds a pattern that tells of writes. The alignment may leave a few such bytes at the edge, too.
class GuardedMemory {
 public:
  enum class Edge { kEnd, kStart };

  // The bytes are `fill`. alignment: a power of two, at most a page.
  GuardedMemory(std::string name, size_t bytes, size_t alignment = 1, Edge edge = Edge::kEnd,
                uint8_t fill = 0xCD);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  const std::string& name() const { return name_; }

  // False when the pattern around the memory was written over.
  bool SlackIntact() const;

  // The memory that exists now in whose pages or the two around them an address lies; else nullptr.
  // Allocates nothing.
  static const GuardedMemory* Near(const void* address);

  // "byte 12 of 'words' (12 bytes)"
  std::string Describe(const void* address) const;

  // The name of some memory whose pattern was written over, or empty.
  static std::string Damaged();

 private:
  std::string name_;
  size_t bytes_;
  uint8_t* pages_;  // between the two
  size_t page_bytes_;
  uint8_t* data_;
};

}  // namespace sparkv::testing
