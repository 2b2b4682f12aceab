// Text generation: a scheduler chooses the tokens of each engine step, the decoder computes them, and
// sampling draws the next tokens. Each rank of a model that is cut over several has a Generator; all get the
// same requests and see the same tokens. Pipeline stages advance together, each with an engine step of its
// own; the tokens that the last stage samples are sent to all ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost/decode_cost.h"
#include "generate/decoder.h"
#include "generate/row_sampling.h"
#include "generate/sampling.h"
#include "inference/scheduler.h"

namespace sluice::generate {

// The generated part of a sequence.
struct Output {
  std::vector<int64_t> tokens;            // without the end token
  std::vector<double> log_probabilities;  // for each of `tokens`
  // The likeliest tokens at each of these positions, if the request asked for them.
  std::vector<std::vector<Alternative>> alternatives;
  // For the prompt's tokens from the second on, if the request asked for them.
  std::vector<PromptLogprob> prompt_logprobs;
  bool finish_reason = false;  // ended by an end token or a stop condition, not by its maximum length
  int64_t end_token = -1;      // the end token, if any; -1: none
  double end_log_probability = 0;
};

struct SamplingParams {
  Sampling sampling;
  uint64_t number = 0;  // the request's, so that requests with the same seed have different draws
  std::vector<int64_t> end_tokens;
  int64_t alternatives = 0;  // likeliest tokens to report at each position, of scored prompts too
  // Called after each token: whether the output ends here. May be empty.
  std::function<bool(const Output& output)> stop_condition = {};
};

class Generator {
 public:
  // The decoder's cache has options.kv_blocks blocks and room for options.max_num_seqs sequences. Rows of the
  // vocabulary in `never`, ascending, are no tokens and are never sampled. The decoder must outlive it.
  Generator(const Decoder& decoder, inference::SchedulerOptions options,
            std::vector<base::Interval> never = {})
      : decoder_(decoder),
        never_(std::move(never)),
        scheduler_(for_model(decoder, options)),
        in_flight_(static_cast<size_t>(decoder.model().stages.count())) {}

  // The number of the request's first sequence; its other samples follow. InputError as Scheduler::add.
  int64_t add(const inference::Request& request, const SamplingParams& sampling_params);

  // All stages advance: one engine step begins and one ends. False: all sequences have ended. `between` is
  // called between two layers, and may call step_within().
  bool step(const std::function<void()>& between = {});
  // An engine step for newcomers inside the current one (Scheduler::schedule_within), so that they do not
  // wait for its end. Returns its sequences. REQUIRES: the model is on one rank.
  std::vector<int64_t> step_within();
  // Ends the engine steps in flight without beginning others. The model's parameters may change then; after
  // preempt_all() the running sequences are computed anew with the new ones. Collective, as step() is.
  void settle();
  void preempt_all() { scheduler_.preempt_all(); }

  const Output& output(int64_t sequence) const { return sequences_.at(sequence).output; }
  bool finished(int64_t sequence) const { return scheduler_.finished(sequence); }
  // False once the sequence was aborted.
  bool knows(int64_t sequence) const { return sequences_.contains(sequence); }
  // Ends a sequence, if it has not ended, and forgets it.
  void abort(int64_t sequence);

  const inference::Scheduler& scheduler() const { return scheduler_; }
  int64_t generated_tokens() const { return generated_tokens_; }  // over all sequences
  int64_t engine_steps() const { return engine_steps_; }
  // Work of the engine step that began last; without rows: none did.
  const cost::DecodeWork& last_engine_step() const { return last_engine_step_; }

 private:
  struct Sequence {
    SamplingParams sampling_params;
    uint64_t stream = 0;  // random stream of its draws
    Output output;
  };
  // Results of an engine step: the next token of each sequence that needs sampling, and scores of prompts.
  struct Sampled {
    std::vector<SampledToken> tokens;
    std::vector<PromptLogprob> prompt_logprobs;
  };
  static inference::SchedulerOptions for_model(const Decoder& decoder, inference::SchedulerOptions options) {
    options.shares_prompts = options.shares_prompts && decoder.shares_prompts();
    options.stages = decoder.model().stages.count();
    return options;
  }
  bool advance(std::vector<inference::ScheduledTokens> scheduled, const std::function<void()>& between = {});
  ForwardPass forward_pass(std::vector<inference::ScheduledTokens> scheduled);
  Sampled sample(const ForwardPass& pass) const;
  RowDraw draw_of(const inference::ScheduledTokens& scheduled) const;
  int64_t alternatives_of(int64_t sequence) const;
  void send_to_all(Sampled& sampled);
  void append(const ForwardPass& pass, const Sampled& sampled);
  void append_prompt_logprobs(const inference::ScheduledTokens& scheduled, const PromptLogprob* scores);
  void append_token(int64_t sequence, const SampledToken& sampled);

  const Decoder& decoder_;
  std::vector<base::Interval> never_;
  inference::Scheduler scheduler_;
  std::unordered_map<int64_t, Sequence> sequences_;
  std::deque<ForwardPass> in_flight_;  // by the stage that computes it
  int64_t generated_tokens_ = 0, engine_steps_ = 0;
  cost::DecodeWork last_engine_step_;
};

}  // namespace sluice::generate
