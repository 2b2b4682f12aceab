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

// Ranks of one TP group have the same logits to the bit, so they choose alike; other stages are told.
Generator::Heard Generator::listen(std::span<const inference::Piece> pieces) const {
  Passed passed = decoder_.forward(pieces, scheduler_);
  Heard heard{.choices = {}, .scores = std::move(passed.scores)};
  const auto vocabulary = static_cast<size_t>(passed.logits_PV.size(1));
  const double* row = passed.logits_PV.const_data_ptr<double>();
  size_t scored = 0;
  for (const inference::Piece& piece : pieces) {
    scored += static_cast<size_t>(piece.scored);
    if (!piece.says) continue;
    Choice& choice = heard.choices.emplace_back();
    if (!decoder_.speaks()) continue;
    const auto& [manner, stream, said] = texts_.at(piece.text);
    const auto position = static_cast<int64_t>(scheduler_.tokens(piece.text).size());
    choice = choose({row, vocabulary}, manner.sampling, stream, position);
    row += vocabulary;
  }
  heard.scores.resize(scored);
  std::vector<double> figures;  // ids are whole numbers, which a double holds
  const auto each = [&](auto visit) {
    for (auto& [token, log_probability] : heard.choices) visit(token, log_probability);
    for (auto& [log_probability, likeliest, likeliest_log_probability] : heard.scores) {
      visit(likeliest, log_probability);
      visit(likeliest, likeliest_log_probability);
    }
  };
  each([&](int64_t id, double log_probability) {
    figures.insert(figures.end(), {static_cast<double>(id), log_probability});
  });
  decoder_.share(figures);
  auto next = figures.begin();
  each([&](int64_t& id, double& log_probability) {
    id = static_cast<int64_t>(*next++);
    log_probability = *next++;
  });
  return heard;
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
    ++spoken_;
    said.ended = manner.ends && manner.ends(said);
  }
  scheduler_.said(index, choice.token, said.ended);
}

bool Generator::step() {
  const std::vector<inference::Piece> pieces = scheduler_.next();
  if (pieces.empty()) return false;
  last_pass_ = {};
  for (const inference::Piece& piece : pieces)
    last_pass_.add(piece.begin, piece.end, piece.says, decoder_.model().context.shape.window);
  const Heard heard = listen(pieces);
  auto choice = heard.choices.begin();
  auto score = heard.scores.begin();
  for (const inference::Piece& piece : pieces) {
    // A text that was put off is scored again, alike.
    std::vector<Score>& scores = texts_.at(piece.text).said.prompt;
    if (piece.scored > 0)
      scores.resize(static_cast<size_t>(std::max<int64_t>(scores.size(), piece.begin + piece.scored)));
    for (int64_t i = 0; i < piece.scored; ++i) scores[static_cast<size_t>(piece.begin + i)] = *score++;
    if (!piece.says) continue;
    hear(piece.text, *choice++);
  }
  ++passes_;
  return true;
}

}  // namespace sluice::generate
