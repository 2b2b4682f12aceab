#include "model/block_kind.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/attention_kind.h"
#include "model/experts_kind.h"
#include "model/family.h"
#include "model/latent_attention_kind.h"
#include "model/mlp_kind.h"
#include "model/recurrent_kind.h"

namespace sluice::model {
namespace {

template <typename Kind>
std::unique_ptr<const Part> make(const Shape& shape, const BlockType& type) {
  return std::make_unique<const Kind>(shape, type);
}

// The parts that a block can join. A new one needs a line here, and one in layers/block.cpp to be computed.
constexpr struct {
  std::string_view name;
  std::unique_ptr<const Part> (*make)(const Shape& shape, const BlockType& type);
} kRegistry[] = {
    {AttentionKind::kName, make<AttentionKind>}, {LatentAttentionKind::kName, make<LatentAttentionKind>},
    {RecurrentKind::kName, make<RecurrentKind>}, {MlpKind::kName, make<MlpKind>},
    {ExpertsKind::kName, make<ExpertsKind>},
};

// All parts' under the family's names, then their adapters.
std::vector<Parameter> parameters_of(const Shape& shape, const BlockType& type,
                                     const std::vector<std::unique_ptr<const Part>>& parts) {
  std::vector<Parameter> all, adapters;
  for (const auto& part : parts) std::ranges::move(part->parameters(), std::back_inserter(all));
  for (Parameter& parameter : all) {
    name_tensors(shape, parameter);
    std::ranges::move(adapters_of(parameter, shape.lora), std::back_inserter(adapters));
  }
  std::ranges::move(adapters, std::back_inserter(all));
  return frozen_by(type.frozen, std::move(all));
}

}  // namespace

BlockKind::BlockKind(const Shape& shape_of_model, const BlockType& type)
    : Kind({}), shape_(shape_of_model), type_(type) {
  if (type.recurrent) shape_.norm_place = NormPlace::kBefore;
  const Shape& shape = shape_;
  const bool latent = shape.latent.kv_rank > 0;
  const std::string_view mixes = type.recurrent ? RecurrentKind::kName
                                 : latent       ? LatentAttentionKind::kName
                                                : AttentionKind::kName;
  std::vector<std::string_view> parts{mixes};
  if (type.experts) parts.push_back(ExpertsKind::kName);
  if (!type.experts && shape.ffn_hidden > 0) parts.push_back(MlpKind::kName);
  for (const std::string_view part : parts) {
    const auto* const found =
        std::ranges::find(kRegistry, part, [](const auto& entry) { return entry.name; });
    SLUICE_ASSERT(found != std::end(kRegistry), base::text("no part '", part, "'"));
    parts_.push_back(found->make(shape, type));
  }
  parameters_ = parameters_of(shape, type, parts_);
}

std::string BlockKind::tp_fault(int tp) const {
  for (const auto& part : parts_) {
    if (std::string fault = part->tp_fault(tp); !fault.empty()) return fault;
  }
  return "";
}

TokenWork BlockKind::work() const {
  TokenWork work;
  for (const auto& part : parts_) work += part->work();
  // A token's products are with all matrices but experts that it does not visit.
  if (std::ranges::all_of(parameters_, &Parameter::trained)) {
    work.trained = work.products;
    return work;
  }
  __int128 matrices = 0, trained = 0, adapters = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.one_dimensional()) continue;
    (parameter.factor == Factor::kNone ? matrices : adapters) += parameter.size();
    if (parameter.trained) trained += parameter.size();
  }
  matrices = std::max<__int128>(1, matrices);  // of a width of one all count as vectors
  const int64_t adapted = static_cast<int64_t>(work.products * adapters / matrices);
  work.products += adapted;
  work.trained = static_cast<int64_t>(work.products * trained / (matrices + adapters));
  return work;
}

CacheBytes BlockKind::cache(const Cut& cut, int64_t element_bytes) const {
  CacheBytes bytes;
  for (const auto& part : parts_) bytes += part->cache(cut, element_bytes);
  return bytes;
}

TokenBytes BlockKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  RowBytes saved, border, until_weight;
  TokenBytes bytes;
  int64_t released = 0;  // by the parts behind
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    const PartBytes own = (*part)->bytes(cut, element_bytes);
    saved += own.saved;
    border += own.border;
    until_weight += own.until_weight;
    bytes.recomputed = std::max(bytes.recomputed, own.recomputed.of_rank(tp));
    bytes.forward = std::max(bytes.forward, own.forward);
    bytes.backward = std::max(bytes.backward, own.backward - released);
    bytes.ring_backward = std::max(bytes.ring_backward, own.ring_backward - released);
    released += own.released;
  }
  // What adapters' factors make of a row (layers/product.h): of each for its gradients twice.
  int64_t narrow = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.factor == Factor::kRight) narrow += 2 * parameter.rows * element_bytes;
  }
  until_weight.own += narrow;
  bytes.forward += narrow;
  bytes.backward += narrow;
  bytes.ring_backward = std::max(bytes.ring_backward + narrow, bytes.backward);
  bytes.saved = saved.of_rank(tp);
  bytes.border = border.of_rank(tp);
  bytes.deferred = std::max<int64_t>(0, until_weight.of_rank(tp) - bytes.saved);
  return bytes;
}

}  // namespace sluice::model
