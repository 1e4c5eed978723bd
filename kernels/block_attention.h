// Causal attention over a paged f16 KV cache, dense or by lists of key blocks: the operators of
// prefill (many query rows) and of decode, verification and short questions (1 to 64 rows).
//
// Softmax in f32, online over key blocks (Milakov, Gimelshein 2018; FlashAttention-2, Dao 2023);
// block lists as in SpargeAttention (Zhang et al. 2025): query blocks of kQueryBlock rows, key
// blocks of kKeyBlock keys. A NaN or an infinity in one query row, or in a key or value that only
// some rows see (in their visited blocks, up to their own position), changes no other row. A row
// that sees a NaN in q or k is NaN, one that sees it in v has NaN in that column (but for blocks
// that skip_below leaves out); what depends on an infinity has any value. All functions are
// reentrant; nothing may alias an output.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "kernels/block_attention_args.h"

namespace sparkv::kernels {

// InvalidArgument names the argument that breaks the rules above (block lists and page pointers are
// walked), with what was got and what is allowed.
absl::Status CheckBlockAttention(const BlockAttentionArgs& args);
// The part of it that reads nothing through a pointer, which may be of a device's memory.
absl::Status CheckBlockAttentionShapes(const BlockAttentionArgs& args);

// Calls fn(unit) once for each unit of [0, units), in any order and in any threads, and returns
// when all have returned.
using RunUnits = std::function<void(size_t units, const std::function<void(size_t unit)>& fn)>;
// `run`, or where there is none, one unit after the other on the calling thread.
RunUnits OrInTurn(const RunUnits& run);

// The errors of CheckBlockAttention, and nothing is written then. `run` splits the work (null: this
// thread does it all); results do not depend on how. A row's bits depend on its keys, its list, dim
// and skip_below alone.
absl::Status BlockSparseAttention(const BlockAttentionArgs& args, const RunUnits& run = nullptr);
// The same function for at most kDecodeRows rows, which reads K and V once as they are stored.
// InvalidArgument for more rows.
absl::Status PagedDecodeAttention(const BlockAttentionArgs& args, const RunUnits& run = nullptr);

// The scalar twin of both: the definition, in f64; skips nothing.
absl::Status BlockSparseAttentionScalar(const BlockAttentionArgs& args);

}  // namespace sparkv::kernels
