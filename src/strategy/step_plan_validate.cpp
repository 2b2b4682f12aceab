// Validates step plans.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "strategy/pass.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::text;

// Sums of sequence lengths up to this one stay inside 64 bits for any number of sequences that fits memory.
constexpr int64_t kMaxLengthTokens = int64_t{1} << 32;

void validate_sequences(const StepPlan& plan) {
  if (plan.step < 0) throw InputError(text("step ", plan.step, " is negative"));
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const Sequence& sequence = plan.sequences[s];
    if (sequence.document < 0)
      throw InputError(text("sequence ", s, ": document ", sequence.document, " is negative"));
    if (sequence.begin_token < 0)
      throw InputError(text("sequence ", s, ": begin ", sequence.begin_token, " is negative"));
    if (sequence.length_tokens < 1 || sequence.length_tokens > kMaxLengthTokens) {
      throw InputError(text("sequence ", s, ": length ", sequence.length_tokens, " is outside [1, ",
                            kMaxLengthTokens, "]"));
    }
    validate_branches(sequence, s);
  }
}

void validate_stages(const PipelinePlan& plan) {
  const std::vector<int64_t>& layers = plan.stage_layers;
  const bool fits =
      layers.size() == static_cast<size_t>(plan.pipeline.scheme.pp) && std::ranges::min(layers) > 0;
  if (layers.empty() || fits) return;
  throw InputError(text("stage_layers of ", to_text(plan.pipeline.scheme), " are ", stages_text(layers),
                        ": give a number above 0 for each stage"));
}

