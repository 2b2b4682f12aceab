#include "generate/generator.h"

#include <algorithm>

namespace sluice::generate {

int64_t Generator::add(const inference::Request& request, const Manner& manner) {
  validate(manner.sampling);
  constexpr uint64_t kMostSamples = uint64_t{1} << 24;
  const int64_t first = scheduler_.add(request);
  for (int sample = 0; sample < request.samples; ++sample)
    texts_[first + sample] = {manner, manner.number * kMostSamples + static_cast<uint64_t>(sample), {}};
  return first;
}

void Generator::drop(int64_t text) {
  scheduler_.drop(text);
  scheduler_.forget(text);
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
  Heard heard{.choices = {}, .scores = pass.scores};
  size_t scored = 0;
  const bool last = pass.logits_PV.defined();
  const auto vocabulary = last ? static_cast<size_t>(pass.logits_PV.size(1)) : 0;
  const double* next_row = last ? pass.logits_PV.const_data_ptr<double>() : nullptr;
  for (const inference::Piece& piece : pass.pieces) {
    scored += static_cast<size_t>(piece.scored);
    if (!piece.says) continue;
    Choice& choice = heard.choices.emplace_back();
    choice.alternatives.resize(static_cast<size_t>(alternatives_of(piece.text)));
    if (!last) continue;
    const std::span<const double> row(next_row, vocabulary);
    next_row += vocabulary;
    if (const auto text = texts_.find(piece.text); text != texts_.end())
      choice = choose(row, text->second.manner.sampling, text->second.stream, piece.end,
                      {.never = never_,
                       .alternatives = alternatives_of(piece.text),
                       .tokens = scheduler_.tokens(piece.text),
                       .given = scheduler_.given(piece.text)});
  }
  Score unknown;
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
  decoder_.hand_on(passes_, figures);
  auto next = figures.begin();
  each([&](int64_t& id, double& log_probability) {
    id = static_cast<int64_t>(*next++);
    log_probability = *next++;
  });
}

void Generator::hear(const ForwardPass& pass, const Heard& heard) {
  auto choice = heard.choices.begin();
  auto score = heard.scores.begin();
  for (const inference::Piece& piece : pass.pieces) {
    const auto text = texts_.find(piece.text);
    if (text != texts_.end() && piece.scored > 0) {
      // A text that was put off is scored again, alike.
      std::vector<Score>& scores = text->second.said.prompt;
      scores.resize(static_cast<size_t>(std::max<int64_t>(std::ssize(scores), piece.begin + piece.scored)));
      std::copy_n(score, piece.scored, scores.begin() + piece.begin);
      const auto told = static_cast<size_t>(alternatives_of(piece.text));
      for (int64_t i = piece.begin; i < piece.begin + piece.scored; ++i)
        scores[static_cast<size_t>(i)].alternatives.resize(told);
    }
    score += piece.scored;
    if (!piece.says) continue;
    if (text != texts_.end()) hear(piece.text, *choice);
    ++choice;
  }
}

void Generator::hear(int64_t index, const Choice& choice) {
  auto& [manner, stream, said] = texts_.at(index);
  said.ended = std::ranges::find(manner.end_tokens, choice.token) != manner.end_tokens.end();
  if (said.ended) {
    said.end_token = choice.token;
    said.end_log_probability = choice.log_probability;
  } else {
    said.tokens.push_back(choice.token);
    said.log_probabilities.push_back(choice.log_probability);
    if (!choice.alternatives.empty()) said.alternatives.push_back(choice.alternatives);
    ++spoken_;
    said.ended = manner.ends && manner.ends(said);
  }
  scheduler_.said(index, choice.token, said.ended);
}

bool Generator::step(const std::function<void()>& between) { return turn(scheduler_.next(), between); }

std::vector<int64_t> Generator::step_within() {
  ForwardPass pass = pass_of(scheduler_.next_within());
  if (pass.pieces.empty()) return {};
  decoder_.forward(pass);
  hear(pass, draw(pass));
  std::vector<int64_t> texts;
  for (const inference::Piece& piece : pass.pieces) texts.push_back(piece.text);
  return texts;
}

void Generator::settle() {
  while (turn({})) {
  }
}

ForwardPass Generator::pass_of(std::vector<inference::Piece> pieces) {
  ForwardPass pass(std::move(pieces), scheduler_);
  for (const inference::Piece& piece : pass.pieces) {
    if (piece.scored > 0) pass.alternatives = std::max(pass.alternatives, alternatives_of(piece.text));
  }
  begun_ += pass.pieces.empty() ? 0 : 1;
  return pass;
}

bool Generator::turn(std::vector<inference::Piece> pieces, const std::function<void()>& between) {
  passes_.pop_back();
  const ForwardPass& begun = passes_.emplace_front(pass_of(std::move(pieces)));
  if (std::ranges::all_of(passes_, [](const ForwardPass& pass) { return pass.pieces.empty(); })) return false;
  last_pass_ = {};
  for (const inference::Piece& piece : begun.pieces)
    last_pass_.add(piece.begin, piece.end, piece.says, decoder_.model().context.shape.window);
  ForwardPass& here = passes_[static_cast<size_t>(decoder_.model().stages.own)];
  if (!here.pieces.empty()) decoder_.forward(here, between);
  Heard heard = draw(passes_.back());
  end_turn(heard);
  hear(passes_.back(), heard);
  passes_.back() = {};  // leaves no memory behind
  return true;
}

}  // namespace sluice::generate
