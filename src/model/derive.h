// Figures derived from the values of a layer or an end (model/layer.h). Norms, products and the residual
// stream count alike for every part; MixerFigures adds the mixer's share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer.h"
#include "model/parameter.h"

namespace sluice::model {

// Order: a part's first norm, its weights, its second norm; after all parts the adapters.
std::vector<Parameter> parameters_of(const Layer& layer);
std::vector<Parameter> parameters_of(const Embedding& embedding);
std::vector<Parameter> parameters_of(const Head& head);

// The parameter in which transformers' class stacks a matrix of all experts, within the block:
// "mlp.experts.gate_up_proj".
std::string stacked_name(const Weight& weight);

// Whether a module may have adapters: modules whose products may have low precision (adapts), and shared
// experts and latent attention, which compute with adapters but never in low precision.
bool takes_adapters(std::string_view role, bool adapts);
// Whether a target names a stack of experts' matrices by its path or an end of the path: "experts.down_proj",
// but not "down_proj", which is a module of layers without experts.
bool names_stack(std::string_view path, std::string_view target);

// Why TP cannot cut a layer, or "".
std::string tp_fault_of(const Layer& layer, int tp);
// `parameters`: the layer's.
TokenWork work_of(const Layer& layer, const std::vector<Parameter>& parameters);
TokenBytes bytes_of(const Layer& layer, const std::vector<Parameter>& parameters, const Cut& cut,
                    int64_t element_bytes);
// An MTP layer's forward and backward, which both run within the head's forward. `output`: the head's matrix.
// `saved` are bytes that stay from its forward to its backward.
TokenWork work_of(const MtpLayer& mtp, const Weight& output);
TokenBytes bytes_of(const MtpLayer& mtp, const Cut& cut, int64_t element_bytes);
CacheBytes cache_of(const Layer& layer, const Cut& cut, int64_t element_bytes);

// Widths, in elements, and sizes of numbers with which a rank works on a part's rows.
struct AtWork {
  int tp = 1;
  int64_t element = 4, statistic = 4;  // bytes
  int64_t hidden = 0;
  int64_t gathered = 0;  // width of a gathered row; 0 without TP
  int64_t shard = 0;     // this rank's share of a row that TP ranks divide
  int64_t results = 0;   // this rank's width of kept in-product results over all rows
  int64_t out = 0;       // this rank's width of the out products' inputs
  bool travels = false;  // rows visit experts of other lanes
  bool keeps_visits = true;

  int64_t of_rank(int64_t width) const { return (width + tp - 1) / tp; }
  // Elements after the mixer's backward, with `held` elements still in memory: the larger of the input
  // gradient's product and the norm's backward.
  int64_t behind(int64_t held) const { return held + std::max(gathered + shard, 3 * shard); }
};

// Bytes of a row: the part that TP ranks divide, and the part that each rank has for every row.
struct RowBytes {
  int64_t shared = 0;
  int64_t own = 0;
  int64_t of_rank(int tp) const { return (shared + tp - 1) / tp + own; }
  RowBytes& operator+=(const RowBytes& other) {
    shared += other.shared;
    own += other.own;
    return *this;
  }
};

// A mixer's figures for a token, beyond those of its part's weights (TokenWork, TokenBytes).
struct MixerFigures {
  int64_t products = 0;  // not counted by a weight's product
  int64_t attention = 0, window = 0, scanned = 0, elements = 0;
  bool makes_out_again = true;  // recomputation repeats the out product, too
  RowBytes saved;
  RowBytes border;  // part of saved that recomputation cannot make again
  RowBytes until_weight;
  int64_t recomputed = 0;  // beyond saved minus border
  int64_t forward = 0, backward = 0, ring_backward = 0;
  int64_t released = 0;  // part of saved that is freed before the backward of earlier parts
  CacheBytes cache;
};

MixerFigures figures_of(const Attention& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const LatentAttention& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const DeltaRule& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const Mamba2& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const Gla& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const Kda& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const ShortConvolution& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const Mlp& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const RoutedExperts& own, const Part& part, const AtWork& at);
MixerFigures figures_of(const LayerInput& own, const Part& part, const AtWork& at);

std::string tp_fault_of(const Attention& own, int tp);
std::string tp_fault_of(const LatentAttention& own, int tp);
std::string tp_fault_of(const StateHeads& own, int tp);
std::string tp_fault_of(const Mlp& own, int tp);
std::string tp_fault_of(const RoutedExperts& own, int tp);
std::string tp_fault_of(const LayerInput& own, int tp);

// Whether one product yields all inputs of a recurrence, in the row order of files.
bool is_parted(const Part& part);

}  // namespace sluice::model
