#include "run/other_adapters.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/peft_folder.h"
#include "config/eval_adapters.h"

namespace sluice::run {
namespace {

using base::text;

bool has_adapters(const model::Bucket& bucket) {
  return std::ranges::any_of(bucket.parameters, [](const model::Parameter& parameter) {
    return parameter.factor != model::Factor::kNone;
  });
}

checkpoint::FileNames names_of_base(const config::RunConfig& config) {
  const std::string& folder = config.model.hf;
  if (folder.empty() || !checkpoint::has_hugging_face_weights(folder)) return {};
  return checkpoint::HuggingFaceModel(folder).record().names;
}

}  // namespace

OtherAdapters::OtherAdapters(const config::RunConfig& config, runtime::ParameterStore& store,
                             survive::Control& control)
    : store_(store) {
  if (config.train.eval_adapters.empty()) return;
  control.together("reading train.eval_adapters", [&] {
    const checkpoint::FileNames names = names_of_base(config);
    for (const auto& [name, folder] : config::named_folders(config.train.eval_adapters)) {
      names_.push_back(name);
      const checkpoint::ParameterSource read = checkpoint::in_place_of(store_.table(), names, folder);
      Masters& masters = all_.emplace_back();
      for (const model::Bucket& bucket : store_.table().buckets) {
        at::Tensor& own = masters.emplace_back();
        if (!bucket.trained || !has_adapters(bucket)) continue;
        const runtime::OwnerSlice& slice = store_.owner(bucket.index);
        std::vector<float> values(static_cast<size_t>(slice.owned.size()));
        read(bucket.index, slice.owned, values.data());
        own = slice.master.clone();
        own.copy_(at::from_blob(values.data(), {slice.owned.size()}, at::kFloat));
      }
    }
  });
}

void OtherAdapters::exchange(size_t index) {
  for (const model::Bucket& bucket : store_.table().buckets) {
    at::Tensor& other = all_[index][static_cast<size_t>(bucket.index)];
    if (!other.defined()) continue;
    store_.wait_for_readers(bucket.index);
    const at::Tensor& master = store_.owner(bucket.index).master;
    const at::Tensor own = master.clone();
    master.copy_(other);
    other.copy_(own);
  }
  store_.refresh_compute_copies();
}

}  // namespace sluice::run
