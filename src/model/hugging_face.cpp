#include "model/hugging_face.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/counted.h"
#include "model/families/family.h"
#include "model/families/head.h"
#include "model/outline.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::InputError;
using base::Json;
using base::text;

const Family& require_family(Reader& config) {
  const std::string type = base::require<std::string>(config.json(), "model_type", config.name());
  if (const Family* const family = family_of(type); family != nullptr) return *family;
  std::vector<std::string> known;
  for (const Family& family : families()) known.emplace_back(family.model_type);
  config.refuse("model_type", type,
                base::join(known, ", ") + "; sluice plan and simulate count the costs of others");
}

void refuse_unread(const Reader& config) {
  const std::string key = config.unread();
  if (key.empty()) return;
  throw InputError(text(config.name(), ": ", key, " is ", base::excerpt(config.json().at(key)),
                        ", a key that Sluice does not compute: remove it if it does not change the model"));
}

}  // namespace

Outline outline_from_hugging_face(const Json& whole, const std::string& name) {
  Json json = language_config(whole, name);
  if (json.contains("computed") && json.at("computed") == false) json.erase("computed");
  Outline outline{.config = {std::make_shared<const Json>(std::move(json))}};
  Reader config(*outline.config.json, name);
  const Family& family = require_family(config);
  outline.family = family.model_type;
  outline.head = read_head(config, family);
  family.read(config, outline);
  refuse_unread(config);
  try {
    validate(outline);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return outline;
}

Outline outline_to_plan_from_hugging_face(const Json& config, const std::string& name) {
  if (config.is_object() && !get_or<bool>(config, "computed", true, name)) {
    return counted_from_hugging_face(config, name);
  }
  try {
    return outline_from_hugging_face(config, name);
  } catch (const InputError&) {
    const Json inner = language_config(config, name);
    const std::string type = get_or<std::string>(inner, "model_type", "", name);
    try {
      return counted_from_hugging_face(config, name);
    } catch (const InputError&) {
      // If a family has this type, the error of its reader says more.
      if (family_of(type) == nullptr) throw;
    }
    throw;
  }
}

Model model_from_hugging_face(const Json& config, const std::string& name) {
  return outline_from_hugging_face(config, name);
}

Model model_to_plan_from_hugging_face(const Json& config, const std::string& name) {
  return outline_to_plan_from_hugging_face(config, name);
}

namespace {

// Makes a tensor of all experts, in the stored order or transposed with interleaved rows of gate and up.
// Biases are [experts, out].
void stack(const Parameter& parameter, HuggingFaceTensor& tensor) {
  const int64_t experts = parameter.stacked, rows = parameter.rows / experts, columns = parameter.columns;
  const bool vector = parameter.one_dimensional(), other = parameter.transposed;
  const bool turns = (other || vector) && std::ssize(parameter.groups) == 2 * experts;
  if (vector) {
    tensor.shape = {experts, rows};
  } else {
    tensor.shape = other ? std::vector{experts, columns, rows} : std::vector{experts, rows, columns};
  }
  if (turns) {
    tensor.order = {rows, rows * columns, /*halves=*/2, /*half_stride=*/1, /*row_stride=*/2, rows};
  } else if (other) {
    tensor.order = {
        .block_rows = rows, .block_stride = rows * columns, .row_stride = 1, .column_stride = rows};
  }
}

// Stacks experts' factors like PEFT, for parameters [experts, in, out] or [experts, out, in]. Factor a is
// [experts × rank, in], expert by expert; b is [out, rank × experts], with a rank's experts side by side.
void stack_factor(const Parameter& parameter, HuggingFaceTensor& tensor) {
  const int64_t experts = parameter.experts, rows = parameter.rows / experts, columns = parameter.columns;
  if (parameter.start == Start::kAdapter) {
    if (!parameter.transposed) return;  // as stored
    tensor.shape = {experts * columns, rows};
    tensor.order = {
        .block_rows = rows, .block_stride = rows * columns, .row_stride = 1, .column_stride = rows};
  } else if (parameter.transposed) {
    tensor.shape = {columns, rows * experts};
    tensor.order = {
        .block_rows = rows, .block_stride = 1, .row_stride = experts, .column_stride = rows * experts};
  } else {
    const int64_t wide = columns * experts, halves = parameter.stacked > 0 ? 2 : 1;
    tensor.shape = {rows, wide};
    tensor.order = {rows, /*block_stride=*/1, halves, /*half_stride=*/wide, halves * wide, experts};
  }
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const Bucket& bucket, const Parameter& parameter) {
  std::vector<HuggingFaceTensor> tensors;
  int64_t row_begin = 0;
  for (size_t i = 0; i < parameter.tensors.size(); ++i) {
    // A single tensor has all groups; several tensors have one group each.
    const int64_t rows = parameter.tensors.size() == 1 ? parameter.rows : parameter.groups[i].rows;
    HuggingFaceTensor& tensor = tensors.emplace_back();
    tensor.name = bucket.path + parameter.tensors[i];
    tensor.row_begin = row_begin;
    tensor.rows = rows;
    tensor.columns = parameter.columns;
    tensor.order = {.block_rows = rows, .row_stride = tensor.columns};
    tensor.shape = {rows, tensor.columns};
    if (parameter.one_dimensional()) tensor.shape = {rows};
    if (parameter.depthwise && parameter.one_dimensional()) {
      tensor.shape = {1, rows};
    } else if (parameter.depthwise) {
      tensor.shape = {rows, 1, tensor.columns};
    } else if (parameter.by_head) {
      tensor.shape = {1, 1, rows, 1};
    }
    if (parameter.factor != Factor::kNone && parameter.experts > 0) {
      stack_factor(parameter, tensor);
    } else if (parameter.stacked > 0) {
      stack(parameter, tensor);
    } else if (parameter.transposed) {
      tensor.shape = {tensor.columns, rows};
      tensor.order = {.block_rows = rows, .row_stride = 1, .column_stride = rows};
    }
    row_begin += rows;
  }
  SLUICE_ASSERT(row_begin == parameter.rows, parameter.name);
  return tensors;
}

}  // namespace sluice::model
