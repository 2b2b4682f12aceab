// Batches read from a file, for runs that repeat another run's batches. The file is JSON Lines. Line n lists
// the sequences of step n, as in this example.
//
//   {"documents": [17, 4, [23, 2048, 512]]}
//
// A document's number in the blend stands for its first context_length tokens. The form [number, begin,
// length] stands for a part of the document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "corpus/batch_source.h"
#include "corpus/blend.h"

namespace sluice::corpus {

struct BatchList {
  std::string name;  // the file's name
  std::vector<std::vector<Sample>> steps;
  uint64_t fingerprint = 0;
  bool repeats = false;  // after its last step the list begins anew

  std::vector<int64_t> lengths() const;  // all sequences' lengths, in order
};

// InputError naming file, line, value and way out if a line is not such a list, or if a sequence is not in
// the blend, has fewer than 2 tokens or has more than `context_length`.
BatchList read_batch_list(const std::filesystem::path& path, const Blend& blend, int64_t context_length);

class ListedBatches final : public BatchSource {
 public:
  // The list's first line is the batch of step `first_step`.
  ListedBatches(std::shared_ptr<const BatchList> list, int64_t first_step);

  Batch next() override;
  void skip(int64_t steps) override { step_ += steps; }
  int64_t step() const override { return step_; }
  void begin_at(int64_t step) override { first_step_ = step_ = step; }
  SamplerState state() const override { return {.step = step_, .fingerprint = list_->fingerprint}; }
  void restore(const SamplerState& state, const std::string& where = "the checkpoint") override;

 private:
  std::shared_ptr<const BatchList> list_;
  int64_t first_step_ = 0;
  int64_t step_ = 0;
};

}  // namespace sluice::corpus
