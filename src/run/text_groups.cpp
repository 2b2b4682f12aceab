#include "run/text_groups.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "session/sampling.h"

namespace sluice::run {
namespace {

PreparedStep prepare(RunContext& run, const std::vector<GroupText>& texts, int64_t step,
                     graph::Purpose purpose) {
  return prepare_texts(run.planning().inputs(), texts, step, purpose);
}

}  // namespace

std::vector<GroupText> group_texts(const config::RunConfig& config, const session::DataPhase& phase,
                                   const corpus::Blend& first, int64_t document) {
  const int64_t context = config.data.context_length;
  const bool cuts =
      session::group_by_group(config.head, phase.sampling).overflow == corpus::Overflow::kTruncate;
  std::vector<const corpus::Blend*> blends{&first};
  for (const corpus::Blend& partner : phase.partners) blends.push_back(&partner);
  std::vector<GroupText> texts;
  for (const corpus::Blend* const blend : blends) {
    const int64_t length = blend->length(document);
    if (length < 2 || (length > context && !cuts)) return {};
    GroupText& text = texts.emplace_back();
    text.tokens.resize(static_cast<size_t>(std::min(length, context)));
    blend->read(document, 0, std::ssize(text.tokens), text.tokens.data());
  }
  return texts;
}

std::vector<TextNumbers> text_numbers(RunContext& run, const std::vector<GroupText>& texts, int64_t step) {
  PreparedStep prepared;
  run.control().together("planning an evaluation of texts",
                         [&] { prepared = prepare(run, texts, step, graph::Purpose::kEvaluate); });
  runtime::RowFigures rows;
  {
    const auto running = run.activity().nodes(base::text("evaluating texts of step ", step));
    run.engine().evaluate(prepared.graph, prepared.tokens, &rows);
  }
  return numbers_by_text(prepared, run.control().world_size(), run.rank(), rows,
                         [&](const std::string& own) { return run.control().gather_texts(own); });
}

double margin_of(const corpus::Blend& blend, int64_t document) {
  return blend.label_rule() == nullptr ? 0 : blend.row_label(document).figures.front();
}

HeadOutcome outcome_of(const config::RunConfig& config, const session::DataPhase& phase,
                       const std::vector<TextNumbers>& numbers, const std::vector<double>& margins) {
  if (config.head.kind == config::HeadUse::kReward)
    return bradley_terry(numbers, margins, config.head.center_rewards);
  return matryoshka_info_nce(numbers, 1 + std::ssize(phase.partners), config.head.temperature,
                             config.head.matryoshka);
}

TextGroups::TextGroups(RunContext& run)
    : run_(run),
      data_(run.start().data().phases.front()),
      documents_(data_.training.sources(), session::group_by_group(run.config().head, data_.sampling)),
      step_(run.start().state().step) {
  if (run.start().state().sampler) documents_.restore(*run.start().state().sampler);
}

TextGroups::Batch TextGroups::draw() {
  const int64_t groups = run_.config().head.pairs_per_step;
  Batch batch;
  int64_t drawn = 0;
  for (int64_t tries = 0; drawn < groups; ++tries) {
    if (tries > 100 * groups) {
      throw base::InputError(base::text("of ", tries, " groups of texts only ", drawn, " fit into ",
                                        run_.config().data.context_length,
                                        " tokens: raise data.context_length"));
    }
    const int64_t document = documents_.next().samples.front().document;
    std::vector<GroupText> texts = group_texts(run_.config(), data_, data_.training, document);
    if (texts.empty()) continue;
    std::ranges::move(texts, std::back_inserter(batch.texts));
    batch.margins.push_back(margin_of(data_.training, document));
    ++drawn;
  }
  return batch;
}

std::unique_ptr<PreparedStep> TextGroups::next() {
  if (step_ >= run_.config().train.steps) return nullptr;
  auto [batch, margins] = draw();
  const HeadOutcome outcome = outcome_of(run_.config(), data_, text_numbers(run_, batch, step_), margins);
  // The step divides by the number of targets; each text has one.
  const auto targets = static_cast<double>(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    for (const double gradient : outcome.gradients[i]) batch[i].given.push_back(gradient * targets);
    batch[i].given.push_back(outcome.loss);
  }
  auto step = std::make_unique<PreparedStep>();
  run_.control().together("planning a step on texts",
                          [&] { *step = prepare(run_, batch, step_, graph::Purpose::kTrain); });
  step->known.loss = outcome.loss;
  step->known.accuracy = outcome.accuracy;
  step->known.reward_margin = outcome.margin;
  step->sampler_after = documents_.state();
  step->sampler_after.step = ++step_;
  return step;
}

}  // namespace sluice::run
