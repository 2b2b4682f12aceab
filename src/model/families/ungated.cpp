// Families whose MLPs have no gate.
#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kStarCoder2Tensors[] = {{roles::kGateUp, {"mlp.c_fc.weight"}},
                                              {roles::kGateUpBias, {"mlp.c_fc.bias"}},
                                              {roles::kDown, {"mlp.c_proj.weight"}},
                                              {roles::kDownBias, {"mlp.c_proj.bias"}}};

// attention_bias applies to attention's four products, mlp_bias to both of an MLP.
void read_biases(Reader& config, Shape& shape) {
  shape.qkv_bias = shape.out_bias = config.has("attention_bias");
  shape.mlp_bias = config.has("mlp_bias");
}

void square_without_gate(Shape& shape) {
  shape.mlp_gate = false;
  shape.activation = Activation::kSquaredRelu;
}

}  // namespace

extern const Names kStarCoder2Names{kStarCoder2Tensors};

void read_arcee(Reader& config, Shape& shape) {
  read_decoder(config,
               {.heads = 32, .norm_eps = 1e-5, .biases = true, .mlp_biases = true, .activation = "relu2"},
               shape);
  read_biases(config, shape);
  square_without_gate(shape);
}

void read_nemotron(Reader& config, Shape& shape) {
  read_decoder(config,
               {.norm_eps = 1e-5,
                .rotated = 0.5,
                .biases = true,
                .mlp_biases = true,
                .activation = "relu2",
                .norm_eps_key = "norm_eps"},
               shape);
  shape.norm = {.kind = NormKind::kLayer, .biases = true};
  shape.norm_offset = 1.0;
  read_biases(config, shape);
  square_without_gate(shape);
}

// Published files have dropouts of 0.1, which are ignored: Sluice trains without dropout.
void read_starcoder2(Reader& config, Shape& shape) {
  read_decoder(config,
               {.kv_heads = 2,
                .norm_eps = 1e-5,
                .tied = true,
                .drops_out = true,
                .activation = "gelu_pytorch_tanh",
                .norm_eps_key = "norm_epsilon"},
               shape);
  config.only("mlp_type", "default");
  config.only("norm_type", "layer_norm");
  config.pass({"embedding_dropout"});
  read_window(config, 0, shape);
  shape.norm = {.kind = NormKind::kLayer, .biases = true};
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = !config.lacks("use_bias");
  shape.mlp_gate = false;
  shape.activation = Activation::kGeluTanh;
}

}  // namespace sluice::model
