// Texts behind prompts: a scheduler decides what goes through the model, the decoder takes it there, and what
// comes out is drawn from. Ranks that have a model between them each have one, are told the same, and hear
// the same. Stages take turns together, each with a pass of its own: of what a text has said all hear when it
// has left the last one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost/decode_cost.h"
#include "generate/decoder.h"
#include "generate/sampling.h"
#include "inference/scheduler.h"

namespace sluice::generate {

// What was said behind a prompt.
struct Output {
  std::vector<int64_t> tokens;            // an end token left out
  std::vector<double> log_probabilities;  // of these
  // Of these the likeliest that could have come, where that was asked for.
  std::vector<std::vector<Alternative>> alternatives;
  std::vector<PromptLogprob>
      prompt_logprobs;         // of the prompt's tokens from the second on, where that was asked for
  bool finish_reason = false;  // by itself, not for want of tokens that may be said
  int64_t end_token = -1;      // that ended it; -1: none did
  double end_log_probability = 0;
};

// How the texts of a request are said.
struct SamplingParams {
  Sampling sampling;
  uint64_t number = 0;              // tells its draws from those of other requests of this seed
  std::vector<int64_t> end_tokens;  // that end a text
  int64_t alternatives = 0;         // that are told of each token, of scored prompts' too
  // Whether what was said so far ends it, of each token; may be empty.
  std::function<bool(const Output& output)> stop_condition = {};
};

class Generator {
 public:
  // The decoder's cache has options.pages, and room for options.most_texts. Rows of the vocabulary in
  // `never`, ascending, are no tokens: they are never said.
  Generator(const Decoder& decoder, inference::SchedulerOptions options,
            std::vector<base::Interval> never = {})
      : decoder_(decoder),
        never_(std::move(never)),
        scheduler_(shared_by(decoder, options)),
        passes_(static_cast<size_t>(decoder.model().stages.count())) {}

  // The first of the request's texts; its other samples follow. InputError as Scheduler::add.
  int64_t add(const inference::Request& request, const SamplingParams& sampling_params);

  // A turn of all stages: one pass more begins, where texts are there to say something, and one ends. False:
  // all texts have ended. `between` is called between two layers of a pass, where step_within() may be.
  bool step(const std::function<void()>& between = {});
  // A pass of clients that have no text under way, within a pass of the others, so that they don't wait for
  // its end. Returns the texts that went through the model; none: no client waits, or there is no room.
  // REQUIRES: one rank has the model.
  std::vector<int64_t> step_within();
  // Ends the passes under way without beginning others; then other parameters may take the place of the
  // model's, and with begin_anew() texts under way go through these from their beginning on. Collective, as
  // step() is.
  void settle();
  void begin_anew() { scheduler_.put_off_all(); }

  const Output& output(int64_t text) const { return texts_.at(text).said; }
  bool finished(int64_t text) const { return scheduler_.finished(text); }
  // Whether a text was neither dropped nor never there.
  bool knows(int64_t text) const { return texts_.contains(text); }
  // Ends a text where it is, and forgets it.
  void abort(int64_t text);

  const inference::Scheduler& scheduler() const { return scheduler_; }
  int64_t generated_tokens() const { return spoken_; }  // tokens of all texts
  int64_t engine_steps() const { return begun_; }
  const cost::DecodeWork& last_engine_step() const {
    return last_pass_;
  }  // that has begun; without rows: none

 private:
  struct Text {
    SamplingParams manner;
    uint64_t stream = 0;  // of draws
    Output said;
  };
  static inference::SchedulerOptions shared_by(const Decoder& decoder, inference::SchedulerOptions options) {
    options.shares_prompts = options.shares_prompts && decoder.shares_prompts();
    options.stages = decoder.model().stages.count();
    return options;
  }
  // What comes next of each piece that says something, and what was asked of prompts.
  struct Heard {
    std::vector<SampledToken> choices;
    std::vector<PromptLogprob> scores;
  };
  bool turn(std::vector<inference::ScheduledTokens> pieces, const std::function<void()>& between = {});
  ForwardPass pass_of(std::vector<inference::ScheduledTokens> pieces);
  Heard draw(const ForwardPass& pass) const;
  // That are told of each token of a text; the same on every rank.
  int64_t alternatives_of(int64_t text) const;
  void end_turn(Heard& heard);
  void hear(const ForwardPass& pass, const Heard& heard);
  void hear(int64_t text, const SampledToken& choice);

  const Decoder& decoder_;
  std::vector<base::Interval> never_;
  inference::Scheduler scheduler_;
  std::unordered_map<int64_t, Text> texts_;
  std::deque<ForwardPass> passes_;  // by the stage that has them
  int64_t spoken_ = 0, begun_ = 0;
  cost::DecodeWork last_pass_;
};

}  // namespace sluice::generate
