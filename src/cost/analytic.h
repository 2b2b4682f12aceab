// A cost model from a few attained rates, where nothing was profiled.
//
// Times of one layer for a micro-batch of tokens n with sequences l, on one of tp ranks, e bytes an element:
//   products     2·(matrix elements of a layer) / tp FLOPs a token in forward, as many in the input gradient
//                and in the weight gradient;
//   attention    2·q_width·l² / tp FLOPs forward (two products over half the square), 5/2 of that backward
//                (five products), all of it in the input gradient; at the rate of the narrowest kernel that
//                holds a head, R·l/(l + h), so that h tokens more a token are part of b;
//   elementwise  e·(10·hidden + 2·(q_width + kv_width) + 3·ffn) / tp bytes a token forward (two norms, two
//                sums, rotation, SwiGLU; each value read or written once), twice that in the input gradient;
//                norms of queries and keys add 2·(q_width + kv_width);
//   collectives  with tp > 1 each moves e·hidden·(tp − 1)/tp bytes a token through a rank's link: four in
//                forward (gather and reduce-scatter around attention and MLP), four in the input gradient,
//                four gathers in the weight gradient.
// What passes of text generation take: rows' products or the matrices' bytes read, whichever takes longer
// (of experts those that some row visits, if each visits any alike); elementwise traffic and collectives as
// above; a key's bytes read for a row, 4·q_width FLOPs a pair; a state read and written.
// Narrow products of 8 bits take a part of the time, and elementwise traffic that reads what is rounded and
// writes it: a token's operands, and the matrices in forward and input gradient.
// l² terms make a; bytes and FLOPs a token make b; latencies and overheads make c. The head has three
// products (logits and two gradients); embedding and head gather or scatter once each way.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cost/cost_model.h"
#include "cost/device_rates.h"
#include "strategy/cluster.h"

namespace sluice::cost {

// What one device attains. 1 FLOP/ns is 1 GFLOP/s, 1 byte/ns is 1 GB/s.
struct Rates {
  double product_flops_per_ns = 30;
  double attention_forward_flops_per_ns = 20;  // without kernels, of any width and length
  double attention_backward_flops_per_ns = 20;
  std::vector<AttentionKernel> attention_kernels = {};  // by width
  double elementwise_bytes_per_ns = 4;
  double memory_bytes_per_ns = 8;  // read from a device's memory
  // Of products whose operands were rounded to 8 bits, over those above. On an AVX2 core whole numbers of 8
  // bits are assumed at 1.4 times, of which rounding leaves 1.0 to 1.3
  // (bench/results/low_precision_gemms.md).
  double int8_speedup = 1.4;
  double float8_speedup = 1;
  double layer_overhead_ns = 50e3;  // of each pass over a layer, whatever the tokens
  double ring_step_ns = 0;          // at least, of a step of ring attention in a layer's forward pass
  double decode_overhead_ns = 0;    // of one that generates a token; 0: as of any other
  strategy::LinkSpeed collective{.bytes_per_ns = 1, .latency_ns = 50e3};  // of a TP group; bytes of a rank
  strategy::LinkSpeed intra_node{.bytes_per_ns = 1, .latency_ns = 24e3};
  strategy::LinkSpeed inter_node{.bytes_per_ns = 1, .latency_ns = 24e3};
  std::vector<strategy::LinkSpeed> beyond;  // between larger groups of nodes, by size of these
  strategy::LinkSpeed host{.bytes_per_ns = 5, .latency_ns = 5e3};  // copies to and from host memory
  double update_ns_per_element = 2;
  double code_ns_per_element = 1;  // a number coded for the wire, and one read

  // That ranks meet over on a level of the topology.
  const strategy::LinkSpeed& link(int level) const {
    return level == 0 ? intra_node : level == 1 ? inter_node : beyond[static_cast<size_t>(level - 2)];
  }
};

// The rates of a described cluster: its devices' kernels (cost/device_rates.h) in proportion to the products
// that the cluster says they attain. CPUs, which nobody measured, attain 60 % of products in attention forward
// and 45 % backward, and 20 launches of 5 µs are a layer's pass. A token that is said is 20 launches a layer
// everywhere.
Rates rates_of(const strategy::Cluster& cluster);
// A device's even part of its node's host memory.
int64_t host_bytes_of(const strategy::Cluster& cluster);

// What a rank has of an operation while texts are said: all of it; what is beside the experts of its layer,
// the router included; or a lane's even part of the experts alone, to which the rows of all lanes come.
enum class DecodeShare : uint8_t { kAll, kBesideExperts, kExperts };
// REQUIRES: lanes divide the experts, where they are meant.
DecodeCost analytic_decode(const model::Kind& kind, const model::Shape& shape, const Rates& rates,
                           int64_t element_bytes, int tp, DecodeShare share, int lanes = 1);

struct AnalyticMemory {
  int64_t device_bytes = 0;  // margin already taken off
  int64_t element_bytes = 4;
  int64_t accumulator_bytes = 4;
  int64_t owner_bytes_per_parameter = 16;
  int64_t logits_chunk_bytes = int64_t{16} << 20;  // logits of one chunk and their gradients
  int64_t host_bytes = 0;                          // of host memory, a rank's part; 0: not minded
  int64_t master_bytes = 0;                        // MemoryModel's
};

// A calibration's source: "assumed rates of WHERE", and where nobody computes the model that it is counted.
std::string analytic_source(const model::Shape& shape, const std::string& where);

// REQUIRES: rates are positive, `beyond` of the topology's larger groups; every degree cuts the shape
// (model::tp_fault).
CostModel::Options analytic_options(const model::Shape& shape, const Rates& rates,
                                    const AnalyticMemory& memory, std::span<const int> tp_degrees,
                                    const strategy::Topology& topology);

}  // namespace sluice::cost
