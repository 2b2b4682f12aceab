#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kNanochatTensors[] = {{roles::kGateUp, {"mlp.fc1.weight"}},
                                            {roles::kDown, {"mlp.fc2.weight"}}};

}  // namespace

extern const Names kNanochatNames{kNanochatTensors};

void read_nanochat(Reader& config, Outline& outline) {
  read_decoder(config, {.activation = "relu2"}, outline);
  outline.norm.weights = false;
  outline.embedding_norm = true;
  outline.qk_norm = QkNorm::kEachHead;
  outline.mlp_gate = false;
  outline.activation = Activation::kSquaredRelu;
  constexpr const char* kCap = "final_logit_softcapping";
  outline.logit_cap = config.number_or(config.says(kCap) ? 0.0 : 15.0, kCap, kModelRanges.factor);
  change_attention(outline, [](Attention& own) {
    own.turning = Turning::kHalvesBackwards;
    own.head_norm_style = {.behind_rotation = true, .weights = false};
  });
}

}  // namespace sluice::model
