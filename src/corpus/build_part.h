// The part of a build that one machine does: a run of documents between two cuts through all inputs.
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
  int64_t count = 0;  // 0: the build is not divided

  bool is_whole() const { return count == 0; }
  // "3/16": the index counts from 1.
  std::string text() const { return base::text(index + 1, "/", count); }
};

// Assigns documents to parts by the byte, among all inputs laid end to end, at which a document ends. Parts
// are in order: each has the documents behind those of the part before.
class PartCuts {
 public:
  PartCuts(const std::vector<InputFile>& files, BuildPart part)
      : index_(part.index), count_(std::max<int64_t>(part.count, 1)) {
    for (const InputFile& file : files) all_bytes_ += file.size_bytes;
  }

  int64_t part_at(int64_t byte) const {
    if (all_bytes_ == 0) return 0;
    const auto at = static_cast<__int128>(std::clamp<int64_t>(byte, 0, all_bytes_)) * count_ / all_bytes_;
    return std::min(static_cast<int64_t>(at), count_ - 1);
  }
  bool is_mine(int64_t byte) const { return part_at(byte) == index_; }
  bool is_behind(int64_t byte) const { return part_at(byte) > index_; }
  // Whether none of the bytes [begin, end] is this part's.
  bool skips(int64_t begin, int64_t end) const { return part_at(begin) > index_ || part_at(end) < index_; }

 private:
  int64_t index_, count_;
  int64_t all_bytes_ = 0;
};

}  // namespace sluice::corpus
