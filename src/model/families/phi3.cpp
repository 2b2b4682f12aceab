#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// Attention's rows lie in one tensor, and gate and up in another.
constexpr TensorNames kPhi3Tensors[] = {{roles::kQkv, {"self_attn.qkv_proj.weight"}},
                                        {roles::kGateUp, {"mlp.gate_up_proj.weight"}}};

}  // namespace

extern const Names kPhi3Names{kPhi3Tensors};

void read_phi3(Reader& config, Shape& shape) {
  read_decoder(config, {.norm_eps = 1e-5}, shape);
  config.only("resid_pdrop", 0.0);
  config.only("embd_pdrop", 0.0);
  config.pass({"original_max_position_embeddings"});  // which longrope reads
  read_window(config, 0, shape);
}

}  // namespace sluice::model
