// Block lists as the attention kernels walk them.
#pragma once

#include <cstdint>

#include "kernels/block_attention_args.h"
#include "kernels/cuda_device.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

// The key blocks that a thread block visits.
struct BlockWalk {
  const uint32_t* list;  // null: first, first + 1, ...
  uint32_t first, count;
  uint32_t blocks;  // behind the last that may be visited

  // `blocks` for a number that must not be in the list.
  __device__ __forceinline__ uint32_t At(uint32_t i) const {
    if (list == nullptr) return first + i;
    const uint32_t block = __ldg(list + i);
    return block < blocks ? block : blocks;
  }
};

// The blocks of list number `row`, of which the rows see `blocks`. *fault becomes true, and the
// list is empty or shorter, when it isn't as BlockLists says.
__device__ __forceinline__ BlockWalk WalkOf(const BlockLists& lists, uint32_t list_count,
                                            uint32_t row, uint32_t blocks, bool* fault) {
  if (lists.begin == nullptr) return {nullptr, 0, blocks, blocks};
  const uint32_t begin = __ldg(lists.begin + row), end = __ldg(lists.begin + row + 1);
  *fault = end < begin || end > __ldg(lists.begin + list_count) || end - begin > blocks;
  return {lists.blocks + begin, 0, *fault ? 0 : end - begin, blocks};
}

// Sets *faults when entry i of a list is out of range or not above the one before.
__device__ __forceinline__ void CheckEntry(const BlockWalk& walk, uint32_t i, uint32_t* faults) {
  if (walk.list == nullptr || faults == nullptr) return;
  const uint32_t block = __ldg(walk.list + i);
  if (block >= walk.blocks || (i > 0 && block <= __ldg(walk.list + i - 1))) *faults = 1;
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
