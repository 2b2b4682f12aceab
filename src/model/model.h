// A language model as data: an embedding, layers and a head as values (model/layer.h), and the figures that
// planning takes of the whole model. Equal layers are one kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/activation.h"
#include "model/experts.h"
#include "model/head_style.h"
#include "model/lora.h"
#include "model/weight.h"

namespace sluice::model {

class Kind;  // model/kind.h
struct LatentAttention;
struct Outline;  // model/outline.h
struct StateHeads;

// Immutable, cheap to copy, thread-safe. Equal if everything but config() is equal.
class Model {
 public:
  // A model without layers.
  Model();
  // Layers are made from the outline when they are first asked for. REQUIRES then: a valid outline.
  Model(Outline outline);  // NOLINT(google-explicit-constructor): an outline stands for its model

  // The model_type of a row in model/families/registry.cpp; of a counted model, its config.json's.
  const std::string& family() const;
  // Planned, not computed (model/counted.h).
  bool counted() const;
  // The language model's config.json that the model was read from; null if there was none.
  const base::Json* config() const;

  int64_t layers() const;
  int64_t hidden() const;
  int64_t vocab() const;
  // Learnt positions, so the longest sequence; 0: positions are not learnt.
  int64_t positions() const;
  // Whether attention sees only tokens up to its own.
  bool causal() const;

  // The kinds of operations: the embedding's, those of layers in order of appearance, the head's last.
  const std::vector<std::shared_ptr<const Kind>>& kinds() const;
  // Index in kinds() of a layer's.
  int kind_of(int64_t layer) const;

  // Attention of usual layers. Without attention, or where layers differ, see Kind::layer().
  int64_t heads() const;
  int64_t kv_heads() const;
  int64_t head_dim() const;
  // Tokens that queries of layers with windows see: each width once, ascending; and the widest, with which
  // planning counts all of them; 0: no layer has a window.
  const std::vector<int64_t>& windows() const;
  int64_t window() const;
  // Whether windows are chunks of positions (Attention::chunked): all layers' or none's.
  bool attends_by_chunks() const;
  bool caps_scores() const;
  int64_t ffn_hidden() const;
  bool has_activation(Activation activation) const;
  // Of the first layer with latent attention, or with recurrent states; null: no layer has them.
  const LatentAttention* latent() const;
  const StateHeads* states() const;
  bool has_states() const { return states() != nullptr; }
  // Of layers with experts; without any, their count is 0.
  const Experts& experts() const;
  bool has_experts(int64_t layer) const;

  const HeadStyle& head() const;
  bool has_vocabulary() const { return head().kind == HeadKind::kVocabulary; }
  // Numbers for a row, if the head has no vocabulary.
  int64_t head_numbers() const;
  bool ties_embeddings() const;  // if the head has the embedding's vocabulary
  bool ties_head() const;
  bool caps_logits() const;
  // Whether the head has an MTP layer, which trains beside it (MtpLayer of model/layer.h).
  bool has_mtp() const;

  // Tuning (model/tuning.h).
  const Lora& lora() const;
  const BaseFormat& base() const;

  bool operator==(const Model& other) const;

  // For this module and its tests.
  const Outline& outline() const;

 private:
  struct Body;
  const Body& made() const;

  std::shared_ptr<Body> body_;
};

// The same model with another number of vocabulary rows.
Model with_vocab(const Model& model, int64_t rows);

// Shipped models: llama-7b, llama-13b, llama-32b. InputError listing them for another name.
Model named_model(const std::string& name);

}  // namespace sluice::model
