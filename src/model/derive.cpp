#include "model/derive.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// Placeholder for an expert's number in the names of tensors that each expert has.
constexpr std::string_view kOfExpert = "{}";

std::vector<std::string> tensors_of(const Weight& weight) {
  if (weight.tensors.front().find(kOfExpert) == std::string::npos) return weight.tensors;
  std::vector<std::string> all;
  for (int64_t expert = 0; expert < weight.experts; ++expert) {
    for (const std::string& tensor : weight.tensors) {
      std::string& name = all.emplace_back(tensor);
      name.replace(name.find(kOfExpert), kOfExpert.size(), std::to_string(expert));
    }
  }
  return all;
}

Parameter parameter_of(const Weight& weight) {
  Parameter parameter{.role = weight.role,
                      .tensors = tensors_of(weight),
                      .rows = weight.rows(),
                      .columns = weight.columns,
                      .replicated = std::ranges::all_of(
                          weight.groups, [](const RowGroup& group) { return group.units == 0; }),
                      .experts = weight.experts,
                      .transposed = weight.form == FileForm::kTransposed,
                      .stacked = weight.stacked,
                      .depthwise = weight.form == FileForm::kDepthwise,
                      .by_head = weight.form == FileForm::kByHead,
                      .start = weight.start,
                      .adapts = weight.adapts,
                      .trained = weight.trained,
                      .learns = weight.learns,
                      .format = weight.format,
                      .outputs_last = weight.use == Use::kOut};
  for (int64_t expert = 0; expert < std::max<int64_t>(1, weight.experts); ++expert)
    parameter.groups.insert(parameter.groups.end(), weight.groups.begin(), weight.groups.end());
  return parameter;
}

// DoRA's magnitudes are cut as the outputs are.
Parameter magnitude_of(const Weight& weight, const AdapterPair& pair, const std::string& module) {
  const auto at = static_cast<size_t>(pair.tensor);
  std::vector<RowGroup> groups{{weight.columns, 0}};
  if (weight.use != Use::kOut)
    groups = weight.tensors.size() == 1 ? weight.groups : std::vector{weight.groups[at]};
  Parameter magnitude = parameter_of({.role = weight.role,
                                      .tensors = {module + ".lora_magnitude_vector"},
                                      .groups = std::move(groups),
                                      .start = Start::kNorm,
                                      .trained = pair.magnitude_trained});
  magnitude.factor = Factor::kMagnitude;
  magnitude.adapted = pair.tensor;
  return magnitude;
}

// Files have a as [rank, in] and b as [out, rank]; a weight stored [in, out] has them swapped. Experts'
// factors are stacked: a as [experts × rank, in] and b as [out, rank × experts].
void add_adapters(const Weight& weight, std::vector<Parameter>& to) {
  const bool experts = weight.experts > 0;
  const FileForm form = !experts                  ? weight.form
                        : weight.use == Use::kOut ? FileForm::kTransposed
                                                  : FileForm::kAsStored;
  const bool turns = experts && weight.stacked > 0 && weight.form == FileForm::kTransposed;
  for (const AdapterPair& pair : weight.adapters) {
    const auto at = static_cast<size_t>(pair.tensor);
    const std::string module =
        experts ? stacked_name(weight) : weight.tensors[at].substr(0, weight.tensors[at].rfind('.'));
    const auto add = [&](Factor which, int64_t columns, std::vector<RowGroup> groups, bool trained) {
      const bool a = (which == Factor::kLeft) == (form == FileForm::kTransposed);
      Parameter& made =
          to.emplace_back(parameter_of({.role = weight.role,
                                        .tensors = {module + (a ? ".lora_A.weight" : ".lora_B.weight")},
                                        .groups = std::move(groups),
                                        .columns = columns,
                                        .experts = weight.experts,
                                        .form = form,
                                        .stacked = turns && !a ? weight.experts : 0,
                                        .start = a ? Start::kAdapter : Start::kZero,
                                        .trained = trained}));
      made.factor = which;
      made.adapted = pair.tensor;
    };
    const bool all = experts || weight.tensors.size() == 1;
    add(Factor::kLeft, pair.rank, all ? weight.groups : std::vector{weight.groups[at]}, pair.left_trained);
    add(Factor::kRight, weight.columns, {{pair.rank, 0}}, pair.right_trained);
    if (pair.has_magnitude) to.push_back(magnitude_of(weight, pair, module));
  }
}

// Most rows of a weight on any TP rank; for experts' weights, rows of one expert.
int64_t width_of(const Weight& weight, int tp) {
  int64_t all = 0;
  for (const RowGroup& group : weight.groups) {
    const int64_t units = tp <= group.units ? (group.units + tp - 1) / tp : 1;
    all += group.rows / std::max<int64_t>(1, group.units) * units;
  }
  return all;
}

