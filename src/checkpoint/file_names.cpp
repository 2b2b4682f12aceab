#include "checkpoint/file_names.h"

#include <array>
#include <string_view>

namespace sluice::checkpoint {
namespace {

constexpr std::string_view kTrunk = "model.", kHead = "lm_head.";
// Since transformers 5, and before.
constexpr std::array<std::string_view, 3> kTrunks = {kTrunk, "model.language_model.",
                                                     "language_model.model."};
constexpr std::array<std::string_view, 3> kHeads = {kHead, "language_model.lm_head.",
                                                    "model.language_model.lm_head."};

// "mlp.experts." of a parameter of experts, each of which has tensors of its own; "": of none.
std::string experts_path(const model::Parameter& parameter) {
  constexpr std::string_view kFirst = ".experts.0.";
  const size_t at = parameter.tensors.empty() ? std::string::npos : parameter.tensors.front().find(kFirst);
  return at == std::string::npos || parameter.one_dimensional()
             ? ""
             : parameter.tensors.front().substr(0, at + kFirst.size() - 2);
}

// One tensor of all experts: [experts, out, in], gate's rows before up's.
model::HuggingFaceTensor stack_of(const model::Bucket& bucket, const model::Parameter& parameter) {
  const int64_t experts = parameter.experts, rows = parameter.rows / experts, columns = parameter.columns;
  model::HuggingFaceTensor tensor{
      .name = bucket.path + experts_path(parameter) + (parameter.transposed ? "down_proj" : "gate_up_proj"),
      .rows = parameter.rows,
      .columns = columns};
  if (parameter.transposed) {
    tensor.shape = {experts, columns, rows};
    tensor.order = {
        .block_rows = rows, .block_stride = rows * columns, .row_stride = 1, .column_stride = rows};
  } else {
    tensor.shape = {experts, rows, columns};
    tensor.order = {.block_rows = rows, .block_stride = rows * columns, .row_stride = columns};
  }
  return tensor;
}

}  // namespace

std::string FileNames::of(const std::string& name) const {
  if (name.starts_with(kTrunk)) return trunk + name.substr(kTrunk.size());
  if (name.starts_with(kHead)) return head + name.substr(kHead.size());
  return name;
}

std::vector<model::HuggingFaceTensor> FileNames::tensors(const model::Bucket& bucket,
                                                         const model::Parameter& parameter) const {
  const bool stack = stacked_experts && parameter.stacked == 0 && !experts_path(parameter).empty();
  std::vector<model::HuggingFaceTensor> tensors =
      stack ? std::vector{stack_of(bucket, parameter)} : model::hugging_face_tensors(bucket, parameter);
  for (model::HuggingFaceTensor& tensor : tensors) tensor.name = of(tensor.name);
  return tensors;
}

FileNames find_names(const model::ParameterTable& table, const std::function<bool(const std::string&)>& has) {
  FileNames names;
  for (const std::string_view trunk : kTrunks) {
    if (has(std::string(trunk) + "embed_tokens.weight")) {
      names.trunk = trunk;
      break;
    }
  }
  for (const std::string_view head : kHeads) {
    if (has(std::string(head) + "weight")) {
      names.head = head;
      break;
    }
  }
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.stacked > 0 || experts_path(parameter).empty()) continue;
      names.stacked_experts = has(names.of(stack_of(bucket, parameter).name));
      return names;
    }
  }
  return names;
}

}  // namespace sluice::checkpoint
