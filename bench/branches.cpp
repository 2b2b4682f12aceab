// The gain in updates from computing a prompt once for its answers, by costs alone, as a table in Markdown.
// bench/record.py branches writes it.
//
// For each mini-batch, the clock times the graph of the plan: answers one by one, all answers to a prompt
// together, and as many together as a run would choose. Strategies are the same for all, proposed for
// sequences of both kinds.
//
//   branches_bench [MODEL …]
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "lognormal.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "session/planned_step.h"
#include "session/planning_inputs.h"
#include "session/prompt_responses.h"

namespace {

using namespace sluice;

constexpr int kGpus = 64, kPrompts = 32, kSamples = 16, kBatches = 3;
constexpr int64_t kMostAnswer = 8192;
constexpr double kMedian = 1000, kSigma = 0.8;

std::vector<session::PromptResponses> mini_batch(int64_t prompt, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<session::PromptResponses> batch(kPrompts);
  for (session::PromptResponses& answers : batch) {
    answers.prompt_tokens = prompt;
    for (int sample = 0; sample < kSamples; ++sample) {
      answers.lengths.push_back(prompt + bench::lognormal_tokens(rng, kMedian, kSigma, kMostAnswer));
    }
  }
  return batch;
}

plan::Planner planner_for(const std::string& model, int64_t prompt) {
  std::vector<int32_t> lengths;
  for (const int64_t together : {int64_t{1}, int64_t{kSamples}}) {
    for (const strategy::Sequence& sequence : session::response_sequences(mini_batch(prompt, 1), together))
      lengths.push_back(static_cast<int32_t>(sequence.length_tokens));
  }
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const session::PlanningInputs inputs = session::resolve_planning(
      {.gpus = kGpus, .cluster = "h100x8", .model = model, .tokens_per_step = tokens / 2}, lengths);
  return session::make_planner(session::planner_options(inputs), inputs.cost());
}

void print_prompt(const std::string& model, int64_t prompt) {
  const plan::Planner planner = planner_for(model, prompt);
  const model::Model& own = planner.cost().options().model;
  const model::ParameterTable table = model::parameter_table(own, planner.cost().program());
  graph::LinkPlans links;
  double apart_ns = 0, together_ns = 0, chosen_ns = 0, branches = 0, sequences = 0, rows = 0, texts = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::vector<session::PromptResponses> answers =
        mini_batch(prompt, static_cast<uint64_t>(2 + batch));
    const auto step_ns = [&](const std::vector<strategy::Sequence>& of) {
      const auto built = session::try_build_step(planner, table, batch, of, {.link_plans = &links});
      return built ? static_cast<double>(built->graph.makespan_ns) : std::nan("");
    };
    apart_ns += step_ns(session::response_sequences(answers, 1));
    together_ns += step_ns(session::response_sequences(answers, kSamples));
    const auto chosen = session::best_response_sequences(planner, batch, answers);
    chosen_ns += step_ns(chosen);
    sequences += static_cast<double>(chosen.size());
    branches += kPrompts * kSamples;
    for (const strategy::Sequence& of : chosen) rows += static_cast<double>(of.length_tokens);
    for (const session::PromptResponses& each : answers)
      for (const int64_t length : each.lengths) texts += static_cast<double>(length);
  }
  std::printf("| %s | %lld | %.0f | %.0f | %.0f | %.1f | %.2f | %.2f |\n", model.c_str(),
              static_cast<long long>(prompt), apart_ns / 1e6 / kBatches, together_ns / 1e6 / kBatches,
              chosen_ns / 1e6 / kBatches, branches / sequences, texts / rows, apart_ns / chosen_ns);
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> models(words + 1, words + count);
  if (models.empty()) models = {"llama-7b", "llama-32b"};
  std::printf(
      "%d H100s, eight a node; %d prompts, %d answers to each of median %.0f tokens (lognormal, sigma %.1f, "
      "at most %lld).\n\n| model | prompt, tokens | one by one, ms | all together, ms | chosen, ms | answers "
      "a "
      "sequence | rows fewer | faster |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
      kGpus, kPrompts, kSamples, kMedian, kSigma, static_cast<long long>(kMostAnswer));
  for (const std::string& model : models)
    for (const int64_t prompt : {512, 2048, 8192, 32'768}) print_prompt(model, prompt);
}
