#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// Attention's rows lie in one tensor, and gate and up in another.
constexpr TensorNames kPhi3Tensors[] = {{roles::kQkv, {"self_attn.qkv_proj.weight"}},
                                        {roles::kGateUp, {"mlp.gate_up_proj.weight"}}};

constexpr TensorNames kPhimoeTensors[] = {
    {roles::kRouter, {"block_sparse_moe.gate.weight"}},
    {roles::kExpertsGateUp,
     {"block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"}},
    {roles::kExpertsDown, {"block_sparse_moe.experts.{}.w2.weight"}}};

// Files give longrope's attention factor by length; Sluice computes only equal ones.
base::Json with_one_factor(const Reader& config, Outline&) {
  return with_own_rope(config, [&](base::Json& rope) {
    const base::Json shorter = rope.value("short_mscale", base::Json());
    const base::Json longer = rope.value("long_mscale", base::Json());
    if (shorter != longer) config.refuse("long_mscale", longer, "as short_mscale");
    for (const char* key : {"short_mscale", "long_mscale"}) rope.erase(key);
    if (!shorter.is_null()) rope["attention_factor"] = shorter;
  });
}

}  // namespace

extern const Names kPhi3Names{kPhi3Tensors};
extern const Names kPhimoeNames{kPhimoeTensors};

// In training the class draws experts at random; Sluice takes the likeliest, as the class does in evaluation.
void read_phimoe(Reader& config, Outline& outline) {
  read_decoder(
      config,
      {.kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6, .biases = true, .own_rope = with_one_factor},
      outline);
  outline.norm = {.kind = NormKind::kLayer, .weights = true, .biases = true};
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  const bool biased = config.has("lm_head_bias");
  if (outline.head.kind == HeadKind::kVocabulary) outline.head.bias = biased;
  config.only("input_jitter_noise", 0.0);
  config.pass({"original_max_position_embeddings"});
  read_window(config, 0, outline);
  read_experts(config, width(config, "intermediate_size"), outline);
  config.only("num_experts_per_tok", 2);
  const double jitter = config.number_or(0.01, "router_jitter_noise", {1e-12, 1.0});
  change_layers(outline, [&](const BlockType&, Layer& layer) {
    RoutedExperts routed = std::get<RoutedExperts>(layer.parts[1].mixer);
    routed.sparse_jitter = jitter;
    replace_part(outline, layer.parts[1], experts_part(routed, outline.hidden));
  });
}

void read_phi3(Reader& config, Outline& outline) {
  read_decoder(config, {.norm_eps = 1e-5}, outline);
  config.only("resid_pdrop", 0.0);
  config.only("embd_pdrop", 0.0);
  config.pass({"original_max_position_embeddings"});  // longrope reads this key
  read_window(config, 0, outline);
}

}  // namespace sluice::model
