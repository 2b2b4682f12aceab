#include "layers/context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/text.h"
#include "model/layer.h"
#include "model/program.h"

namespace sluice::layers {

namespace {

// On a CPU, logits stay in the processor's caches between softmax and products. On a GPU each chunk reads and
// writes the output matrix's gradient once more: with 4,096 rows and a vocabulary of 128K that takes a 24th
// of the products' time.
constexpr int64_t kCpuLogitsBytes = int64_t{8} << 20;
constexpr int64_t kGpuLogitsBytes = int64_t{1} << 30;

// Every rotary variant of the program, with the number of dimensions that it rotates.
std::vector<std::pair<model::Rope, int64_t>> ropes_of(const model::Program& program) {
  std::vector<std::pair<model::Rope, int64_t>> ropes;
  for (const auto& kind : program.kinds()) {
    if (kind->layer() == nullptr) continue;
    for (const model::Part& part : kind->layer()->parts) {
      std::visit(
          [&](const auto& own) {
            if constexpr (requires { own.rope; })
              if (own.rope) ropes.emplace_back(*own.rope, own.rotated);
          },
          part.mixer);
    }
  }
  return ropes;
}

}  // namespace

int64_t default_logits_chunk_bytes(const at::Device& device) {
  return device.is_cpu() ? kCpuLogitsBytes : kGpuLogitsBytes;
}

void ExpertLoad::add(int64_t layer, double busiest, std::span<const int64_t> visits_E,
                     const at::Tensor& id_TK) {
  sum += busiest;
  ++count;
  const auto at = static_cast<size_t>(layer);
  if (assignments.size() <= at) assignments.resize(at + 1);
  assignments[at].resize(visits_E.size());
  for (size_t expert = 0; expert < visits_E.size(); ++expert) assignments[at][expert] += visits_E[expert];
  if (!counts_coactivations) return;
  if (coactivations.size() <= at) coactivations.resize(at + 1);
  const at::Tensor visited_TE =
      at::zeros({id_TK.size(0), std::ssize(visits_E)}, id_TK.options().dtype(at::kFloat))
          .scatter_(1, id_TK.to(at::kLong), 1);
  const at::Tensor pairs_EE = visited_TE.t().mm(visited_TE).to(at::kDouble);
  coactivations[at] = coactivations[at].defined() ? coactivations[at] + pairs_EE : pairs_EE;
}

LayerContext layer_context(const model::Model& model, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like) {
  const std::string fault = model::tp_fault(model, parallel.tp);
  if (!fault.empty()) throw base::InputError(base::text("[layers] ", fault));
  if (model.positions() > 0 && positions > model.positions()) {
    throw base::InputError(base::text("sequences have up to ", positions, " tokens, but the model has ",
                                      model.positions(), " trained positions: lower the context length"));
  }
  const auto tables = std::make_shared<RotaryTables>();
  for (const auto& [rope, width] : ropes_of(model::Program(model))) {
    if (tables->find(rope, width) != nullptr) continue;
    const model::RopeTable table = model::rope_table(rope, width, positions);
    tables->add(rope, width,
                ops::rotary_table(table.inverse_frequencies, table.attention_scale, positions, like));
  }
  return {.model = model,
          .parallel = parallel,
          .rotary = tables,
          .logits_chunk_bytes = default_logits_chunk_bytes(like.device()),
          .groups_experts = !like.device().is_cpu()};
}

}  // namespace sluice::layers
