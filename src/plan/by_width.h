// What packing asks of a sequence on so many lanes, time and again, computed when it is first asked for.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace sluice::plan {

template <typename Value>
class ByWidth {
 public:
  // For so many sequences, on each of these widths, ascending.
  ByWidth(size_t sequences, std::vector<int> widths)
      : widths_(std::move(widths)), known_(sequences * widths_.size()) {}

  // compute(), which must be a function of sequence and width alone; other widths are not remembered.
  template <typename Compute>
  Value of(int sequence, int width, const Compute& compute) {
    const auto at = std::ranges::lower_bound(widths_, width);
    if (at == widths_.end() || *at != width) return compute();
    std::optional<Value>& known =
        known_[static_cast<size_t>(sequence) * widths_.size() + static_cast<size_t>(at - widths_.begin())];
    if (!known) known = compute();
    return *known;
  }

 private:
  std::vector<int> widths_;
  std::vector<std::optional<Value>> known_;
};

}  // namespace sluice::plan
