// Families whose MLPs have no gate.
#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {
namespace {

// attention_bias is of all four products of attention, mlp_bias of both of an MLP.
void read_biases(Reader& config, Shape& shape) {
  shape.qkv_bias = shape.out_bias = config.has("attention_bias");
  shape.mlp_bias = config.has("mlp_bias");
}

void square_without_gate(Shape& shape) {
  shape.mlp_gate = false;
  shape.activation = Activation::kSquaredRelu;
}

}  // namespace

void read_arcee(Reader& config, Shape& shape) {
  read_decoder(config,
               {.heads = 32, .norm_eps = 1e-5, .biases = true, .mlp_biases = true, .activation = "relu2"},
               shape);
  read_biases(config, shape);
  square_without_gate(shape);
}

}  // namespace sluice::model
