#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kHunyuanTensors[] = {
    {roles::kRouter, {"mlp.router.gate.weight"}},
    {roles::kCorrection, {"mlp.expert_bias"}},
    {roles::kSharedGateUp, {"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_mlp.down_proj.weight"}}};

}  // namespace

extern const Names kHunyuanNames{kHunyuanTensors};

// Outputs of experts are added in the rows' type: enable_moe_fp32_combine is ignored.
void read_hunyuan3(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 11158840.0}, shape);
  config.pass({"enable_moe_fp32_combine"});
  shape.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config,
                      {.dense = 1,
                       .factor = 2.826,
                       .count_key = "num_experts",
                       .shared_key = "num_shared_experts",
                       .factor_key = "router_scaling_factor"},
                      shape);
  read_mlp_types(config, shape);
}

}  // namespace sluice::model
