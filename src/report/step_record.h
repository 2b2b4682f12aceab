// The figures of one step, and the table of its metrics. By the table, metrics are gathered from all ranks,
// written to metrics.jsonl and TensorBoard, read back and explained. A new metric is a member and a row in
// step_record.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/json_fwd.h"
#include "report/completions.h"
#include "report/metric_ranges.h"
#include "report/time_shares.h"
#include "watch/detector.h"
#include "watch/figures.h"

namespace sluice::report {

inline double milliseconds(int64_t time_ns) { return static_cast<double>(time_ns) / 1e6; }

// The part of a step's critical path that lay on a rank (graph/step_times.h).
struct PathShare {
  int rank = 0;
  std::string kind;  // graph::name_of a PathKind
  int64_t time_ns = 0;
  int64_t planned_ns = 0;
};

// A step's work with one of several models (docs/decisions/0036-trunks-and-acts.md), on the first rank.
struct ActRecord {
  // "teacher", "critic", "rewards", "values", "reference"; the trained model's: "policy" for
  // log-probabilities before an update, and "update".
  std::string name;
  int64_t time_ns = 0;
  int64_t predicted_ns = 0;  // 0: not known
  int64_t peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;
};

// As a line of metrics has them.
base::Json acts_json(const std::vector<ActRecord>& acts);
// Adds another evaluation to an act: times add up, and the fullest moment counts.
void add(const ActRecord& more, ActRecord& act);

// One step under one system, measured or simulated. The table says what each member means.
struct StepRecord {
  int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> mtp_loss;
  int64_t tokens = 0;
  int64_t sequences = 0;
  std::string strategy;
  std::string fallback;
  std::string device;
  std::string degraded;
  int64_t time_ns = 0;
  int64_t predicted_ns = 0;
  int64_t planning_ns = 0;
  int64_t gap_ppm = 0;
  double grad_norm = 0;
  double lr = 0;
  int64_t pull_bytes = 0;
  int64_t push_bytes = 0;
  int64_t cp_ep_bytes = 0;
  int64_t fsdp_bytes = 0;
  std::optional<double> expert_load_imbalance;
  int64_t unfused_attention = 0;
  int64_t corpus_bytes = 0;
  int64_t pull_push_exposed_ns = 0;
  int64_t fsdp_exposed_ns = 0;
  int64_t peak_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t alloc_retries = 0;
  int64_t predicted_peak_bytes = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;  // none: no peak of its devices is known
  int64_t host_overhead_ns = 0;
  int64_t restarts = 0;
  int64_t ranks = 0;
  int64_t snapshot_bytes = 0;
  int64_t snapshot_ns = 0;
  int64_t checkpoint_blocked_ns = 0;
  std::optional<int64_t> skipped_updates;  // none: no update was skipped
  watch::Figures figures;                  // by rank
  std::vector<watch::Alarm> alarms;        // alarms that are on
  std::vector<ActRecord> acts;             // in their order; empty: the trained model's alone
  std::vector<PathShare> critical_path;    // the longest first; empty: not computed
  std::optional<int64_t> slowest_rank;
  std::optional<double> max_slowdown;
  // Steps that learn from rewards or preferences have these; a rollout's figures stand in its first step.
  std::optional<double> reward;
  std::optional<double> learnt_reward;
  std::optional<double> entropy;
  std::optional<int64_t> groups_kept;
  std::optional<int64_t> sampling_rounds;
  std::optional<int64_t> bad_rewards;
  std::optional<int64_t> response_tokens;
  std::optional<double> response_mean;
  std::optional<int64_t> response_p99;
  std::optional<int64_t> shared_prompt_tokens;
  std::optional<int64_t> rollout_ns;
  std::optional<int64_t> rollout_predicted_ns;
  std::string rollout_strategy;
  std::optional<int64_t> reward_ns;
  std::optional<double> clip_fraction;
  std::optional<double> reference_kl;
  std::optional<double> rollout_logprob_diff;
  std::optional<double> reward_margin;
  std::optional<double> accuracy;
  std::optional<int64_t> teacher_ns;
  std::optional<double> value_loss;
  std::optional<double> value_clip_fraction;
  std::optional<double> critic_grad_norm;
  std::optional<int64_t> critic_ns;
  std::vector<Completion> completions;  // some responses of the rollout, in runs that show them
  // A simulated step has these.
  int64_t lower_bound_ns = 0;  // the planner's; 0: none
  TimeShares shares;           // all 0: not known
};

struct Metric {
  // kText and kReason are texts; an empty kReason is null. kMilliseconds are nanoseconds in memory.
  enum class Kind : uint8_t { kCount, kBytes, kMilliseconds, kNumber, kText, kReason };
  // The value for all ranks: the first rank's own, the sum of theirs, or the greatest of them.
  enum class Fold : uint8_t { kOwn, kSum, kMost };
  using Member =
      std::variant<int64_t StepRecord::*, double StepRecord::*, std::optional<int64_t> StepRecord::*,
                   std::optional<double> StepRecord::*, std::string StepRecord::*>;

  const char* key;
  Member member;
  Kind kind = Kind::kNumber;
  Fold fold = Fold::kOwn;
  const char* tensorboard = nullptr;  // the scalar's name; null: there is none
  const char* meaning = "";
  bool sparse = false;  // left out of lines if it is not known
};

// Metrics in the order of a line. Then come watch::Figures, a list by rank each, alarms and path.
std::span<const Metric> step_metrics();
// The key of a figure, such as "rank_slowdown".
std::string key_of(watch::Figure figure);

// A line of metrics.jsonl of a measured step, and back: missing and null values stay as in a new record.
// InputError naming `place` and the key for values that are out of range.
base::Json to_json(const StepRecord& step);
StepRecord step_record(const base::Json& line, const std::string& place);

// The figures of a rank's record that are combined with the others'; trivial to send.
using RankFigures = std::array<int64_t, 16>;
RankFigures rank_figures(const StepRecord& own);
// Puts the combined figures of all ranks into the record.
void fold(std::span<const RankFigures> of_ranks, StepRecord& step);

// "loss               before the update", a line a metric, for people.
std::string metrics_text();

}  // namespace sluice::report
