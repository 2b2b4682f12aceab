// The source of a run's batches: a sampler that draws them, or a list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace sluice::corpus {

// Part of one document: positions [begin_token, begin_token + length_tokens).
struct Sample {
  int64_t document = 0;  // number in the blend
  int64_t begin_token = 0;
  int64_t length_tokens = 0;  // at least 2
  bool operator==(const Sample&) const = default;
};

struct Batch {
  int64_t step = 0;
  std::vector<Sample> samples;
  int64_t tokens = 0;
  bool operator==(const Batch&) const = default;
};

// A sampler's position: everything that resuming needs.
struct SamplerState {
  struct Cursor {
    int64_t position = 0;     // documents passed, over all epochs
    int64_t begin_token = 0;  // first token of the next sequence of the document at `position`
    int64_t delivered_tokens = 0;
    bool operator==(const Cursor&) const = default;
  };
  int64_t step = 0;             // number of the next batch
  uint64_t fingerprint = 0;     // hash of lengths, weights and options; tokens_per_step may change on resume
  std::vector<Cursor> cursors;  // one per corpus
  bool operator==(const SamplerState&) const = default;
};

base::Json to_json(const SamplerState& state);
SamplerState sampler_state_from_json(const base::Json& json, const std::string& name);

// A run's batches in order. Not thread-safe.
class BatchSource {
 public:
  static constexpr int64_t kMostSequences = 1 << 20;  // limit per batch

  virtual ~BatchSource() = default;

  // Returns the batch of step() and increments step(). InputError if no batch is left or none is possible.
  virtual Batch next() = 0;
  // Equivalent to `steps` calls of next().
  virtual void skip(int64_t steps) = 0;
  // The number of the next batch.
  virtual int64_t step() const = 0;
  // Sets the number of the first batch. REQUIRES: no batch was drawn.
  virtual void begin_at(int64_t step) = 0;

  virtual SamplerState state() const = 0;
  // InputError, naming `where` the state came from, if the state belongs to other data or options.
  virtual void restore(const SamplerState& state, const std::string& where = "the checkpoint") = 0;
};

}  // namespace sluice::corpus
