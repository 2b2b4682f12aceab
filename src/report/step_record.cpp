#include "report/step_record.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/renames.h"
#include "base/text.h"

namespace sluice::report {
namespace {

using base::Json;
using Kind = Metric::Kind;
using Fold = Metric::Fold;
using Step = StepRecord;

constexpr bool kSparse = true;

constexpr Metric kMetrics[] = {
    {"step", &Step::step, Kind::kCount},
    {"loss", &Step::loss, Kind::kNumber, Fold::kOwn, "train/loss", "mean over targets, before the update"},
    {"mtp_loss", &Step::mtp_loss, Kind::kNumber, Fold::kOwn, "train/mtp_loss",
     "of an MTP layer (train.mtp), mean over its targets, without its weight; not in loss", kSparse},
    {"tokens", &Step::tokens, Kind::kCount},
    {"sequences", &Step::sequences, Kind::kCount},
    {"strategy", &Step::strategy, Kind::kText},
    {"fallback", &Step::fallback, Kind::kReason, Fold::kOwn, nullptr,
     "null, or why the step did not run the planner's own plan (training.md, \"When planning fails\")"},
    {"device", &Step::device, Kind::kText, Fold::kOwn, nullptr,
     "that rank 0 computed on: CPU, or the GPU's name"},
    {"degraded", &Step::degraded, Kind::kReason, Fold::kOwn, nullptr,
     "null, or what made it slower than its machines could have it: GPUs that could not be used, traffic "
     "between them by way of host memory, attention without a fused kernel"},
    {"time_ms", &Step::time_ns, Kind::kMilliseconds, Fold::kOwn, "time/step_ms"},
    {"predicted_ms", &Step::predicted_ns, Kind::kMilliseconds, Fold::kOwn, "time/predicted_ms"},
    {"planning_ms", &Step::planning_ns, Kind::kMilliseconds, Fold::kOwn, "time/planning_ms"},
    {"gap_ppm", &Step::gap_ppm, Kind::kNumber, Fold::kOwn, nullptr,
     "of the schedule over what no plan can beat"},
    {"grad_norm", &Step::grad_norm, Kind::kNumber, Fold::kOwn, "train/grad_norm", "before clipping"},
    {"lr", &Step::lr, Kind::kNumber, Fold::kOwn, "train/lr"},
    {"pull_bytes", &Step::pull_bytes, Kind::kBytes, Fold::kSum, nullptr, "of parameters that ranks received"},
    {"push_bytes", &Step::push_bytes, Kind::kBytes, Fold::kSum, nullptr, "of gradients that ranks sent"},
    {"cp_ep_bytes", &Step::cp_ep_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "for attention and to experts, sent between lanes by whichever exchange"},
    {"fsdp_bytes", &Step::fsdp_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "gathered and summed between lanes that share parameters"},
    {"expert_load_imbalance", &Step::expert_load_imbalance, Kind::kNumber, Fold::kOwn,
     "train/expert_load_imbalance",
     "where lanes divide experts, tokens of the busiest lane over the mean, of rank 0's; planning takes "
     "1.25"},
    {"unfused_attention", &Step::unfused_attention, Kind::kCount, Fold::kSum, nullptr,
     "calls for attention that no fused kernel of their GPU takes"},
    {"corpus_bytes", &Step::corpus_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "tokens, targets and masks that ranks read"},
    {"pull_push_exposed_ms", &Step::pull_push_exposed_ns, Kind::kMilliseconds, Fold::kMost,
     "time/pull_push_exposed_ms", "that the compute stream waited for pull or push"},
    {"fsdp_exposed_ms", &Step::fsdp_exposed_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that it waited for parameters that lanes share, or sums of their gradients"},
    {"peak_bytes", &Step::peak_bytes, Kind::kBytes, Fold::kMost, "memory/peak_bytes",
     "of tensors on the device, as its allocator counts them"},
    {"reserved_bytes", &Step::reserved_bytes, Kind::kBytes, Fold::kMost, nullptr,
     "that a GPU's allocator holds of the device, its cache included; 0 on a CPU, whose system gives block "
     "by "
     "block"},
    {"alloc_retries", &Step::alloc_retries, Kind::kCount, Fold::kSum, nullptr,
     "allocations for which that allocator had to give its cache back first; 0 on a CPU"},
    {"predicted_peak_bytes", &Step::predicted_peak_bytes, Kind::kBytes},
    {"tokens_per_s", &Step::tokens_per_s, Kind::kNumber, Fold::kOwn, "throughput/tokens_per_s"},
    {"mfu", &Step::mfu, Kind::kNumber, Fold::kOwn, "throughput/mfu",
     "model FLOPs utilisation: the FLOPs that the model needs, over what the devices' data sheets promise in "
     "that time; null on devices without one, as CPUs are"},
    {"host_overhead_ms", &Step::host_overhead_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "neither inside nodes nor waiting"},
    {"restarts", &Step::restarts, Kind::kCount, Fold::kOwn, nullptr,
     "0, and one more each time that the run lost or gained ranks"},
    {"ranks", &Step::ranks, Kind::kCount, Fold::kOwn, nullptr, "that trained it"},
    {"snapshot_bytes", &Step::snapshot_bytes, Kind::kBytes, Fold::kOwn, nullptr,
     "sent to replicas beside the step by all ranks; 0 where no snapshot was made"},
    {"snapshot_ms", &Step::snapshot_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that the last one cost: its thread's time on a processor, and what the update waited for it"},
    {"checkpoint_blocked_ms", &Step::checkpoint_blocked_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that saving held the run up since the line before: inside time_ms where the save is asynchronous, "
     "before the step where the run waits for it"},
    {"skipped_updates", &Step::skipped_updates, Kind::kCount, Fold::kOwn, nullptr,
     "left out since the run was started, because a loss or gradient was not finite (train.on_nonfinite)",
     kSparse},
    {"slowest_rank", &Step::slowest_rank, Kind::kCount, Fold::kOwn, nullptr, "whose slowdown is the highest"},
    {"max_slowdown", &Step::max_slowdown, Kind::kNumber, Fold::kOwn, "time/max_slowdown"},
    {"reward", &Step::reward, Kind::kNumber, Fold::kOwn, "rl/reward",
     "mean of a rollout's responses, before overlong ones are punished; this and the following in runs with "
     "[rl] alone, of a rollout by its first step",
     kSparse},
    {"learnt_reward", &Step::learnt_reward, Kind::kNumber, Fold::kOwn, "rl/learnt_reward",
     "the part of it that reward models gave", kSparse},
    {"entropy", &Step::entropy, Kind::kNumber, Fold::kOwn, "rl/entropy",
     "nats a token, estimated by the mean of -log p of the tokens that were sampled", kSparse},
    {"groups_kept", &Step::groups_kept, Kind::kCount, Fold::kOwn, "rl/groups_kept",
     "prompts whose responses are trained on", kSparse},
    {"sampling_rounds", &Step::sampling_rounds, Kind::kCount, Fold::kOwn, nullptr,
     "of rl.prompts_per_step prompts", kSparse},
    {"bad_rewards", &Step::bad_rewards, Kind::kCount, Fold::kOwn, "rl/bad_rewards",
     "responses whose reward failed (rl.on_bad_reward)", kSparse},
    {"response_tokens", &Step::response_tokens, Kind::kCount, Fold::kOwn, nullptr,
     "of all responses that were drawn", kSparse},
    {"response_mean", &Step::response_mean, Kind::kNumber, Fold::kOwn, "rl/response_mean",
     "tokens of a response", kSparse},
    {"response_p99", &Step::response_p99, Kind::kCount, Fold::kOwn, "rl/response_p99", "", kSparse},
    {"shared_prompt_tokens", &Step::shared_prompt_tokens, Kind::kCount, Fold::kOwn, nullptr,
     "of prompts that the step did not compute again for another answer", kSparse},
    {"rollout_ms", &Step::rollout_ns, Kind::kMilliseconds, Fold::kOwn, "time/rollout_ms",
     "that pulling whole models and generating responses took; not in time_ms", kSparse},
    {"rollout_predicted_ms", &Step::rollout_predicted_ns, Kind::kMilliseconds, Fold::kOwn, nullptr,
     "what it would have been if responses had been as long as the rollout's before, of the first any length "
     "as likely; null where no calibration says what passes take",
     kSparse},
    {"rollout_strategy", &Step::rollout_strategy, Kind::kReason, Fold::kOwn, nullptr,
     "the strategy that generated responses", kSparse},
    {"reward_ms", &Step::reward_ns, Kind::kMilliseconds, Fold::kOwn, "time/reward_ms",
     "that rewards took longer than what they are of", kSparse},
    {"clip_fraction", &Step::clip_fraction, Kind::kNumber, Fold::kOwn, "rl/clip_fraction",
     "of tokens whose advantage pulled no more", kSparse},
    {"reference_kl", &Step::reference_kl, Kind::kNumber, Fold::kOwn, "rl/reference_kl",
     "from the reference, nats a token (k3)", kSparse},
    {"rollout_logprob_diff", &Step::rollout_logprob_diff, Kind::kNumber, Fold::kOwn,
     "rl/rollout_logprob_diff",
     "mean |log p - the rollout's|; in a rollout's first step what two layouts and rounding make", kSparse},
    {"reward_margin", &Step::reward_margin, Kind::kNumber, Fold::kOwn, "rl/reward_margin",
     "of pairs, in nats times rl.beta", kSparse},
    {"accuracy", &Step::accuracy, Kind::kNumber, Fold::kOwn, "rl/accuracy",
     "of pairs: margins above 0; of a rollout's responses: a reward of 1 or more from each of rl.reward that "
     "is no model",
     kSparse},
    {"teacher_ms", &Step::teacher_ns, Kind::kMilliseconds, Fold::kOwn, "time/teacher_ms",
     "of time_ms, that the teacher's forward took, its pull included", kSparse},
    {"value_loss", &Step::value_loss, Kind::kNumber, Fold::kOwn, "rl/value_loss",
     "of the critic, before its update; this and the following with rl.algorithm = ppo", kSparse},
    {"value_clip_fraction", &Step::value_clip_fraction, Kind::kNumber, Fold::kOwn, "rl/value_clip_fraction",
     "of tokens whose value is held where it was (rl.value_clip)", kSparse},
    {"critic_grad_norm", &Step::critic_grad_norm, Kind::kNumber, Fold::kOwn, "rl/critic_grad_norm",
     "before clipping", kSparse},
    {"critic_ms", &Step::critic_ns, Kind::kMilliseconds, Fold::kOwn, "time/critic_ms",
     "of time_ms, that the critic's training took, its pull and push included", kSparse},
};

template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;

// One metric of a record as JSON holds it.
Json value_of(const Metric& metric, const Step& step) {
  return std::visit(
      [&](auto member) -> Json {
        const auto& value = step.*member;
        using T = std::decay_t<decltype(value)>;
        if constexpr (kIsOptional<T>) {
          if (!value) return {};
          if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
            if (metric.kind == Kind::kMilliseconds) return milliseconds(*value);
          }
          return *value;
        } else {
          if constexpr (std::is_same_v<T, std::string>) {
            if (metric.kind == Kind::kReason && value.empty()) return {};
          } else if constexpr (std::is_same_v<T, int64_t>) {
            if (metric.kind == Kind::kMilliseconds) return milliseconds(value);
          }
          return value;
        }
      },
      metric.member);
}

// The old names of metrics, by their current names.
const std::map<std::string, std::string>& names_before() {
  static const auto names = [] {
    std::map<std::string, std::string> before;
    for (const base::Rename& row : base::renames()) {
      if (std::ranges::find(row.where, "metrics.jsonl") != row.where.end()) before[row.name] = row.old_name;
    }
    return before;
  }();
  return names;
}

// The key under which a line has a metric. Older lines have some metrics under old names.
std::string key_in(const Json& line, const std::string& key) {
  if (line.contains(key)) return key;
  const auto before = names_before().find(key);
  return before == names_before().end() ? key : before->second;
}

void read(const Metric& metric, const Json& line, const std::string& place, Step& step) {
  const std::string key = key_in(line, metric.key);
  if (!line.contains(key) || line.at(key).is_null()) return;
  const auto whole = [&] {
    if (metric.kind == Kind::kMilliseconds)
      return std::llround(base::require_in(line, key, kMetricMilliseconds, place) * 1e6);
    if (metric.kind == Kind::kNumber) return base::require<long long>(line, key, place);
    return static_cast<long long>(base::require_in(line, key, kMetricCounts, place));
  };
  std::visit(
      [&](auto member) {
        auto& value = step.*member;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>) {
          value = whole();
        } else if constexpr (kIsOptional<T>) {
          value = base::require<typename T::value_type>(line, key, place);
        } else {
          value = base::require<T>(line, key, place);
        }
      },
      metric.member);
}

// Calls use(place among RankFigures, metric, member) for metrics that ranks combine.
template <typename Use>
void for_each_folded(Use use) {
  size_t place = 0;
  for (const Metric& metric : kMetrics) {
    if (metric.fold == Fold::kOwn) continue;
    SLUICE_ASSERT(place < RankFigures{}.size(), "more metrics of ranks than there is room for");
    use(place++, metric, std::get<int64_t Step::*>(metric.member));
  }
}

const char* who(Fold fold) {
  switch (fold) {
    case Fold::kOwn: return "";
    case Fold::kSum: return "; of all ranks";
    case Fold::kMost: return "; of the rank with most";
  }
  return "";
}

}  // namespace

namespace {

// Rounds to three decimal places (`whole`: none), which is finer than anything measured.
Json figures_of(const std::vector<double>& of_ranks, bool whole) {
  Json list = Json::array();
  for (const double value : of_ranks) {
    if (std::isnan(value)) {
      list.push_back(nullptr);
    } else if (whole) {
      list.push_back(std::llround(value));
    } else {
      list.push_back(std::round(value * 1e3) / 1e3);
    }
  }
  return list;
}

void read(const Json& line, const std::string& place, watch::Figures& figures) {
  for (const watch::Figure figure : watch::all_figures()) {
    const std::string key = key_in(line, key_of(figure));
    if (!line.contains(key)) continue;
    for (const Json& value : base::require<Json::array_t>(line, key, place)) {
      if (!value.is_null() && !value.is_number())
        throw base::InputError(base::text(place, ": ", key, " holds ", value.dump(), ", which is no number"));
      figures[figure].push_back(value.is_null() ? watch::kNotKnown : value.get<double>());
    }
  }
}

constexpr base::Range<int> kRanks{0, 1 << 20};

Json alarms_of(const Step& step) {
  Json list = Json::array();
  for (const watch::Alarm& alarm : step.alarms)
    list.push_back({{"rank", alarm.rank},
                    {"metric", watch::name_of(alarm.cause)},
                    {"since", alarm.since},
                    {"score", std::round(alarm.score * 1e3) / 1e3}});
  return list;
}

std::string alarm_metric(const std::string& name) { return base::text("alarms: metric = \"", name, "\""); }

bool is_name_of(const std::string& name, watch::Cause cause) {
  const std::string now = watch::name_of(cause);
  if (name == now) return true;
  const auto before = names_before().find(alarm_metric(now));
  return before != names_before().end() && before->second == alarm_metric(name);
}

void read_alarms(const Json& line, const std::string& place, Step& step) {
  for (const Json& entry : base::require<Json::array_t>(line, "alarms", place)) {
    watch::Alarm alarm{.rank = base::require_in(entry, "rank", kRanks, place),
                       .since = base::require_in(entry, "since", kMetricCounts, place),
                       .score = base::require<double>(entry, "score", place)};
    const auto metric = base::require<std::string>(entry, "metric", place);
    size_t cause = 0;
    while (cause < watch::kCauses && !is_name_of(metric, static_cast<watch::Cause>(cause))) ++cause;
    if (cause == watch::kCauses)
      throw base::InputError(base::text(place, ": ", metric, " is no metric of an alarm"));
    alarm.cause = static_cast<watch::Cause>(cause);
    step.alarms.push_back(alarm);
  }
}

int64_t time_ns_in(const Json& entry, const char* key, const std::string& place) {
  return std::llround(base::require_in(entry, key, kMetricMilliseconds, place) * 1e6);
}

void read_acts(const Json& line, const std::string& place, Step& step) {
  for (const Json& entry : base::require<Json::array_t>(line, "acts", place))
    step.acts.push_back({base::require<std::string>(entry, "name", place), time_ns_in(entry, "ms", place),
                         time_ns_in(entry, "predicted_ms", place),
                         base::require_in(entry, "peak_bytes", kMetricCounts, place),
                         base::require_in(entry, "predicted_peak_bytes", kMetricCounts, place)});
}

Json path_of(const Step& step) {
  Json list = Json::array();
  for (const PathShare& share : step.critical_path)
    list.push_back({{"rank", share.rank},
                    {"kind", share.kind},
                    {"ms", milliseconds(share.time_ns)},
                    {"planned_ms", milliseconds(share.planned_ns)}});
  return list;
}

void read_path(const Json& line, const std::string& key, const std::string& place, Step& step) {
  for (const Json& entry : base::require<Json::array_t>(line, key, place))
    step.critical_path.push_back({base::require_in(entry, "rank", kRanks, place),
                                  base::require<std::string>(entry, "kind", place),
                                  time_ns_in(entry, "ms", place), time_ns_in(entry, "planned_ms", place)});
}

}  // namespace

Json acts_json(const std::vector<ActRecord>& acts) {
  Json list = Json::array();
  for (const ActRecord& act : acts)
    list.push_back({{"name", act.name},
                    {"ms", milliseconds(act.time_ns)},
                    {"predicted_ms", milliseconds(act.predicted_ns)},
                    {"peak_bytes", act.peak_bytes},
                    {"predicted_peak_bytes", act.predicted_peak_bytes}});
  return list;
}

void add(const ActRecord& more, ActRecord& act) {
  act.time_ns += more.time_ns;
  act.predicted_ns += more.predicted_ns;
  act.peak_bytes = std::max(act.peak_bytes, more.peak_bytes);
  act.predicted_peak_bytes = std::max(act.predicted_peak_bytes, more.predicted_peak_bytes);
}

std::span<const Metric> step_metrics() { return kMetrics; }

std::string key_of(watch::Figure figure) { return base::text("rank_", watch::traits(figure).key); }

Json to_json(const StepRecord& step) {
  Json json = Json::object();
  for (const Metric& metric : kMetrics) {
    Json value = value_of(metric, step);
    if (!metric.sparse || !value.is_null()) json[metric.key] = std::move(value);
  }
  for (const watch::Figure figure : watch::all_figures()) {
    const bool whole = watch::traits(figure).unit == watch::FigureTraits::Unit::kCount;
    if (!step.figures[figure].empty()) json[key_of(figure)] = figures_of(step.figures[figure], whole);
  }
  if (!step.alarms.empty()) json["alarms"] = alarms_of(step);
  if (!step.acts.empty()) json["acts"] = acts_json(step.acts);
  if (!step.critical_path.empty()) json["critical_path"] = path_of(step);
  return json;
}

StepRecord step_record(const Json& line, const std::string& place) {
  StepRecord step;
  base::require_in(line, "step", kMetricCounts, place);
  base::require_in(line, "time_ms", kMetricMilliseconds, place);
  for (const Metric& metric : kMetrics) read(metric, line, place, step);
  read(line, place, step.figures);
  if (line.contains("alarms")) read_alarms(line, place, step);
  if (line.contains("acts")) read_acts(line, place, step);
  if (const std::string key = key_in(line, "critical_path"); line.contains(key))
    read_path(line, key, place, step);
  return step;
}

RankFigures rank_figures(const StepRecord& own) {
  RankFigures figures{};
  for_each_folded([&](size_t place, const Metric&, auto member) { figures[place] = own.*member; });
  return figures;
}

void fold(std::span<const RankFigures> of_ranks, StepRecord& step) {
  for_each_folded([&](size_t place, const Metric& metric, auto member) {
    step.*member = 0;
    for (const RankFigures& figures : of_ranks) {
      const int64_t more = figures[place];
      step.*member = metric.fold == Fold::kSum ? step.*member + more : std::max(step.*member, more);
    }
  });
}

std::string metrics_text() {
  constexpr size_t kColumn = 25;
  std::string text;
  const auto add = [&](std::string line, const std::string& meaning) {
    line.resize(kColumn, ' ');
    line += meaning;
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  for (const Metric& metric : kMetrics) add(metric.key, base::text(metric.meaning, who(metric.fold)));
  text += "\nby rank, on more than 64 ranks every tenth step; null where it is not known:\n";
  for (const watch::Figure figure : watch::all_figures()) add(key_of(figure), watch::traits(figure).meaning);
  text += "\nwhere there are any:\n";
  add("alarms", "of ranks that make others wait: rank, metric, the step since when, score (operating.md)");
  add("acts",
      "of steps with several models, on the first rank: name, ms, predicted_ms, peak_bytes, "
      "predicted_peak_bytes");
  add("critical_path",
      "of a step that was looked at whole: rank, kind, ms and planned_ms of what its critical path lay on");
  return text;
}

}  // namespace sluice::report
