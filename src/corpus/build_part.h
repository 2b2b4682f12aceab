// The part of a build that one machine does: a run of documents, cut where the inputs, laid end to end, are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "corpus/inputs.h"

namespace sluice::corpus {

struct BuildPart {
  int64_t index = 0;  // from 0
  int64_t count = 1;

  bool is_whole() const { return count == 1; }
  // "3/16", counted from 1 as people do.
  std::string text() const { return base::text(index + 1, "/", count); }
};

// Which part has what ends at a byte of all inputs. Parts are in order: each has the documents behind those
// of the one before.
class PartCuts {
 public:
  PartCuts(const std::vector<InputFile>& files, BuildPart part) : part_(part) {
    for (const InputFile& file : files) all_bytes_ += file.size_bytes;
  }

  int64_t part_at(int64_t byte) const {
    if (all_bytes_ == 0) return 0;
    const auto at =
        static_cast<__int128>(std::clamp<int64_t>(byte, 0, all_bytes_)) * part_.count / all_bytes_;
    return std::min(static_cast<int64_t>(at), part_.count - 1);
  }
  bool is_mine(int64_t byte) const { return part_at(byte) == part_.index; }
  bool is_behind(int64_t byte) const { return part_at(byte) > part_.index; }
  // Whether none of the bytes is this part's.
  bool skips(int64_t begin, int64_t end) const {
    return part_at(begin) > part_.index || part_at(end) < part_.index;
  }

 private:
  BuildPart part_;
  int64_t all_bytes_ = 0;
};

}  // namespace sluice::corpus