// Checks the micro-batches of one pipeline.
class MicroBatchChecks {
 public:
  MicroBatchChecks(const StepPlan& plan, size_t pipeline) : plan_(plan), pipeline_(plan.pipelines[pipeline]) {
    const int lanes = pipeline_.pipeline.scheme.cp;
    std::vector<int> of_lane(static_cast<size_t>(lanes), 0);
    for (const PipelineMicroBatch& micro_batch : pipeline_.micro_batches) {
      const bool inside =
          micro_batch.first_lane >= 0 && micro_batch.lanes >= 1 && micro_batch.end_lane() <= lanes;
      if (!inside) {
        throw InputError(text("pipeline ", pipeline, " ", to_text(pipeline_.pipeline.scheme),
                              ": a micro-batch lies on ", micro_batch.lanes, " lanes from lane ",
                              micro_batch.first_lane, " on, but it has ", lanes));
      }
      names_.push_back(micro_batch.lanes > 1
                           ? text("ring ", micro_batch.number, " of pipeline ", pipeline)
                           : text("micro-batch ", of_lane[static_cast<size_t>(micro_batch.first_lane)],
                                  " of lane ", micro_batch.first_lane, " of pipeline ", pipeline));
      for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane)
        ++of_lane[static_cast<size_t>(lane)];
    }
    check_order(pipeline, lanes);
  }

  void check(std::vector<char>& planned) const {
    std::set<int> rings;
    for (size_t u = 0; u < names_.size(); ++u) {
      const PipelineMicroBatch& micro_batch = pipeline_.micro_batches[u];
      const std::string& name = names_[u];
      try {
        validate(micro_batch.memory);
      } catch (const InputError& error) {
        throw InputError(text(name, ": ", error.what()));
      }
      check_exchange(micro_batch, name);
      if (micro_batch.pass && pipeline_.pipeline.scheme.fsdp == 1) {
        throw InputError(text(name, ": it is in pass ", *micro_batch.pass,
                              ", but its lanes share no parameters: leave it out"));
      }
      if (micro_batch.lanes > 1 && micro_batch.number < 0)
        throw InputError(text(name, ": a ring's number is at least 0"));
      if (micro_batch.lanes > 1 && !rings.insert(micro_batch.number).second)
        throw InputError(text(name, ": it is there twice"));
      if (!micro_batch.own.empty() &&
          (micro_batch.lanes == 1 || micro_batch.own.size() != static_cast<size_t>(micro_batch.lanes))) {
        throw InputError(text(name, ": it has ", micro_batch.own.size(), " lists of whole sequences on ",
                              micro_batch.lanes, " lanes"));
      }
      if (micro_batch.lanes > 1 && micro_batch.sequences.empty())
        throw InputError(text(name, ": it shares no sequence"));
      for (const MicroBatchSequence& sequence : micro_batch.sequences)
        check_sequence(sequence, name, planned);
      for (const auto& lane : micro_batch.own) {
        for (const MicroBatchSequence& sequence : lane) check_sequence(sequence, name, planned);
      }
      check_sizes(micro_batch, name);
    }
  }

 private:
  static void check_exchange(const PipelineMicroBatch& micro_batch, const std::string& name) {
    const std::string exchange = text(name, ": its exchange is '", name_of(micro_batch.exchange), "'");
    if (micro_batch.exchange != Exchange::kRing && micro_batch.lanes == 1)
      throw InputError(text(exchange, " on one lane, which has nothing to exchange"));
    const bool nested = micro_batch.exchange == Exchange::kNested;
    const int runs = micro_batch.nested_lanes;
    if (nested && (runs < 2 || runs >= micro_batch.lanes || micro_batch.lanes % runs != 0)) {
      throw InputError(text(exchange, " with runs of ", runs, " lanes: choose a divisor of its ",
                            micro_batch.lanes, " lanes between 2 and ", micro_batch.lanes / 2,
                            ", or another exchange"));
    }
    if (!nested && runs != 0) throw InputError(text(exchange, ", which has no runs of ", runs, " lanes"));
  }

  void check_order(size_t pipeline, int lanes) const {
    const auto order = injection_order(micro_batches_by_lane(pipeline_.micro_batches, lanes));
    if (order && std::ranges::is_sorted(*order)) return;
    throw InputError(text("pipeline ", pipeline, ": its micro-batches are not in the order of injection"));
  }

  void check_sequence(const MicroBatchSequence& of, const std::string& name,
                      std::vector<char>& planned) const {
    if (of.sequence < 0 || static_cast<size_t>(of.sequence) >= plan_.sequences.size()) {
      throw InputError(
          text(name, ": sequence ", of.sequence, " is outside [0, ", plan_.sequences.size(), ")"));
    }
    const auto s = static_cast<size_t>(of.sequence);
    if (of.length_tokens != plan_.sequences[s].length_tokens) {
      throw InputError(text(name, ": sequence ", s, " has ", of.length_tokens, " tokens there but ",
                            plan_.sequences[s].length_tokens, " in the batch"));
    }
    if (of != micro_batch_sequence(of.sequence, plan_.sequences[s]))
      throw InputError(text(name, ": sequence ", s, " has other branches there than in the batch"));
    if (planned[s]++ != 0) throw InputError(text(name, ": sequence ", s, " is in two micro-batches"));
  }

  void check_sizes(const PipelineMicroBatch& micro_batch, const std::string& name) const {
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
      const int64_t tokens = micro_batch.tokens_on(lane);
      if (tokens == 0 && micro_batch.lanes == 1) throw InputError(text(name, ": it is empty"));
      if (tokens == 0) {
        throw InputError(text(name, ": it leaves lane ", lane, " without tokens: a ring over ",
                              micro_batch.lanes, " lanes needs a sequence of ", 2 * micro_batch.lanes,
                              " tokens"));
      }
      if (tokens > pipeline_.max_len_tokens) {
        throw InputError(text(name, ": ", tokens, " tokens on lane ", lane, " are more than max_len ",
                              pipeline_.max_len_tokens));
      }
    }
  }

  const StepPlan& plan_;
  const PipelinePlan& pipeline_;
  std::vector<std::string> names_;  // micro-batches' names for errors
};

}  // namespace

void validate_branches(const Sequence& sequence, size_t index) {
  int64_t left = sequence.length_tokens;
  for (const int64_t branch : sequence.branches) {
    if (branch < 1 || branch >= left) {
      throw InputError(text("sequence ", index, " of ", sequence.length_tokens, " tokens: a branch of ",
                            branch, ", where ", left,
                            " are left: each needs one, and the prefix that they share one"));
    }
    left -= branch;
  }
}

void validate(const StepPlan& plan, int world_size) {
  validate(plan.strategy(), world_size);
  for (const PipelinePlan& pipeline : plan.pipelines) validate_stages(pipeline);
  validate_sequences(plan);
  std::vector<char> planned(plan.sequences.size(), 0);
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    MicroBatchChecks(plan, p).check(planned);
    passes(plan.pipelines[p], text("pipeline ", p));
  }
  for (size_t s = 0; s < planned.size(); ++s) {
    if (planned[s] == 0) throw InputError(text("sequence ", s, " is in no micro-batch"));
  }
}

}  // namespace sluice::strategy
