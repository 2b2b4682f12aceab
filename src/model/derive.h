// Figures that follow from the values of a layer or an end (model/layer.h). The frame of norms, products and
// the residual stream counts alike for every part; what a mixer adds is in its MixerFigures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer.h"
#include "model/parameter.h"

namespace sluice::model {

// A part's first norm, its weights, its second norm; behind all parts the adapters.
std::vector<Parameter> parameters_of(const Layer& layer);
std::vector<Parameter> parameters_of(const Embedding& embedding);
std::vector<Parameter> parameters_of(const Head& head);

// The parameter that transformers' class stacks an experts' matrix in, within the block:
// "mlp.experts.gate_up_proj".
std::string stacked_name(const Weight& weight);

// Whether a module may have adapters: those whose products may be narrow (adapts), shared experts and latent
// attention's, which compute with adapters but never narrowly.
bool takes_adapters(std::string_view role, bool adapts);
// Whether a target names a stack of experts' matrices by its path or an end of it: "experts.down_proj", but
// not "down_proj", which is a module of layers without experts.
bool names_stack(std::string_view path, std::string_view target);

// Why TP cannot cut a layer, or "".
std::string tp_fault_of(const Layer& layer, int tp);
// `parameters`: the layer's.
TokenWork work_of(const Layer& layer, const std::vector<Parameter>& parameters);
TokenBytes bytes_of(const Layer& layer, const std::vector<Parameter>& parameters, const Cut& cut,
                    int64_t element_bytes);
CacheBytes cache_of(const Layer& layer, const Cut& cut, int64_t element_bytes);

// How a rank works on a part's rows: widths, in elements, and sizes of numbers.
struct AtWork {
  int tp = 1;
  int64_t element = 4, statistic = 4;  // bytes
  int64_t hidden = 0;
  int64_t gathered = 0;  // of a row that is gathered; 0 without TP
  int64_t shard = 0;     // of a row that the TP ranks hold in shares, this rank's
  int64_t results = 0;   // this rank's of what kept in-products over all rows give
  int64_t out = 0;       // and of what the out products take
  bool travels = false;  // rows visit experts of other lanes
  bool keeps_visits = true;

  int64_t of_rank(int64_t width) const { return (width + tp - 1) / tp; }
  // Behind the mixer's backward, with so many elements still at hand: the product for the input's gradient,
  // then the norm's backward.
  int64_t behind(int64_t held) const { return held + std::max(gathered + shard, 3 * shard); }
};

// Bytes of a row: of what the TP ranks hold in shares, and of what each has of every row.
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

// A mixer's share, a token, beside what follows from its part's weights (TokenWork, TokenBytes).
struct MixerFigures {
  int64_t products = 0;  // that no weight's product counts
  int64_t attention = 0, window = 0, scanned = 0, elements = 0;
  bool makes_out_again = true;  // a backward that recomputes runs the out product too
  RowBytes saved;
  RowBytes border;  // of the saved ones, those that nothing makes again
  RowBytes until_weight;
  int64_t recomputed = 0;  // beside the saved ones that are no border
  int64_t forward = 0, backward = 0, ring_backward = 0;
  int64_t released = 0;  // of the saved ones: no longer there when the parts before it are in their backward
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

// Whether one product gives what a recurrence takes apart: its rows lie as files have them.
bool is_parted(const Part& part);

}  // namespace sluice::model