// Elements of a token's product result, or of its out product's input.
int64_t result_width(const Weight& weight, int tp) {
  return width_of(weight, tp) * std::max<int64_t>(1, weight.visits);
}

AtWork at_work(const Part& part, int64_t hidden, const Cut& cut, int64_t element_bytes) {
  AtWork at{.tp = cut.tp,
            .element = element_bytes,
            .statistic = std::max<int64_t>(4, element_bytes),
            .hidden = hidden,
            .gathered = cut.tp > 1 ? hidden : 0,
            .travels = cut.expert_lanes > 1,
            .keeps_visits = cut.keeps_dispatched};
  at.shard = at.of_rank(hidden);
  for (const Weight& weight : part.weights) {
    const bool result = weight.use == Use::kIn || weight.use == Use::kInner;
    if (result && weight.kept && weight.place == Place::kAll) at.results += result_width(weight, cut.tp);
    if (weight.use == Use::kOut) at.out += result_width(weight, cut.tp);
  }
  return at;
}

MixerFigures mixer_figures(const Part& part, const AtWork& at) {
  return std::visit([&](const auto& own) { return figures_of(own, part, at); }, part.mixer);
}

// A part's bytes, before shares of rows are rounded up.
struct PartBytes {
  RowBytes saved, border, until_weight, recomputed;
};

// Adds kept results. For weight gradients adds the results' gradients, the inputs of out products and, once
// each, the inputs of inner products.
void add_products(const Part& part, const AtWork& at, PartBytes& bytes) {
  std::vector<char> read(part.weights.size());
  for (const Weight& weight : part.weights) {
    if (!weight.is_product()) continue;
    const bool elsewhere = weight.experts > 0 && at.travels;
    const int64_t of_token = result_width(weight, at.tp) * (weight.wide ? at.statistic : at.element);
    const auto add = [&](RowBytes& to) { (weight.place == Place::kShard ? to.shared : to.own) += of_token; };
    if (weight.use != Use::kOut && weight.kept && (!elsewhere || at.keeps_visits)) add(bytes.saved);
    if (!elsewhere) add(bytes.until_weight);
    if (weight.use != Use::kInner || weight.reads == kNormedRows) continue;
    const auto input = static_cast<size_t>(weight.reads);
    if (read[input]++ == 0) bytes.until_weight.own += width_of(part.weights[input], at.tp) * at.element;
  }
}

// Adds the part's input rows and the memory of its norms. Until weight gradients: the normed rows and the
// gradient of the part's sum. A later part's input is recomputed from the part before it.
PartBytes part_bytes(const Part& part, bool is_first, const AtWork& at, const MixerFigures& mixer) {
  PartBytes bytes;
  const int64_t row = at.hidden * at.element;
  // The input of a norm behind experts is not recomputed.
  const bool keeps_sum = part.behind && std::holds_alternative<RoutedExperts>(part.mixer);
  bytes.saved.shared = (part.beside ? 0 : row) + (part.before ? at.statistic : 0) + (part.behind ? row : 0);
  bytes.border.shared = (is_first ? row : 0) + (keeps_sum ? row : 0);
  bytes.until_weight.shared = 2 * row;
  add_products(part, at, bytes);
  bytes.saved += mixer.saved;
  bytes.border += mixer.border;
  bytes.until_weight += mixer.until_weight;
  bytes.recomputed = {bytes.saved.shared - bytes.border.shared,
                      bytes.saved.own - bytes.border.own + mixer.recomputed};
  return bytes;
}

// Adapters' products are in proportion to their sizes. Gradients of DoRA's magnitudes take the product of the
// adapted matrix once more.
void count_trained(const std::vector<Parameter>& parameters, TokenWork& work) {
  work.trained = work.products;
  if (std::ranges::all_of(parameters, &Parameter::trained)) return;
  __int128 matrices = 0, trained = 0, adapters = 0;
  int64_t outputs = 0, adapted = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.factor == Factor::kLeft) outputs = parameter.rows;
    if (parameter.factor == Factor::kRight) adapted = outputs * parameter.columns;
    if (parameter.factor == Factor::kMagnitude && parameter.trained) trained += adapted;
    if (parameter.one_dimensional()) continue;
    (parameter.factor == Factor::kNone ? matrices : adapters) += parameter.size();
    if (parameter.trained) trained += parameter.size();
  }
  matrices = std::max<__int128>(1, matrices);  // rows of width one all count as vectors
  work.products += static_cast<int64_t>(work.products * adapters / matrices);
  work.trained = static_cast<int64_t>(work.products * trained / (matrices + adapters));
}

