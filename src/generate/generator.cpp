#include "generate/generator.h"

#include <algorithm>

namespace sluice::generate {

int64_t Generator::add(const inference::Request& request, const SamplingParams& sampling_params) {
  validate(sampling_params.sampling);
  constexpr uint64_t kMostSamples = uint64_t{1} << 24;
  const int64_t first = scheduler_.add(request);
  for (int sample = 0; sample < request.samples; ++sample)
    sequences_[first + sample] = {
        sampling_params, sampling_params.number * kMostSamples + static_cast<uint64_t>(sample), {}};
  return first;
}

void Generator::abort(int64_t sequence) {
  scheduler_.abort(sequence);
  scheduler_.erase(sequence);
  sequences_.erase(sequence);
}

// The same on every rank; at most the number of tokens.
int64_t Generator::alternatives_of(int64_t sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return 0;
  int64_t tokens = decoder_.model().context.model.vocab();
  for (const base::Interval& none : never_) tokens -= none.size();
  return std::min(found->second.sampling_params.alternatives, tokens);
}

// A sequence that was aborted meanwhile takes the likeliest token, which nobody reads.
RowDraw Generator::draw_of(const inference::ScheduledTokens& scheduled) const {
  static const Sampling kLikeliest;
  const auto found = sequences_.find(scheduled.sequence);
  if (found == sequences_.end()) return {.sampling = &kLikeliest, .context = {.never = never_}};
  return {.sampling = &found->second.sampling_params.sampling,
          .stream = found->second.stream,
          .position = scheduled.end,
          .context = {.never = never_,
                      .alternatives = alternatives_of(scheduled.sequence),
                      .tokens = scheduler_.tokens(scheduled.sequence),
                      .prompt_tokens = scheduler_.prompt_tokens(scheduled.sequence)}};
}

// Ranks of the last stage have equal logits to the bit, so they sample the same tokens. Other stages have no
// logits and return placeholders of the same size.
Generator::Sampled Generator::sample(const ForwardPass& pass) const {
  Sampled sampled{.tokens = {}, .prompt_logprobs = pass.prompt_logprobs};
  size_t scored = 0;
  std::vector<RowDraw> draws;
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    scored += static_cast<size_t>(scheduled.prompt_logprob_rows);
    if (!scheduled.needs_sampling) continue;
    sampled.tokens.emplace_back().alternatives.resize(
        static_cast<size_t>(alternatives_of(scheduled.sequence)));
    draws.push_back(draw_of(scheduled));
  }
  if (pass.logits_PV.defined()) sampled.tokens = sample_rows(pass.logits_PV, draws);
  PromptLogprob placeholder;
  placeholder.alternatives.resize(static_cast<size_t>(pass.alternatives));
  sampled.prompt_logprobs.resize(scored, placeholder);
  return sampled;
}

// Sends the last stage's results to all ranks, as doubles, which hold every token id.
void Generator::send_to_all(Sampled& sampled) {
  std::vector<double> figures;
  const auto each = [&](auto visit) {
    const auto visit_all = [&](std::vector<Alternative>& alternatives) {
      for (auto& [token, log_probability] : alternatives) visit(token, log_probability);
    };
    for (auto& [token, log_probability, alternatives] : sampled.tokens) {
      visit(token, log_probability);
      visit_all(alternatives);
    }
    int64_t none = 0;
    for (auto& [log_probability, alternatives] : sampled.prompt_logprobs) {
      visit(none, log_probability);
      visit_all(alternatives);
    }
  };
  each([&](int64_t id, double log_probability) {
    figures.insert(figures.end(), {static_cast<double>(id), log_probability});
  });
  decoder_.send_to_next_stage(in_flight_, figures);
  auto next = figures.begin();
  each([&](int64_t& id, double& log_probability) {
    id = static_cast<int64_t>(*next++);
    log_probability = *next++;
  });
}

