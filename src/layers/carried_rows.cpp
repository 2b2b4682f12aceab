#include "layers/carried_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>
#include <vector>

namespace sluice::layers {

std::vector<at::Tensor> CarriedRows::rows() const {
  std::vector<at::Tensor> all{input_SC, dinput_SC};
  for (const Keys& own : keys) all.insert(all.end(), {own.kv_TK, own.dkv_TK});
  std::erase_if(all, [](const at::Tensor& rows) { return !rows.defined(); });
  return all;
}

int64_t CarriedRows::bytes() const {
  int64_t all = 0;
  for (const at::Tensor& own : rows()) all += static_cast<int64_t>(own.nbytes());
  return all;
}

void CarriedRows::add_input_gradient(int64_t layer, const at::Tensor& dinput_SP) {
  widen_input_gradient();
  const int64_t width = dinput_SP.size(1);
  dinput_SC.narrow(1, (layer - first_layer) * width, width).add_(dinput_SP);
}

void CarriedRows::widen_input_gradient() {
  const int64_t columns = dinput_SC.defined() ? dinput_SC.size(1) : 0;
  if (columns == input_SC.size(1)) return;
  at::Tensor whole_SC = at::zeros_like(input_SC);
  if (columns > 0) whole_SC.narrow(1, whole_SC.size(1) - columns, columns).copy_(dinput_SC);
  dinput_SC = std::move(whole_SC);
}

void CarriedRows::keep_gradients_alone() {
  if (dinput_SC.defined()) widen_input_gradient();
  input_SC.reset();
  for (Keys& own : keys) own.kv_TK.reset();
}

void CarriedRows::add_key_gradient(size_t slot, const at::Tensor& dkv_TK) {
  at::Tensor& sum_TK = keys[slot].dkv_TK;
  if (sum_TK.defined()) {
    sum_TK.add_(dkv_TK);
  } else {
    sum_TK = dkv_TK.clone(at::MemoryFormat::Contiguous);
  }
}

at::Tensor CarriedRows::take_key_gradient(size_t slot) {
  return std::exchange(keys[slot].dkv_TK, at::Tensor());
}

std::vector<at::Tensor> leaving_rows(const at::Tensor& stream_SH, const CarriedRows* carried,
                                     const model::BorderRows& border, int tp, Travels travels) {
  const int64_t shard = stream_SH.size(0);
  std::vector<at::Tensor> all{stream_SH.contiguous()};
  const auto add = [&](const at::Tensor& rows, int64_t count, int64_t columns) {
    all.push_back(rows.defined() ? rows.contiguous() : at::zeros({count, columns}, stream_SH.options()));
  };
  if (const int64_t columns = border.layer_columns(); columns > 0) {
    const at::Tensor& own = travels == Travels::kRows ? carried->input_SC : carried->dinput_SC;
    add(own.defined() ? own.narrow(1, own.size(1) - columns, columns) : own, shard, columns);
  }
  for (size_t slot = 0; slot < model::kKeySlots; ++slot) {
    if (border.keys[slot] == 0) continue;
    const CarriedRows::Keys& own = carried->keys[slot];
    add(travels == Travels::kRows ? own.kv_TK : own.dkv_TK, shard * tp, border.keys[slot]);
  }
  return all;
}

std::vector<at::Tensor> room_for_rows(int64_t shard, int64_t hidden, const at::TensorOptions& like,
                                      const model::BorderRows& border, int tp) {
  std::vector<at::Tensor> all{at::empty({shard, hidden}, like)};
  if (const int64_t columns = border.layer_columns(); columns > 0)
    all.push_back(at::empty({shard, columns}, like));
  for (const int64_t columns : border.keys) {
    if (columns > 0) all.push_back(at::empty({shard * tp, columns}, like));
  }
  return all;
}

at::Tensor take_arrived(std::vector<at::Tensor> arrived, const model::BorderRows& border, Travels travels,
                        CarriedRows& carried) {
  size_t next = 1;
  if (border.layer_columns() > 0) {
    (travels == Travels::kRows ? carried.input_SC : carried.dinput_SC) = std::move(arrived[next++]);
    if (travels == Travels::kRows) carried.first_layer = border.layers.begin;
  }
  for (size_t slot = 0; slot < model::kKeySlots; ++slot) {
    if (border.keys[slot] == 0) continue;
    CarriedRows::Keys& own = carried.keys[slot];
    (travels == Travels::kRows ? own.kv_TK : own.dkv_TK) = std::move(arrived[next++]);
  }
  return std::move(arrived.front());
}

}  // namespace sluice::layers
