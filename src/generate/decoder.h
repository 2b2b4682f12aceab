// The model, forward only, on the next tokens of many texts at once, whose earlier tokens' keys and values
// stay.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "generate/scheduler.h"
#include "layers/key_cache.h"
#include "layers/operation.h"
#include "layers/parameters.h"
#include "model/parameters.h"

namespace sluice::generate {

// A model whose layers one rank has whole.
struct WholeModel {
  const model::ParameterTable& table;
  layers::LayerContext context;  // its rotary tables reach as far as any text
  layers::FlatShards weights;
  at::TensorOptions like;  // device and type of what is computed
};

// What the model makes of a token that was given, of all that could stand there.
struct Score {
  double log_probability = 0;
  int64_t likeliest = 0;
  double likeliest_log_probability = 0;
};

// Of one pass.
struct Passed {
  // Logits behind the last token of each piece that says something, in their order: [pieces, vocabulary],
  // double, in host memory.
  at::Tensor logits_PV;
  std::vector<Score> scores;  // of all scored rows, piece by piece
};

class Decoder {
 public:
  // With a cache of so many pages, and room for so many texts at once. The model must outlive it.
  Decoder(WholeModel model, int64_t pages, int64_t most_texts);

  // REQUIRES: pieces of `scheduler`, whose pages these are.
  Passed forward(std::span<const Piece> pieces, const Scheduler& scheduler) const;

  // Of recurrent layers states of prompts' ends are not there any more when another sample wants them.
  bool shares_prompts() const { return model_.context.shape.recurrent.key_heads == 0; }

  // What a page takes, and how many of them so many bytes hold beside what each of so many texts takes.
  static int64_t page_bytes(const WholeModel& model);
  static int64_t pages_in(const WholeModel& model, double bytes, int64_t most_texts);

 private:
  std::vector<Score> scores_of(const at::Tensor& x_RH, const std::vector<int64_t>& target_R) const;

  WholeModel model_;
  layers::KeyCache cache_;
  std::vector<std::unique_ptr<layers::Operation>> operations_;  // all but the head
  layers::HeadParameters head_;
};

}  // namespace sluice::generate
