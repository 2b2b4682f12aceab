#include "generate/generator.h"

#include <algorithm>

namespace sluice::generate {

int64_t Generator::add(const Request& request, const Manner& manner) {
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

void Generator::hear(int64_t index, std::span<const double> logits) {
  auto& [manner, stream, said] = texts_.at(index);
  const auto position = static_cast<int64_t>(scheduler_.tokens(index).size());
  const Choice choice = choose(logits, manner.sampling, stream, position);
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
  const std::vector<Piece> pieces = scheduler_.next();
  if (pieces.empty()) return false;
  const Passed passed = decoder_.forward(pieces, scheduler_);
  const auto vocabulary = static_cast<size_t>(passed.logits_PV.size(1));
  const double* row = passed.logits_PV.const_data_ptr<double>();
  auto score = passed.scores.begin();
  for (const Piece& piece : pieces) {
    // A text that was put off is scored again, alike.
    std::vector<Score>& scores = texts_.at(piece.text).said.prompt;
    if (piece.scored > 0)
      scores.resize(static_cast<size_t>(std::max<int64_t>(scores.size(), piece.begin + piece.scored)));
    for (int64_t i = 0; i < piece.scored; ++i) scores[static_cast<size_t>(piece.begin + i)] = *score++;
    if (!piece.says) continue;
    hear(piece.text, {row, vocabulary});
    row += vocabulary;
  }
  ++passes_;
  return true;
}

}  // namespace sluice::generate