// DoRA's backward makes a product's result again, through the adapter's narrow rows, then scales that
// result's gradient, one product at a time. For the former it gathers the product's rows.
int64_t decomposed_bytes(const Layer& layer, const Cut& cut, int64_t element_bytes) {
  int64_t most = 0;
  for (const Part& part : layer.parts) {
    for (const Weight& weight : part.weights) {
      if (std::ranges::none_of(weight.adapters, &AdapterPair::has_magnitude)) continue;
      const int64_t outputs = weight.use == Use::kOut ? weight.columns : width_of(weight, cut.tp);
      const int64_t gathered = cut.tp > 1 && weight.use != Use::kOut ? weight.columns : 0;
      const int64_t narrow = std::ranges::max(weight.adapters, {}, &AdapterPair::rank).rank;
      most = std::max(most, outputs + gathered + narrow);
    }
  }
  return most * element_bytes;
}

}  // namespace

// Files from before transformers 5 have experts in other modules than its classes. Mixtral's
// block_sparse_moe.experts is mlp.experts, Granite's input_linear is experts.gate_up_proj.
std::string stacked_name(const Weight& weight) {
  constexpr std::string_view kExperts = "experts.", kMixtral = "block_sparse_moe.";
  const std::string& tensor = weight.tensors.front();
  const size_t experts = tensor.find(kExperts);
  std::string path = experts == std::string::npos
                         ? tensor.substr(0, tensor.find('.') + 1) + std::string(kExperts)
                         : tensor.substr(0, experts + kExperts.size());
  if (path.starts_with(kMixtral) && tensor.find(kOfExpert) != std::string::npos)
    path.replace(0, kMixtral.size(), "mlp.");
  return path + (weight.use == Use::kOut     ? "down_proj"
                 : weight.groups.size() == 2 ? "gate_up_proj"
                                             : "up_proj");
}

bool takes_adapters(std::string_view role, bool adapts) {
  constexpr std::string_view kExact[] = {
      roles::kSharedGateUp, roles::kSharedDown, roles::kQNarrow,     roles::kQ,
      roles::kKvNarrow,     roles::kKv,         roles::kAttentionOut};
  return adapts || std::ranges::find(kExact, role) != std::end(kExact);
}

bool names_stack(std::string_view path, std::string_view target) {
  if (!path.ends_with(target) || target.find('.') == target.npos) return false;
  return path.size() == target.size() || path[path.size() - target.size() - 1] == '.';
}

std::vector<Parameter> parameters_of(const Layer& layer) {
  std::vector<Parameter> all, adapters;
  const auto add = [&](const std::vector<Weight>& weights) {
    for (const Weight& weight : weights) {
      all.push_back(parameter_of(weight));
      add_adapters(weight, adapters);
    }
  };
  for (const Part& part : layer.parts) {
    for (const std::vector<Weight>* const weights : own_weights(part)) add(*weights);
  }
  for (const Weight* const weight : joint_weights(layer)) all.push_back(parameter_of(*weight));
  std::ranges::move(adapters, std::back_inserter(all));
  return all;
}

std::vector<Parameter> parameters_of(const Embedding& embedding) {
  std::vector<Parameter> all{parameter_of(embedding.table)};
  for (const std::optional<Weight>& rows : {embedding.positions, embedding.kinds}) {
    if (rows) all.push_back(parameter_of(*rows));
  }
  if (embedding.norm) {
    for (const Weight& weight : embedding.norm->weights) all.push_back(parameter_of(weight));
  }
  if (embedding.by_layer) {
    for (const Weight& weight : {embedding.by_layer->table, embedding.by_layer->projection})
      all.push_back(parameter_of(weight));
    for (const Weight& weight : embedding.by_layer->norm.weights) all.push_back(parameter_of(weight));
  }
  return all;
}

std::vector<Parameter> parameters_of(const Head& head) {
  std::vector<Parameter> all;
  for (const Weight* const weight : own_weights_of(head)) all.push_back(parameter_of(*weight));
  const size_t of_mtp = head.mtp ? weights_of_mtp(*head.mtp).size() : 0;
  for (size_t i = all.size() - of_mtp; i < all.size(); ++i) all[i].of_mtp = true;
  return all;
}

const StateHeads* states_of(const Mixer& mixer) {
  return std::visit(
      [](const auto& own) -> const StateHeads* {
        if constexpr (requires { own.heads.value_heads; }) return &own.heads;
        return nullptr;
      },
      mixer);
}

bool is_parted(const Part& part) {
  return std::holds_alternative<Mamba2>(part.mixer) || !part.weights.front().groups.front().turns.empty();
}

