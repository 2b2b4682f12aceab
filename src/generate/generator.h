// Texts behind prompts: a scheduler decides what goes through the model, the decoder takes it there, and what
// comes out is drawn from.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/decoder.h"
#include "generate/sampling.h"
#include "generate/scheduler.h"

namespace sluice::generate {

struct GeneratorOptions {
  SchedulerOptions scheduler;
  Sampling sampling;
  std::vector<int64_t> end_tokens;  // that end a text
};

// What was said behind a prompt.
struct Said {
  std::vector<int64_t> tokens;            // an end token left out
  std::vector<double> log_probabilities;  // of these
  bool ended = false;                     // by an end token
};

class Generator {
 public:
  // The decoder's cache has options.scheduler.pages.
  Generator(const Decoder& decoder, const GeneratorOptions& options);

  // The first of the request's texts. `number` tells its draws from those of other requests of this seed.
  // InputError as Scheduler::add.
  int64_t add(const Request& request, uint64_t number);

  // One pass through the model. False: all texts have ended.
  bool step();

  const Said& said(int64_t text) const { return said_[static_cast<size_t>(text)]; }
  const Scheduler& scheduler() const { return scheduler_; }
  int64_t spoken() const { return spoken_; }  // tokens of all texts
  int64_t ended() const { return ended_; }    // texts
  int64_t passes() const { return passes_; }

 private:
  void hear(int64_t text, std::span<const double> logits);

  const Decoder& decoder_;
  GeneratorOptions options_;
  Scheduler scheduler_;
  std::vector<Said> said_;         // by text
  std::vector<uint64_t> streams_;  // of draws
  int64_t spoken_ = 0, ended_ = 0, passes_ = 0;
};

}  // namespace sluice::generate
