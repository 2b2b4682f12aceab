#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kMixtralTensors[] = {
    {roles::kRouter, {"block_sparse_moe.gate.weight"}},
    {roles::kExpertsGateUp,
     {"block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"}},
    {roles::kExpertsDown, {"block_sparse_moe.experts.{}.w2.weight"}}};

}  // namespace

extern const Names kMixtralNames{kMixtralTensors};

void read_mixtral(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6}, shape);
  config.only("router_jitter_noise", 0.0);
  read_window(config, 0, shape);
  read_experts(config, width(config, "intermediate_size"), shape);
  shape.experts.normalised = true;
}

}  // namespace sluice::model