void Generator::append(const ForwardPass& pass, const Sampled& sampled) {
  auto token = sampled.tokens.begin();
  const PromptLogprob* scores = sampled.prompt_logprobs.data();
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    const bool known = knows(scheduled.sequence);
    if (known && scheduled.prompt_logprob_rows > 0) append_prompt_logprobs(scheduled, scores);
    scores += scheduled.prompt_logprob_rows;
    if (!scheduled.needs_sampling) continue;
    if (known) append_token(scheduled.sequence, *token);
    ++token;
  }
}

// A preempted sequence is scored again, with equal results.
void Generator::append_prompt_logprobs(const inference::ScheduledTokens& scheduled,
                                       const PromptLogprob* scores) {
  std::vector<PromptLogprob>& all = sequences_.at(scheduled.sequence).output.prompt_logprobs;
  const int64_t end = scheduled.begin + scheduled.prompt_logprob_rows;
  all.resize(static_cast<size_t>(std::max(std::ssize(all), end)));
  const auto alternatives = static_cast<size_t>(alternatives_of(scheduled.sequence));
  for (int64_t row = scheduled.begin; row < end; ++row) {
    PromptLogprob& score = all[static_cast<size_t>(row)];
    score = *scores++;
    score.alternatives.resize(alternatives);
  }
}

void Generator::append_token(int64_t index, const SampledToken& sampled) {
  auto& [sampling_params, stream, output] = sequences_.at(index);
  const std::vector<int64_t>& end_tokens = sampling_params.end_tokens;
  output.finish_reason = std::ranges::find(end_tokens, sampled.token) != end_tokens.end();
  if (output.finish_reason) {
    output.end_token = sampled.token;
    output.end_log_probability = sampled.log_probability;
  } else {
    output.tokens.push_back(sampled.token);
    output.log_probabilities.push_back(sampled.log_probability);
    if (!sampled.alternatives.empty()) output.alternatives.push_back(sampled.alternatives);
    ++generated_tokens_;
    output.finish_reason = sampling_params.stop_condition && sampling_params.stop_condition(output);
  }
  scheduler_.append_token(index, sampled.token, output.finish_reason);
}

bool Generator::step(const std::function<void()>& between) { return advance(scheduler_.schedule(), between); }

std::vector<int64_t> Generator::step_within() {
  ForwardPass pass = forward_pass(scheduler_.schedule_within());
  if (pass.scheduled.empty()) return {};
  decoder_.forward(pass);
  append(pass, sample(pass));
  std::vector<int64_t> sequences;
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) sequences.push_back(scheduled.sequence);
  return sequences;
}

void Generator::settle() {
  while (advance({})) {
  }
}

ForwardPass Generator::forward_pass(std::vector<inference::ScheduledTokens> scheduled) {
  ForwardPass pass(std::move(scheduled), scheduler_);
  for (const inference::ScheduledTokens& each : pass.scheduled) {
    if (each.prompt_logprob_rows > 0)
      pass.alternatives = std::max(pass.alternatives, alternatives_of(each.sequence));
  }
  engine_steps_ += pass.scheduled.empty() ? 0 : 1;
  return pass;
}

bool Generator::advance(std::vector<inference::ScheduledTokens> scheduled,
                        const std::function<void()>& between) {
  in_flight_.pop_back();
  const ForwardPass& begun = in_flight_.emplace_front(forward_pass(std::move(scheduled)));
  if (std::ranges::all_of(in_flight_, [](const ForwardPass& pass) { return pass.scheduled.empty(); }))
    return false;
  last_engine_step_ = {};
  for (const inference::ScheduledTokens& each : begun.scheduled)
    last_engine_step_.add(each.begin, each.end, each.needs_sampling, decoder_.model().context.model.window());
  ForwardPass& own = in_flight_[static_cast<size_t>(decoder_.model().stages.own)];
  if (!own.scheduled.empty()) decoder_.forward(own, between);
  Sampled sampled = sample(in_flight_.back());
  send_to_all(sampled);
  append(in_flight_.back(), sampled);
  in_flight_.back() = {};  // frees its memory
  return true;
}

}  // namespace sluice::generate
