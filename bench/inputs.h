// Inputs of the planning benchmarks: lengths, and a description of the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::bench {

// Reads one length per line, clamped to [shortest, longest] tokens. InputError if there is none.
inline std::vector<int64_t> read_lengths(const std::string& path, int64_t shortest = 0,
                                         int64_t longest = std::numeric_limits<int64_t>::max()) {
  std::ifstream file(path);
  std::vector<int64_t> lengths;
  for (int64_t length = 0; file >> length;) lengths.push_back(std::clamp(length, shortest, longest));
  if (lengths.empty()) throw base::InputError("no lengths in " + path);
  return lengths;
}

inline std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace sluice::bench
