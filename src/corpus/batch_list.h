// Batches that a file lists, for runs that repeat another one's: JSON Lines, of which the n-th says which
// sequences the n-th step trains on.
//
//   {"documents": [17, 4, [23, 2048, 512]]}
//
// A document's number in the blend stands for its first context_length tokens, [number, begin, length] for a
// part of it.
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
  std::string name;  // the file's
  std::vector<std::vector<Sample>> steps;
  uint64_t fingerprint = 0;
  bool repeats = false;  // behind its last step it begins anew

  std::vector<int64_t> lengths() const;  // of all sequences, in their order
};

// InputError naming file, line, value and way out when a line is no such list, or a sequence is none of the
// blend's, has fewer than 2 tokens, or more than the context.
BatchList read_batch_list(const std::filesystem::path& path, const Blend& blend, int64_t context_length);

class ListedBatches final : public BatchSource {
 public:
  // The list's first is the batch of step `first_step`.
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
