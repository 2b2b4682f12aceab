#include "ops/attention_input.h"

#include <algorithm>

#include "base/error.h"
#include "ops/device.h"

namespace sluice::ops {

AttentionInput AttentionInput::on(const at::Tensor& kv_TJD) const {
  AttentionInput input = *this;
  const int64_t heads = k_TKD.size(1);
  input.k_TKD = kv_TJD.narrow(1, 0, heads);
  input.v_TKD = kv_TJD.narrow(1, heads, heads);
  return input;
}

PackedSequences packed_sequences(const std::vector<int64_t>& lengths, const at::Device& device) {
  PackedSequences sequences{.begins = {0}};
  for (const int64_t length : lengths) {
    SLUICE_ASSERT(length > 0, "a packed sequence is empty");
    sequences.begins.push_back(sequences.begins.back() + length);
    sequences.longest = std::max(sequences.longest, length);
  }
  if (device.is_cpu()) return sequences;
  const int64_t count = static_cast<int64_t>(sequences.begins.size());
  const at::Tensor host = upload_buffer(count, at::kInt, device);
  std::copy(sequences.begins.begin(), sequences.begins.end(), host.mutable_data_ptr<int32_t>());
  sequences.begins_device = upload(host, device);
  sequences.table = sequence_table(sequences.begins);
  const at::Tensor words =
      upload_buffer(static_cast<int64_t>(sequences.table.words.size()), at::kLong, device);
  std::ranges::copy(sequences.table.words, words.mutable_data_ptr<int64_t>());
  sequences.table_device = upload(words, device);
  return sequences;
}

}  // namespace sluice::ops
