// What a load costs and what a plan says: for each column t the depth D_t of its computed prefix of
// layers, and the order in which the other blocks are streamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/kv/geometry.h"

namespace sparkv {

// Seconds of compute, measured on the device.
struct ComputeCosts {
  double proj_row = 0;        // PROJ of one token in one layer
  double dense_row = 0;       // ATTN of one token in one layer without its attention over history
  double attend_row_key = 0;  // attention of one token over one key in one layer
  double query_layer = 0;     // fixed part of QUERY(l)
  double query_row = 0;       // QUERY(l) for each query token, attention over history apart

  double Project(uint32_t rows) const { return proj_row * rows; }
  // ATTN of `rows` tokens that begin at position `begin`: row i sees begin + i + 1 keys.
  double Attend(uint32_t begin, uint32_t rows) const {
    const double keys = static_cast<double>(rows) * (begin + (rows + 1) / 2.0);
    return dense_row * rows + attend_row_key * keys;
  }
  double Query(uint32_t context, uint32_t rows) const {
    return query_layer + (query_row + attend_row_key * context) * rows;
  }
};

// A load as the planner sees it.
struct LoadProblem {
  uint32_t layers = 0;
  std::vector<uint32_t> column_tokens;  // [columns]
  std::vector<uint64_t>
      block_bytes;  // [columns][layers] at the level in use; 0: cannot be streamed, 1: is held here
  ComputeCosts compute;
  // [columns][layers] seconds of ATTN, where a device profile predicts them; empty: as `compute`.
  std::vector<double> attend_seconds;
  // Measured over predicted seconds of this device now: all of compute, and decoding, takes so
  // much longer.
  double slowdown = 1;
  double link_bytes_per_s = 0;  // 0: no link
  double rtt_s = 0;
  double decode_s_per_byte = 0;  // codec time of streamed bytes, on the decode worker
  double decode_share = 1;       // of it that compute loses: 1 / threads
  double final_row = 0;          // seconds of FINAL of one token in one streamed layer, of compute
  // Layer 0 is never sent: it is computed whatever the plan (its block_bytes are 0).
  bool first_layer_local = false;
  // A column is computed in all layers or in none but the first: what is streamed above a computed
  // block would be predicted from another base than the encoder's, by more than the level's error.
  bool whole_columns = false;
  uint32_t query_tokens = 0;  // 0: nothing is asked after the load

  uint32_t columns() const { return static_cast<uint32_t>(column_tokens.size()); }
  uint64_t bytes(uint32_t t, uint32_t l) const { return block_bytes[size_t{t} * layers + l]; }
  uint32_t begin(uint32_t t) const { return t * kColumnTokens; }
  uint32_t tokens() const;
  double ProjectSeconds(uint32_t t) const { return slowdown * compute.Project(column_tokens[t]); }
  double AttendSeconds(uint32_t t, uint32_t l) const {
    return slowdown * (attend_seconds.empty() ? compute.Attend(begin(t), column_tokens[t])
                                              : attend_seconds[size_t{t} * layers + l]);
  }
  double FinalSeconds(uint32_t t) const { return slowdown * final_row * column_tokens[t]; }
  // QUERY of one layer; 0 without a query.
  double QuerySeconds() const {
    return query_tokens > 0 ? slowdown * compute.Query(tokens(), query_tokens) : 0;
  }
  // Of the decode worker, and what compute loses by it.
  double DecodeSeconds(double bytes) const { return slowdown * decode_s_per_byte * bytes; }
  double DecodeCharge(double bytes) const { return decode_share * DecodeSeconds(bytes); }
  // Layers of a column that are computed in any plan.
  uint32_t least_depth() const { return first_layer_local ? 1 : 0; }
  bool DepthAllowed(uint32_t depth) const {
    return depth >= least_depth() && (!whole_columns || depth <= 1 || depth == layers);
  }
};

struct BlockRef {
  uint32_t column = 0;
  uint32_t layer = 0;
  bool operator==(const BlockRef&) const = default;
};

struct LoadPlan {
  std::string policy;
  std::vector<uint32_t> depth;   // D_t: layers [0, D_t) of column t are computed here
  std::vector<BlockRef> order;   // the other blocks, in the order of the stream
  bool pipelined_query = true;   // QUERY(l) may run before the last block is there
  double predicted_s = 0;        // TTFT without queue and look-up; 0: the policy predicts nothing
  double lower_bound_s = 0;      // the same with fractional depths and no dependencies
};

// Seconds to compute layers [0, depth) of column t: PROJ of each, ATTN of all but the top one.
double PrefixSeconds(const LoadProblem& problem, uint32_t t, uint32_t depth);

// The same and FINAL of all streamed layers above: what column t takes of the device.
double ColumnSeconds(const LoadProblem& problem, uint32_t t, uint32_t depth);

// ColumnSeconds of every column and depth, summed once.
class ColumnTable {
 public:
  explicit ColumnTable(const LoadProblem& problem);
  double operator()(uint32_t t, uint32_t depth) const {
    return seconds_[size_t{t} * (layers_ + 1) + depth];
  }

 private:
  const uint32_t layers_;
  std::vector<double> seconds_;  // [columns][layers + 1]
};

// TTFT when both sides are busy all the time, of plans with `computed` = the sum of ColumnSeconds
// and `left` streamed bytes; infinite when they cannot be streamed:
//   max( rtt + left/r + decode of one item + FINAL of one block + the last QUERY,
//        computed + QUERY of all layers + compute's share of the decoding of what is left )
class BusyTime {
 public:
  explicit BusyTime(const LoadProblem& problem);
  double operator()(double computed, double left) const;

 private:
  double link_bytes_per_s_;
  double after_last_byte_;  // round trip included
  double query_;            // of all layers
  double charge_;           // compute's seconds for the decoding of a byte
};
// The same of a depth for each column.
double ProfileSeconds(const LoadProblem& problem, const std::vector<uint32_t>& depth);

// The nearest depth that the problem allows, for each column.
void FitDepths(const LoadProblem& problem, std::vector<uint32_t>* depth);

// Bytes that should be under way on the link: what one round trip holds, but at least some blocks,
// so that the link never runs dry, and no more, so that a cancelled block is hardly ever on its way
// already. 0 without a link.
uint64_t FetchWindowBytes(const LoadProblem& problem);

}  // namespace sparkv
