#include "checkpoint/file_names.h"

#include <array>
#include <string_view>

#include "base/text.h"

namespace sluice::checkpoint {
namespace {

constexpr std::string_view kTrunk = "model.", kHead = "lm_head.", kBert = "bert.";
// Prefixes since transformers 5 and before.
// The last one is for transformers classes without a head, which name their tensors without a prefix.
constexpr std::array<std::string_view, 4> kTrunks = {kTrunk, "model.language_model.", "language_model.model.",
                                                     ""};
constexpr std::array<std::string_view, 3> kHeads = {kHead, "language_model.lm_head.",
                                                    "model.language_model.lm_head."};

// "mlp.experts." for a parameter of experts with a tensor for each of them; "" for other parameters.
std::string experts_path(const model::Parameter& parameter) {
  constexpr std::string_view kFirst = ".experts.0.";
  const size_t at = parameter.tensors.empty() ? std::string::npos : parameter.tensors.front().find(kFirst);
  return at == std::string::npos || parameter.one_dimensional()
             ? ""
             : parameter.tensors.front().substr(0, at + kFirst.size() - 2);
}

// The layout of a tensor of all experts: [experts, out, in] or [experts, in, out]. In `out` the gate's part
// comes before up's.
enum class Stack : uint8_t { kOutIn, kInOut };

model::HuggingFaceTensor stack_of(const model::Bucket& bucket, const model::Parameter& parameter,
                                  Stack stack) {
  const int64_t experts = parameter.experts, rows = parameter.rows / experts, columns = parameter.columns;
  model::HuggingFaceTensor tensor{
      .name = bucket.path + experts_path(parameter) + (parameter.transposed ? "down_proj" : "gate_up_proj"),
      .rows = parameter.rows,
      .columns = columns};
  if (parameter.transposed != (stack == Stack::kInOut)) {
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
  return trunk.empty() && name.starts_with(kBert) ? name.substr(kBert.size()) : name;
}

std::vector<model::HuggingFaceTensor> FileNames::tensors(const model::Bucket& bucket,
                                                         const model::Parameter& parameter) const {
  const bool stacked = stacked_experts != (parameter.of_mtp && mtp_differs);
  const bool stack = stacked && parameter.stacked == 0 && !experts_path(parameter).empty();
  std::vector<model::HuggingFaceTensor> tensors =
      stack ? std::vector{stack_of(bucket, parameter, transposed_experts ? Stack::kInOut : Stack::kOutIn)}
            : model::hugging_face_tensors(bucket, parameter);
  for (model::HuggingFaceTensor& tensor : tensors) tensor.name = of(tensor.name);
  return tensors;
}

namespace {

// The first layer with experts decides. A square matrix fits both layouts; the expert's other one decides.
void find_stacks(const model::ParameterTable& table, const ShapeOf& shape_of, FileNames& names) {
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.stacked > 0 || experts_path(parameter).empty()) continue;
      const model::HuggingFaceTensor plain = stack_of(bucket, parameter, Stack::kOutIn);
      const std::vector<int64_t>* const shape = shape_of(names.of(plain.name));
      if (shape == nullptr) return;
      names.stacked_experts = true;
      if (*shape != plain.shape && *shape == stack_of(bucket, parameter, Stack::kInOut).shape)
        names.transposed_experts = true;
    }
    if (names.stacked_experts) return;
  }
}

// Published files may have a tensor for each expert of the MTP layer beside stacks of all others'.
void find_mtp_stacks(const model::ParameterTable& table, const ShapeOf& shape_of, FileNames& names) {
  for (const std::string& layer :
       {std::string("mtp.layers.0."), base::text(names.trunk, "layers.", table.model.layers(), ".")}) {
    const bool single = shape_of(layer + "mlp.experts.0.down_proj.weight") != nullptr;
    const bool stacked = shape_of(layer + "mlp.experts.down_proj") != nullptr;
    if (single || stacked) names.mtp_differs = stacked != names.stacked_experts;
  }
}

}  // namespace

FileNames find_names(const model::ParameterTable& table, const ShapeOf& shape_of) {
  FileNames names;
  const std::string embedding =
      model::hugging_face_tensors(table.embedding(), table.embedding().parameters.front()).front().name;
  for (const std::string_view trunk : kTrunks) {
    if (embedding.starts_with(kBert) && shape_of(embedding.substr(kBert.size())) != nullptr) names.trunk = "";
    if (!embedding.starts_with(kTrunk)) break;
    if (shape_of(std::string(trunk) + embedding.substr(kTrunk.size())) != nullptr) {
      names.trunk = trunk;
      break;
    }
  }
  for (const std::string_view head : kHeads) {
    if (shape_of(std::string(head) + "weight") != nullptr) {
      names.head = head;
      break;
    }
  }
  find_stacks(table, shape_of, names);
  find_mtp_stacks(table, shape_of, names);
  return names;
}

}  // namespace sluice::checkpoint
