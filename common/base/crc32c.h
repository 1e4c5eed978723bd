// CRC-32C (Castagnoli, reflected 0x82F63B78, as in RFC 3720 appendix B.4). Thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace sparkv {

// The CRC of `bytes` appended to data whose CRC is `crc` (0 for none).
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0);

}  // namespace sparkv
