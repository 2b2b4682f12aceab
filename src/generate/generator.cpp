#include "generate/generator.h"

#include <algorithm>

namespace sluice::generate {

Generator::Generator(const Decoder& decoder, const GeneratorOptions& options)
    : decoder_(decoder), options_(options), scheduler_(options.scheduler) {
  validate(options.sampling);
}

int64_t Generator::add(const Request& request, uint64_t number) {
  constexpr uint64_t kMostSamples = uint64_t{1} << 24;
  const int64_t first = scheduler_.add(request);
  for (int sample = 0; sample < request.samples; ++sample) {
    said_.emplace_back();
    streams_.push_back(number * kMostSamples + static_cast<uint64_t>(sample));
  }
  return first;
}

void Generator::hear(int64_t text, std::span<const double> logits) {
  const auto position = static_cast<int64_t>(scheduler_.tokens(text).size());
  const auto index = static_cast<size_t>(text);
  const Choice choice = choose(logits, options_.sampling, streams_[index], position);
  Said& said = said_[index];
  said.ended = std::ranges::find(options_.end_tokens, choice.token) != options_.end_tokens.end();
  if (!said.ended) {
    said.tokens.push_back(choice.token);
    said.log_probabilities.push_back(choice.log_probability);
    ++spoken_;
  }
  scheduler_.said(text, choice.token, said.ended);
  ended_ += scheduler_.finished(text) ? 1 : 0;
}

bool Generator::step() {
  const std::vector<Piece> pieces = scheduler_.next();
  if (pieces.empty()) return false;
  const at::Tensor logits_PV = decoder_.forward(pieces, scheduler_);
  const auto vocabulary = static_cast<size_t>(logits_PV.size(1));
  const double* row = logits_PV.const_data_ptr<double>();
  for (const Piece& piece : pieces) {
    if (!piece.says) continue;
    hear(piece.text, {row, vocabulary});
    row += vocabulary;
  }
  ++passes_;
  return true;
}

}  // namespace sluice::generate
