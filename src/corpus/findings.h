// The number of findings of one kind, and the first of them for messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice::corpus {

struct Findings {
  static constexpr size_t kShown = 3;
  int64_t count = 0;
  std::vector<std::string> first;  // at most kShown, in order

  void add(std::string found) {
    ++count;
    if (first.size() < kShown) first.push_back(std::move(found));
  }
  // Appends findings that come after these.
  Findings& operator+=(const Findings& other) {
    count += other.count;
    const size_t room = std::min(other.first.size(), kShown - std::min(first.size(), kShown));
    first.insert(first.end(), other.first.begin(), other.first.begin() + static_cast<std::ptrdiff_t>(room));
    return *this;
  }
  // The first of them, followed by "…" if there are more.
  std::string shown(const std::string& separator) const {
    std::string text;
    for (const std::string& each : first) text += (text.empty() ? "" : separator) + each;
    return count > std::ssize(first) ? text + separator + "…" : text;
  }
};

}  // namespace sluice::corpus
