#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kNanochatTensors[] = {{roles::kGateUp, {"mlp.fc1.weight"}},
                                            {roles::kDown, {"mlp.fc2.weight"}}};

}  // namespace

extern const Names kNanochatNames{kNanochatTensors};

void read_nanochat(Reader& config, Shape& shape) {
  read_decoder(config, {.activation = "relu2"}, shape);
  shape.norm.weights = false;
  shape.embedding_norm = true;
  shape.qk_norm = QkNorm::kEachHead;
  shape.mlp_gate = false;
  shape.activation = Activation::kSquaredRelu;
  constexpr const char* kCap = "final_logit_softcapping";
  shape.logit_cap = config.number_or(config.says(kCap) ? 0.0 : 15.0, kCap, kShapeRanges.factor);
  change_attention(shape, [](Attention& own) {
    own.turning = Turning::kHalvesBackwards;
    own.head_norm_style = {.behind_rotation = true, .weights = false};
  });
}

}  // namespace sluice::model
