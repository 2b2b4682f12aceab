// A cost model from a few attained rates, for machines on which nothing was profiled.
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
// Engine steps of text generation: rows' products, or reading the matrices if that takes longer. Experts are
// read if some row visits them; all are equally likely. Elementwise traffic and collectives are as above. A
// key's bytes are read for a row, and a pair takes 4·q_width FLOPs. States are read and written.
// Products of 8-bit operands take a part of the time. Rounding adds elementwise traffic that reads and writes
// a token's operands, and the matrices in forward and input gradient.
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

// Rates that one device attains. 1 FLOP/ns is 1 GFLOP/s, 1 byte/ns is 1 GB/s.
struct Rates {
  double product_flops_per_ns = 30;
  double attention_forward_flops_per_ns = 20;  // without kernels, of any width and length
  double attention_backward_flops_per_ns = 20;
  std::vector<AttentionKernel> attention_kernels = {};  // by width
  double elementwise_bytes_per_ns = 4;
  double memory_bytes_per_ns = 8;  // read from a device's memory
  // Speed of products whose operands are rounded to 8 bits, relative to product_flops_per_ns. INT8 products
  // on an AVX2 core are assumed to be 1.4 times as fast, of which rounding leaves 1.0 to 1.3
  // (bench/results/low_precision_gemms.md).
  double int8_speedup = 1.4;
  double float8_speedup = 1;
  double layer_overhead_ns = 50e3;  // a pass over a layer, whatever the tokens
  double ring_step_ns = 0;          // least time of a ring attention step in a layer's forward pass
  double decode_overhead_ns = 0;    // a layer in an engine step; 0: layer_overhead_ns
  strategy::LinkSpeed collective{.bytes_per_ns = 1, .latency_ns = 50e3};  // in a TP group; bytes of a rank
  strategy::LinkSpeed intra_node{.bytes_per_ns = 1, .latency_ns = 24e3};
  strategy::LinkSpeed inter_node{.bytes_per_ns = 1, .latency_ns = 24e3};
  std::vector<strategy::LinkSpeed> beyond;                         // between groups of nodes, smallest first
  strategy::LinkSpeed host{.bytes_per_ns = 5, .latency_ns = 5e3};  // copies to and from host memory
  double update_ns_per_element = 2;
  double code_ns_per_element = 1;  // coding a number for the wire and decoding it

  // The link between ranks that meet on this level of the topology.
  const strategy::LinkSpeed& link(int level) const {
    return level == 0 ? intra_node : level == 1 ? inter_node : beyond[static_cast<size_t>(level - 2)];
  }
};

// The rates of a described cluster: its devices' kernels (cost/device_rates.h), scaled to the product rate
// that the cluster states. CPUs were not measured: their attention attains 60 % of the product rate in
// forward and 45 % in backward, and a pass over a layer takes 20 launches of 5 µs. Generating a token takes
// 20 launches a layer on every device.
Rates rates_of(const strategy::Cluster& cluster);
// A device's even part of its node's host memory.
int64_t host_bytes_of(const strategy::Cluster& cluster);

// The part of an operation that a rank computes in text generation: all, all beside its layer's experts (with
// the router), or a lane's even part of the experts. All lanes' rows come to the latter.
enum class DecodeShare : uint8_t { kAll, kBesideExperts, kExperts };
// REQUIRES: `lanes` divides the number of experts if `share` is kExperts.
DecodeCost analytic_decode(const model::Kind& kind, const model::Model& model, const Rates& rates,
                           int64_t element_bytes, int tp, DecodeShare share, int lanes = 1);

struct AnalyticMemory {
  int64_t device_bytes = 0;  // margin already taken off
  int64_t element_bytes = 4;
  int64_t accumulator_bytes = 4;
  int64_t owner_bytes_per_parameter = 16;
  int64_t logits_chunk_bytes = int64_t{16} << 20;  // logits of one chunk and their gradients
  int64_t host_bytes = 0;                          // a rank's part of host memory; 0: no limit
  int64_t master_bytes = 0;                        // as in MemoryModel
};

// A calibration's source: "assumed rates of WHERE", with a note if the model is only counted, not computed.
std::string analytic_source(const model::Model& model, const std::string& where);

// REQUIRES: rates are positive; `beyond` has a link for each of the topology's larger groups; every degree
// cuts the model (model::tp_fault).
CostModel::Options analytic_options(const model::Model& model, const Rates& rates,
                                    const AnalyticMemory& memory, std::span<const int> tp_degrees,
                                    const strategy::Topology& topology);

}  // namespace sluice::cost
