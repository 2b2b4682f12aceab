// The Hugging Face side of a model: config.json and tensor names of the families in model/families.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/model.h"
#include "model/parameters.h"

namespace sluice::model {

// Reads a config.json of one of the families. Rotary positions may be in transformers' old keys (rope_theta,
// rope_scaling) or in rope_parameters. InputError naming `name` and the key for another architecture or
// anything that Sluice does not compute (other biases, windows by layer, other activations, quantisation,
// unknown rope types and unknown keys).
Model model_from_hugging_face(const base::Json& config, const std::string& name);

// The same; for a model that Sluice does not compute but whose costs can be counted, the counted model
// (model/counted.h).
Model model_to_plan_from_hugging_face(const base::Json& config, const std::string& name);

// The outline of such a model, for this module.
Outline outline_from_hugging_face(const base::Json& config, const std::string& name);
Outline outline_to_plan_from_hugging_face(const base::Json& config, const std::string& name);

// Sets max_position_embeddings if a config.json of this model has it. Writes out the rotary values that would
// otherwise depend on it. Returns false and leaves the file as it was if it would still become another
// model's.
bool set_positions(base::Json& config, const Model& model, int64_t positions);

// The order of a tensor's stored rows in a file. Blocks of rows (experts) follow each other. The rows of a
// block's halves (gate and up) may be interleaved.
struct FileOrder {
  int64_t block_rows = 0;
  int64_t block_stride = 0;
  int64_t halves = 1;
  int64_t half_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;

  // The file's element of a stored row's column 0.
  int64_t first_of(int64_t row) const {
    const int64_t within = row % block_rows, height = block_rows / halves;
    return row / block_rows * block_stride + within / height * half_stride + within % height * row_stride;
  }
};

// A stored parameter's Hugging Face tensors: each is a contiguous block of stored rows, and the blocks cover
// the parameter in order.
struct HuggingFaceTensor {
  std::string name;  // "model.layers.3.self_attn.q_proj.weight"
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int64_t> shape;  // in the file
  FileOrder order;

  // Whether the file has the rows as they are stored.
  bool straight() const {
    return order.halves == 1 && order.row_stride == columns && order.column_stride == 1;
  }
};
std::vector<HuggingFaceTensor> hugging_face_tensors(const Bucket& bucket, const Parameter& parameter);

}  // namespace sluice::model
