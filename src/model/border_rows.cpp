#include "model/border_rows.h"

#include <algorithm>

#include "model/layer.h"

namespace sluice::model {
namespace {

const Attention* shared_keys(const Kind& kind, KeySharing sharing) {
  if (kind.layer() == nullptr) return nullptr;
  for (const Part& part : kind.layer()->parts) {
    const auto* const own = std::get_if<Attention>(&part.mixer);
    if (own != nullptr && own->sharing == sharing) return own;
  }
  return nullptr;
}

// The last operation whose layer borrows keys of a slot; -1: none does.
int64_t last_borrower(const Program& program, size_t slot) {
  for (int64_t position = program.size(); position-- > 0;) {
    const Attention* const own = shared_keys(program.kind_at(position), KeySharing::kBorrows);
    if (own != nullptr && own->key_slot == slot) return position;
  }
  return -1;
}

// Columns of a slot's keys and values on a TP rank. REQUIRES: a layer lends them.
int64_t key_columns(const Program& program, size_t slot, int tp) {
  const Attention& own = *shared_keys(program.kind_at(lender_of(program, slot)), KeySharing::kLends);
  return 2 * std::max<int64_t>(1, own.kv_heads / tp) * own.head_dim;
}

bool carries(const Program& program) {
  return std::ranges::any_of(program.kinds(), [](const std::shared_ptr<const Kind>& kind) {
    const bool by_layer = kind->embedding() != nullptr && kind->embedding()->by_layer;
    return by_layer || shared_keys(*kind, KeySharing::kLends) != nullptr;
  });
}

}  // namespace

int64_t lender_of(const Program& program, size_t slot) {
  for (int64_t position = 0; position < program.size(); ++position) {
    const Attention* const own = shared_keys(program.kind_at(position), KeySharing::kLends);
    if (own != nullptr && own->key_slot == slot) return position;
  }
  return -1;
}

bool borrows_keys(const Program& program, int64_t position) {
  return shared_keys(program.kind_at(position), KeySharing::kBorrows) != nullptr;
}

BorderRows border_rows(const Program& program, int64_t position, int tp) {
  BorderRows rows;
  if (!carries(program)) return rows;
  if (const auto& by_layer = program.kinds().front()->embedding()->by_layer; by_layer) {
    const int64_t first = program.blocks().begin;
    rows.layers = {std::clamp<int64_t>(position - first, 0, by_layer->layers), by_layer->layers};
    rows.layer_width = by_layer->width;
  }
  for (size_t slot = 0; slot < kKeySlots; ++slot) {
    const int64_t lender = lender_of(program, slot);
    if (lender < 0 || lender >= position || last_borrower(program, slot) < position) continue;
    rows.keys[slot] = key_columns(program, slot, tp);
  }
  return rows;
}

int64_t border_width(const Program& program, int64_t position, int tp) {
  const BorderRows rows = border_rows(program, position, tp);
  int64_t width = program.kinds().front()->embedding()->table.columns + rows.layer_columns();
  for (const int64_t columns : rows.keys) width += tp * columns;
  return width;
}

int64_t carried_bytes(const Program& program, int64_t position, int tp, int64_t element_bytes) {
  const int64_t hidden = program.kinds().front()->embedding()->table.columns;
  return (element_bytes * (border_width(program, position, tp) - hidden) + tp - 1) / tp;
}

int64_t carried_gradient_width(const Program& program, base::Interval run, int tp) {
  if (!carries(program)) return 0;
  int64_t width = border_rows(program, run.begin, tp).layer_columns();
  for (size_t slot = 0; slot < kKeySlots; ++slot) {
    const int64_t last = last_borrower(program, slot);
    if (run.begin <= last && last < run.end) width += tp * key_columns(program, slot, tp);
  }
  return width;
}

int64_t widest_border(const Program& program, int tp, int stages) {
  int64_t widest = program.kinds().front()->embedding()->table.columns;
  if (!carries(program)) return widest;
  for (int stage = 1; stage < stages; ++stage)
    widest = std::max(widest, border_width(program, program.of_stage(tp, stages, stage).begin, tp));
  return widest;
}

}  // namespace sluice::model
