#include "plan/floor_table.h"

#include "base/never.h"

namespace sluice::plan {

FloorTable::FloorTable(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups)
    : sequences_(lengths.size()), tokens_(lengths.begin(), lengths.end()) {
  const cost::Work all = groups.empty() ? cost::Work{} : groups.front().scheme->work_of(lengths);
  const int64_t shortest = lengths.empty() ? 0 : lengths.back();
  floors_ns_.reserve(groups.size() * sequences_);
  for (const SchemeGroup& group : groups) {
    const int stage = group.scheme->floors().busiest_stage(all, shortest);
    const bool waits = group.scheme->scheme().pp > 1 && group.scheme->scheme().cp == 1;
    for (const int64_t length : lengths) {
      const bool fits = length <= group.scheme->max_len_tokens();
      const int64_t floor_ns = fits ? group.scheme->floors().floor_ns(stage, length) : base::kNever;
      floors_ns_.push_back(floor_ns);
      path_beyond_ns_.push_back(fits && waits ? group.scheme->floors().path_ns(length) - floor_ns : 0);
      shares_ns_.push_back(fits ? floor_ns - group.scheme->floors().work_floor_ns(stage, length) : 0);
    }
    constant_ns_.push_back(group.scheme->floors().constant_ns(stage));
    bubbles_.emplace_back(*group.scheme, stage, lengths);
    const bool single = group.scheme->scheme().pp == 1 && group.scheme->scheme().cp == 1;
    batch_tokens_.push_back(single ? group.scheme->max_len_tokens() : 0);
    stage_.push_back(stage);
    fill_ns_.push_back(group.scheme->floors().fill_ns(stage, shortest));
    const bool holds_all = !lengths.empty() && lengths.front() <= group.scheme->max_len_tokens();
    longest_path_ns_.push_back(holds_all ? group.scheme->floors().path_ns(lengths.front()) : base::kNever);
  }
}

}  // namespace sluice::plan
