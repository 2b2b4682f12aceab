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
void read_biases(Reader& config, Outline& outline) {
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  outline.mlp_bias = config.has("mlp_bias");
}

void square_without_gate(Outline& outline) {
  outline.mlp_gate = false;
  outline.activation = Activation::kSquaredRelu;
}

}  // namespace

extern const Names kStarCoder2Names{kStarCoder2Tensors};

void read_arcee(Reader& config, Outline& outline) {
  read_decoder(config,
               {.heads = 32, .norm_eps = 1e-5, .biases = true, .mlp_biases = true, .activation = "relu2"},
               outline);
  read_biases(config, outline);
  square_without_gate(outline);
}

void read_nemotron(Reader& config, Outline& outline) {
  read_decoder(config,
               {.norm_eps = 1e-5,
                .rotated = 0.5,
                .biases = true,
                .mlp_biases = true,
                .activation = "relu2",
                .norm_eps_key = "norm_eps"},
               outline);
  outline.norm = {.kind = NormKind::kLayer, .biases = true};
  outline.norm_offset = 1.0;
  read_biases(config, outline);
  square_without_gate(outline);
}

// Published files have dropouts of 0.1, which are ignored: Sluice trains without dropout.
void read_starcoder2(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 2,
                .norm_eps = 1e-5,
                .tied = true,
                .drops_out = true,
                .activation = "gelu_pytorch_tanh",
                .norm_eps_key = "norm_epsilon"},
               outline);
  config.only("mlp_type", "default");
  config.only("norm_type", "layer_norm");
  config.pass({"embedding_dropout"});
  read_window(config, 0, outline);
  outline.norm = {.kind = NormKind::kLayer, .biases = true};
  outline.qkv_bias = outline.out_bias = outline.mlp_bias = !config.lacks("use_bias");
  outline.mlp_gate = false;
  outline.activation = Activation::kGeluTanh;
}

}  // namespace sluice::model
