#include "model/summary.h"

#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "model/outline.h"
#include "model/parameter_count.h"

namespace sluice::model {
namespace {

using base::text;

std::string heads_text(const Outline& outline) {
  const Latent& latent = outline.latent;
  if (latent.kv_rank == 0)
    return text("heads ", outline.heads, " (", outline.kv_heads, " for keys and values) of ",
                outline.head_dim);
  return text("heads ", outline.heads, " of ", latent.unrotated + latent.rotated, " (values ", latent.values,
              "), keys and values from a latent vector of ", latent.kv_rank);
}

std::string ffn_text(const Outline& outline) {
  const Experts& experts = outline.experts;
  std::vector<std::string> parts;
  bool dense = false;
  for (int64_t layer = 0; layer < outline.layers; ++layer) dense |= !outline.block_type(layer).experts;
  if (dense) parts.push_back(text("ffn ", outline.ffn_hidden));
  if (experts.count > 0)
    parts.push_back(text(experts.count, " experts of ", experts.hidden, ", ", experts.per_token, " a token"));
  if (experts.shared_hidden > 0) parts.push_back(text("shared experts of ", experts.shared_hidden));
  return base::join(parts, ", ");
}

int64_t recurrent_layers(const Outline& outline) {
  int64_t layers = 0;
  for (int64_t layer = 0; layer < outline.layers; ++layer)
    layers += outline.block_type(layer).recurrent ? 1 : 0;
  return layers;
}

// ", 36 recurrent layers (gated delta rule, 32 heads of 128 x 128)", or nothing.
std::string recurrent_text(const Outline& outline) {
  const Recurrent& own = outline.recurrent;
  const int64_t layers = recurrent_layers(outline);
  if (layers == 0) return "";
  const char* const name = own.recurrence == Recurrence::kMamba2 ? "Mamba-2"
                           : own.recurrence == Recurrence::kGla  ? "gated linear attention"
                                                                 : "gated delta rule";
  return text(", ", base::human_count(layers, "recurrent layer", "recurrent layers"), " (", name, ", ",
              own.value_heads, " heads of ", own.key_width, " x ", own.value_width, ")");
}

}  // namespace

std::string size_text(const Model& model) { return text(model.layers(), " layers, hidden ", model.hidden()); }

std::string summary(const Model& model) {
  const Outline& outline = model.outline();
  const int64_t parameters = parameter_count(model), active = active_parameter_count(model);
  const bool computed = !outline.counted;
  const bool attends = recurrent_layers(outline) < outline.layers;
  return text(computed ? "" : text("model_type ", outline.family, " is counted, not computed: "),
              base::human_count(parameters), " parameters",
              active < parameters ? text(" (a token passes ", base::human_count(active), ")") : "", ": ",
              size_text(model), recurrent_text(outline), attends ? ", " + heads_text(outline) : "",
              outline.ffn_hidden > 0 ? ", " + ffn_text(outline) : "", ", vocabulary ", outline.vocab,
              outline.tie_embeddings ? ", tied embeddings" : "",
              computed && attends ? text(", rope theta ", outline.rope.theta) : "");
}

}  // namespace sluice::model
