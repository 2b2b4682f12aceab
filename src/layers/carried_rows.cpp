#include "layers/carried_rows.h"

#include <ATen/ops/cat.h>
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
  if (!dinput_SC.defined()) dinput_SC = at::zeros_like(input_SC);
  const int64_t width = dinput_SP.size(1);
  dinput_SC.narrow(1, (layer - first_layer) * width, width).add_(dinput_SP);
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

at::Tensor packed_border(const at::Tensor& stream_SH, const CarriedRows* carried,
                         const model::BorderRows& border, int tp, Travels travels) {
  if (border.empty()) return stream_SH.contiguous();
  const int64_t shard = stream_SH.size(0);
  std::vector<at::Tensor> all{stream_SH.reshape(-1)};
  const auto add = [&](const at::Tensor& rows, int64_t numbers) {
    all.push_back(rows.defined() ? rows.reshape(-1) : at::zeros({numbers}, stream_SH.options()));
  };
  if (const int64_t columns = border.layer_columns(); columns > 0) {
    const at::Tensor& own = travels == Travels::kRows ? carried->input_SC : carried->dinput_SC;
    const int64_t first = (border.layers.begin - carried->first_layer) * border.layer_width;
    add(own.defined() ? own.narrow(1, first, columns) : own, shard * columns);
  }
  for (size_t slot = 0; slot < model::kKeySlots; ++slot) {
    if (border.keys[slot] == 0) continue;
    const CarriedRows::Keys& own = carried->keys[slot];
    add(travels == Travels::kRows ? own.kv_TK : own.dkv_TK, shard * tp * border.keys[slot]);
  }
  return at::cat(all);
}

at::Tensor unpacked_border(const at::Tensor& packed, int64_t hidden, const model::BorderRows& border, int tp,
                           Travels travels, CarriedRows& carried) {
  int64_t width = hidden + border.layer_columns();
  for (const int64_t columns : border.keys) width += tp * columns;
  const int64_t shard = packed.numel() / width;
  int64_t at = 0;
  const auto next = [&](int64_t rows, int64_t columns) {
    const at::Tensor own = packed.view(-1).narrow(0, at, rows * columns).view({rows, columns});
    at += rows * columns;
    return own;
  };
  const at::Tensor stream_SH = next(shard, hidden).clone();
  if (const int64_t columns = border.layer_columns(); columns > 0) {
    const at::Tensor own = next(shard, columns);
    if (travels == Travels::kRows) {
      carried.input_SC = own.clone();
      carried.first_layer = border.layers.begin;
    } else {
      carried.dinput_SC = at::zeros_like(carried.input_SC);
      const int64_t first = (border.layers.begin - carried.first_layer) * border.layer_width;
      carried.dinput_SC.narrow(1, first, columns).copy_(own);
    }
  }
  for (size_t slot = 0; slot < model::kKeySlots; ++slot) {
    if (border.keys[slot] == 0) continue;
    CarriedRows::Keys& own = carried.keys[slot];
    (travels == Travels::kRows ? own.kv_TK : own.dkv_TK) = next(shard * tp, border.keys[slot]).clone();
  }
  return stream_SH;
}

}  // namespace sluice::layers
