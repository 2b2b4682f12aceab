#include "run/logits_file.h"

#include "base/text.h"
#include "checkpoint/safetensors.h"

namespace sluice::run {

void write_logits(Evaluator& evaluator, const corpus::Blend& blend, const std::vector<corpus::Batch>& batches,
                  const LogitsFile& file) {
  std::vector<checkpoint::TensorInfo> infos;
  std::vector<at::Tensor> tensors;
  base::Json sequences = base::Json::array();
  for (const corpus::Batch& batch : batches) {
    for (const corpus::Sample& sample : batch.samples) {
      if (static_cast<int64_t>(tensors.size()) == file.sequences) break;
      std::vector<int32_t> ids(static_cast<size_t>(sample.length_tokens));
      blend.read(sample.document, sample.begin_token, sample.length_tokens, ids.data());
      const at::Tensor& logits =
          tensors.emplace_back(evaluator.logits({ids.begin(), ids.end()}).contiguous());
      const bool wide = logits.scalar_type() == c10::ScalarType::Double;
      infos.push_back({.name = base::text("logits.", infos.size()),
                       .type = wide ? checkpoint::TensorType::kFloat64 : checkpoint::TensorType::kFloat32,
                       .shape = logits.sizes().vec()});
      sequences.push_back({{"document", sample.document}, {"begin", sample.begin_token}, {"tokens", ids}});
    }
  }
  checkpoint::SafetensorsWriter writer(file.path, infos, {{"sequences", sequences.dump()}});
  for (const at::Tensor& logits : tensors)
    writer.write(logits.const_data_ptr(), static_cast<int64_t>(logits.nbytes()));
  writer.finish();
}

}  // namespace sluice::run