std::string tp_fault_of(const Layer& layer, int tp) {
  for (const Part& part : layer.parts) {
    std::string fault = std::visit(
        [&](const auto& own) {
          if constexpr (requires { own.heads.value_heads; })
            return tp_fault_of(own.heads, tp);
          else
            return tp_fault_of(own, tp);
        },
        part.mixer);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Elementwise, a part reads and writes each row 3 times for each of its norms, and for the sum with the
// residual.
TokenWork work_of(const Layer& layer, const std::vector<Parameter>& parameters) {
  TokenWork work;
  for (const Part& part : layer.parts) {
    const MixerFigures own = mixer_figures(part, at_work(part, layer.hidden, {}, 4));
    const int64_t norms = (part.before ? 1 : 0) + (part.behind ? 1 : 0);
    work.products += own.products;
    work.recomputed += own.products;
    for (const Weight& weight : part.weights) {
      if (!weight.is_product()) continue;
      const int64_t experts = std::max<int64_t>(1, weight.experts);
      const int64_t of_token = weight.rows() * weight.columns / experts * std::max<int64_t>(1, weight.visits);
      work.products += of_token;
      if (weight.experts > 0) work.routed += of_token;
      if (weight.use != Use::kOut || own.makes_out_again) work.recomputed += of_token;
    }
    work.attention += own.attention;
    work.window = std::max(work.window, own.window);
    work.scanned += own.scanned;
    work.elements += (2 + 3 * norms) * layer.hidden + own.elements;
    work.collectives += 2;
  }
  work.elements += (layer.joint ? 4 : 0) * layer.hidden + (layer.scalar ? 2 : 0) * layer.hidden;
  count_trained(parameters, work);
  return work;
}

// A later part's backward comes first; memory that it releases is free in the backwards of earlier parts.
TokenBytes bytes_of(const Layer& layer, const std::vector<Parameter>& parameters, const Cut& cut,
                    int64_t element_bytes) {
  RowBytes saved, border, until_weight;
  TokenBytes bytes;
  int64_t released = 0;
  for (auto part = layer.parts.rbegin(); part != layer.parts.rend(); ++part) {
    const AtWork at = at_work(*part, layer.hidden, cut, element_bytes);
    const MixerFigures mixer = mixer_figures(*part, at);
    const PartBytes own = part_bytes(*part, &*part == &layer.parts.front(), at, mixer);
    saved += own.saved;
    border += own.border;
    until_weight += own.until_weight;
    bytes.recomputed = std::max(bytes.recomputed, own.recomputed.of_rank(cut.tp));
    bytes.forward = std::max(bytes.forward, mixer.forward);
    bytes.backward = std::max(bytes.backward, mixer.backward - released);
    bytes.ring_backward = std::max(bytes.ring_backward, mixer.ring_backward - released);
    released += mixer.released;
  }
  // Parts beside another keep the layer's rows, or the gradient of its result.
  if (std::ranges::any_of(layer.parts, &Part::beside)) {
    const int64_t row = (layer.hidden * element_bytes + cut.tp - 1) / cut.tp;
    bytes.forward += row;
    bytes.backward += row;
    bytes.ring_backward += row;
  }
  // The input of a norm behind a sum of parts is not recomputed; its gradient exists beside the rows'.
  if (layer.joint) {
    const int64_t row = layer.hidden * element_bytes;
    saved.shared += row;
    border.shared += row;
    bytes.forward += (row + cut.tp - 1) / cut.tp;
    bytes.backward += (row + cut.tp - 1) / cut.tp;
    bytes.ring_backward += (row + cut.tp - 1) / cut.tp;
  }
  // Adapters' right factors make narrow rows (layers/product.h), stored twice for gradients. An expert's
  // narrow rows are freed with its products.
  int64_t narrow = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.factor != Factor::kRight) continue;
    const int64_t rank = parameter.rows / std::max<int64_t>(1, parameter.experts);
    narrow += 2 * rank * element_bytes;
    if (parameter.experts == 0) until_weight.own += 2 * rank * element_bytes;
  }
  const int64_t decomposed = decomposed_bytes(layer, cut, element_bytes);
  bytes.forward += narrow;
  bytes.backward += narrow + decomposed;
  bytes.ring_backward = std::max(bytes.ring_backward + narrow + decomposed, bytes.backward);
  bytes.saved = saved.of_rank(cut.tp);
  bytes.recompute_input = border.of_rank(cut.tp);
  bytes.deferred = std::max<int64_t>(0, until_weight.of_rank(cut.tp) - bytes.saved);
  return bytes;
}

CacheBytes cache_of(const Layer& layer, const Cut& cut, int64_t element_bytes) {
  CacheBytes bytes;
  for (const Part& part : layer.parts)
    bytes += mixer_figures(part, at_work(part, layer.hidden, cut, element_bytes)).cache;
  return bytes;
}

}  // namespace sluice::model
