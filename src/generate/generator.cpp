#include "generate/generator.h"

#include <algorithm>

namespace sluice::generate {

int64_t Generator::add(const inference::Request& request, const SamplingParams& sampling_params) {
  validate(sampling_params.sampling);
  constexpr uint64_t kMostSamples = uint64_t{1} << 24;
  const int64_t first = scheduler_.add(request);
  for (int sample = 0; sample < request.samples; ++sample)
    texts_[first + sample] = {
        sampling_params, sampling_params.number * kMostSamples + static_cast<uint64_t>(sample), {}};
  return first;
}

void Generator::abort(int64_t text) {
  scheduler_.abort(text);
  scheduler_.erase(text);
  texts_.erase(text);
}

int64_t Generator::alternatives_of(int64_t text) const {
  const auto found = texts_.find(text);
  if (found == texts_.end()) return 0;
  int64_t tokens = decoder_.model().context.shape.vocab;
  for (const base::Interval& none : never_) tokens -= none.size();
  return std::min(found->second.manner.alternatives, tokens);
}

// Ranks of the last stage have the same logits to the bit, so they choose alike; of others nothing is drawn.
Generator::Heard Generator::draw(const ForwardPass& pass) const {
  Heard heard{.choices = {}, .scores = pass.prompt_logprobs};
  size_t scored = 0;
  const bool last = pass.logits_PV.defined();
  const auto vocabulary = last ? static_cast<size_t>(pass.logits_PV.size(1)) : 0;
  const double* next_row = last ? pass.logits_PV.const_data_ptr<double>() : nullptr;
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    scored += static_cast<size_t>(scheduled.prompt_logprob_rows);
    if (!scheduled.needs_sampling) continue;
    SampledToken& choice = heard.choices.emplace_back();
    choice.alternatives.resize(static_cast<size_t>(alternatives_of(scheduled.sequence)));
    if (!last) continue;
    const std::span<const double> row(next_row, vocabulary);
    next_row += vocabulary;
    if (const auto text = texts_.find(scheduled.sequence); text != texts_.end())
      choice = sample_token(row, text->second.manner.sampling, text->second.stream, scheduled.end,
                            {.never = never_,
                             .alternatives = alternatives_of(scheduled.sequence),
                             .tokens = scheduler_.tokens(scheduled.sequence),
                             .given = scheduler_.prompt_tokens(scheduled.sequence)});
  }
  PromptLogprob unknown;
  unknown.alternatives.resize(static_cast<size_t>(pass.alternatives));
  heard.scores.resize(scored, unknown);
  return heard;
}

void Generator::end_turn(Heard& heard) {
  std::vector<double> figures;  // ids are whole numbers, which a double holds
  const auto each = [&](auto visit) {
    const auto visit_all = [&](std::vector<Alternative>& alternatives) {
      for (auto& [token, log_probability] : alternatives) visit(token, log_probability);
    };
    for (auto& [token, log_probability, alternatives] : heard.choices) {
      visit(token, log_probability);
      visit_all(alternatives);
    }
    int64_t none = 0;
    for (auto& [log_probability, alternatives] : heard.scores) {
      visit(none, log_probability);
      visit_all(alternatives);
    }
  };
  each([&](int64_t id, double log_probability) {
    figures.insert(figures.end(), {static_cast<double>(id), log_probability});
  });
  decoder_.send_to_next_stage(passes_, figures);
  auto next = figures.begin();
  each([&](int64_t& id, double& log_probability) {
    id = static_cast<int64_t>(*next++);
    log_probability = *next++;
  });
}

void Generator::hear(const ForwardPass& pass, const Heard& heard) {
  auto choice = heard.choices.begin();
  auto score = heard.scores.begin();
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    const auto text = texts_.find(scheduled.sequence);
    if (text != texts_.end() && scheduled.prompt_logprob_rows > 0) {
      // A text that was put off is scored again, alike.
      std::vector<PromptLogprob>& scores = text->second.said.prompt_logprobs;
      scores.resize(static_cast<size_t>(
          std::max<int64_t>(std::ssize(scores), scheduled.begin + scheduled.prompt_logprob_rows)));
      std::copy_n(score, scheduled.prompt_logprob_rows, scores.begin() + scheduled.begin);
      const auto told = static_cast<size_t>(alternatives_of(scheduled.sequence));
      for (int64_t i = scheduled.begin; i < scheduled.begin + scheduled.prompt_logprob_rows; ++i)
        scores[static_cast<size_t>(i)].alternatives.resize(told);
    }
    score += scheduled.prompt_logprob_rows;
    if (!scheduled.needs_sampling) continue;
    if (text != texts_.end()) hear(scheduled.sequence, *choice);
    ++choice;
  }
}

void Generator::hear(int64_t index, const SampledToken& choice) {
  auto& [manner, stream, said] = texts_.at(index);
  said.finish_reason = std::ranges::find(manner.end_tokens, choice.token) != manner.end_tokens.end();
  if (said.finish_reason) {
    said.end_token = choice.token;
    said.end_log_probability = choice.log_probability;
  } else {
    said.tokens.push_back(choice.token);
    said.log_probabilities.push_back(choice.log_probability);
    if (!choice.alternatives.empty()) said.alternatives.push_back(choice.alternatives);
    ++spoken_;
    said.finish_reason = manner.stop_condition && manner.stop_condition(said);
  }
  scheduler_.append_token(index, choice.token, said.finish_reason);
}

bool Generator::step(const std::function<void()>& between) { return turn(scheduler_.next(), between); }

std::vector<int64_t> Generator::step_within() {
  ForwardPass pass = pass_of(scheduler_.next_within());
  if (pass.scheduled.empty()) return {};
  decoder_.forward(pass);
  hear(pass, draw(pass));
  std::vector<int64_t> texts;
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) texts.push_back(scheduled.sequence);
  return texts;
}

void Generator::settle() {
  while (turn({})) {
  }
}

ForwardPass Generator::pass_of(std::vector<inference::ScheduledTokens> pieces) {
  ForwardPass pass(std::move(pieces), scheduler_);
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    if (scheduled.prompt_logprob_rows > 0)
      pass.alternatives = std::max(pass.alternatives, alternatives_of(scheduled.sequence));
  }
  begun_ += pass.scheduled.empty() ? 0 : 1;
  return pass;
}

bool Generator::turn(std::vector<inference::ScheduledTokens> pieces, const std::function<void()>& between) {
  passes_.pop_back();
  const ForwardPass& begun = passes_.emplace_front(pass_of(std::move(pieces)));
  if (std::ranges::all_of(passes_, [](const ForwardPass& pass) { return pass.scheduled.empty(); }))
    return false;
  last_pass_ = {};
  for (const inference::ScheduledTokens& scheduled : begun.scheduled)
    last_pass_.add(scheduled.begin, scheduled.end, scheduled.needs_sampling,
                   decoder_.model().context.shape.window);
  ForwardPass& here = passes_[static_cast<size_t>(decoder_.model().stages.own)];
  if (!here.scheduled.empty()) decoder_.forward(here, between);
  Heard heard = draw(passes_.back());
  end_turn(heard);
  hear(passes_.back(), heard);
  passes_.back() = {};  // leaves no memory behind
  return true;
}

}  // namespace sluice::generate
