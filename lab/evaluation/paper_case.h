// A case of the published evaluation, to be simulated: its place in the paper, model, GPUs, lengths and batch
// sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "config/run_config.h"
#include "result_lines.h"
#include "session/planning_inputs.h"
#include "study/length_distribution.h"
#include "study/scenario.h"

namespace sluice::bench {

struct Case {
  std::string figure;
  std::string model;  // "7b", "13b", "32b"
  int gpus = 0;
  std::string corpus;  // a law of lengths, or a file of lengths in bench/data: "system", "wikipedia", "code"
  int64_t context = 32768;
  int64_t tokens = 100'000;
  double milp_seconds = 0;  // time limit for FlexSP's MILP, per micro-batch
};

inline const std::vector<int32_t>& corpus_lengths(const std::string& corpus) {
  constexpr int64_t kDocuments = 100'000;
  static std::map<std::string, std::vector<int32_t>> known;
  std::vector<int32_t>& lengths = known[corpus];
  if (!lengths.empty()) return lengths;
  const std::string file = "bench/data/" + corpus + "_lengths.txt";
  lengths = std::filesystem::exists(file) ? session::read_lengths({file})
                                          : study::lengths_by(study::length_law(corpus), kDocuments);
  return lengths;
}

inline study::Scenario scenario_of(const Case& of, int64_t steps) {
  session::PlanningOptions options;
  options.gpus = of.gpus;
  options.calibration = "a800-" + of.model;
  options.context_length = of.context;
  options.tokens_per_step = of.tokens;
  return study::scenario_of(session::resolve_planning(options, corpus_lengths(of.corpus)), steps);
}

inline base::Json key_of(const Case& of, const std::string& system) {
  return {{"figure", of.figure},   {"model", of.model},   {"gpus", of.gpus}, {"corpus", of.corpus},
          {"context", of.context}, {"tokens", of.tokens}, {"system", system}};
}

// The appendices' and smaller figures, with one or a few lines each.
void corpora(ResultLines& results);                   // the laws of lengths beside published facts
void figure_17(ResultLines& results);                 // the longest sequences of 30 large batches
void figure_18(ResultLines& results);                 // steps with equal numbers of tokens differ in time
void figure_19b(ResultLines& results);                // two sequences in one micro-batch, or in two
void figure_20(int64_t steps, ResultLines& results);  // greedy beside ideal dispatch
void appendix_b2(ResultLines& results);               // packs that are long enough to hide the pull

}  // namespace sluice::bench
