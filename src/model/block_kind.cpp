#include "model/block_kind.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/attention_kind.h"
#include "model/experts_kind.h"
#include "model/latent_attention_kind.h"
#include "model/mlp_kind.h"

namespace sluice::model {
namespace {

template <typename Kind>
std::unique_ptr<const Part> make(const Shape& shape, const BlockType& type) {
  return std::make_unique<const Kind>(shape, type);
}

// The parts that a block can join. A new one needs a line here, and one in layers/block.cpp to be computed;
// latent attention and experts are only counted.
constexpr struct {
  std::string_view name;
  std::unique_ptr<const Part> (*make)(const Shape& shape, const BlockType& type);
} kRegistry[] = {
    {AttentionKind::kName, make<AttentionKind>},
    {LatentAttentionKind::kName, make<LatentAttentionKind>},
    {MlpKind::kName, make<MlpKind>},
    {ExpertsKind::kName, make<ExpertsKind>},
};

}  // namespace

BlockKind::BlockKind(const Shape& shape, const BlockType& type) : type_(type) {
  const bool latent = shape.latent.kv_rank > 0;
  for (const std::string_view part : {latent ? LatentAttentionKind::kName : AttentionKind::kName,
                                      type.experts ? ExpertsKind::kName : MlpKind::kName}) {
    const auto* const found =
        std::ranges::find(kRegistry, part, [](const auto& entry) { return entry.name; });
    SLUICE_ASSERT(found != std::end(kRegistry), base::text("no part '", part, "'"));
    parts_.push_back(found->make(shape, type));
  }
}

std::vector<Parameter> BlockKind::parameters() const {
  std::vector<Parameter> all;
  for (const auto& part : parts_) std::ranges::move(part->parameters(), std::back_inserter(all));
  return all;
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
  return work;
}

TokenBytes BlockKind::bytes(int tp, int64_t element_bytes) const {
  RowBytes saved, border, until_weight;
  TokenBytes bytes;
  int64_t released = 0;  // by the parts behind
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    const PartBytes own = (*part)->bytes(tp, element_bytes);
    saved += own.saved;
    border += own.border;
    until_weight += own.until_weight;
    bytes.recomputed = std::max(bytes.recomputed, own.recomputed.of_rank(tp));
    bytes.forward = std::max(bytes.forward, own.forward);
    bytes.backward = std::max(bytes.backward, own.backward - released);
    bytes.ring_backward = std::max(bytes.ring_backward, own.ring_backward - released);
    released += own.released;
  }
  bytes.ring_backward = std::max(bytes.ring_backward, bytes.backward);
  bytes.saved = saved.of_rank(tp);
  bytes.border = border.of_rank(tp);
  bytes.deferred = std::max<int64_t>(0, until_weight.of_rank(tp) - bytes.saved);
  return bytes;
}

}  // namespace sluice::model
