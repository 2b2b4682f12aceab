#include "report/step_record.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_fields.h"
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
    {"tokens", &Step::tokens, Kind::kCount},
    {"sequences", &Step::sequences, Kind::kCount},
    {"strategy", &Step::strategy, Kind::kText},
    {"fallback", &Step::fallback, Kind::kReason, Fold::kOwn, nullptr,
     "null, or why the step did not run the planner's own plan (training.md, \"When planning fails\")"},
    {"device", &Step::device, Kind::kText, Fold::kOwn, nullptr,
     "that rank 0 computed on: CPU, or the GPU's name"},
    {"degraded", &Step::degraded, Kind::kReason, Fold::kOwn, nullptr,
     "null, or what made it slower than its machines could have it: GPUs that could not be used, traffic "
     "between "
     "them by way of host memory, attention without a fused kernel"},
    {"time_ms", &Step::time_ns, Kind::kMilliseconds, Fold::kOwn, "time/step_ms"},
    {"predicted_ms", &Step::predicted_ns, Kind::kMilliseconds, Fold::kOwn, "time/predicted_ms"},
    {"planning_ms", &Step::planning_ns, Kind::kMilliseconds, Fold::kOwn, "time/planning_ms"},
    {"gap_ppm", &Step::gap_ppm, Kind::kNumber, Fold::kOwn, nullptr,
     "of the schedule over what no plan can beat"},
    {"grad_norm", &Step::grad_norm, Kind::kNumber, Fold::kOwn, "train/grad_norm", "before clipping"},
    {"lr", &Step::lr, Kind::kNumber, Fold::kOwn, "train/lr"},
    {"pull_bytes", &Step::pull_bytes, Kind::kBytes, Fold::kSum, nullptr, "of parameters that ranks received"},
    {"push_bytes", &Step::push_bytes, Kind::kBytes, Fold::kSum, nullptr, "of gradients that ranks sent"},
    {"ring_bytes", &Step::ring_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "for attention, sent between lanes by whichever exchange"},
    {"share_bytes", &Step::share_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "gathered and summed between lanes that share parameters"},
    {"unfused_attention", &Step::unfused_attention, Kind::kCount, Fold::kSum, nullptr,
     "calls for attention that no fused kernel of their GPU takes"},
    {"corpus_bytes", &Step::corpus_bytes, Kind::kBytes, Fold::kSum, nullptr,
     "tokens, targets and masks that ranks read"},
    {"link_exposed_ms", &Step::link_exposed_ns, Kind::kMilliseconds, Fold::kMost, "time/link_exposed_ms",
     "that the compute stream waited for pull or push"},
    {"gather_exposed_ms", &Step::gather_exposed_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that it waited for parameters that lanes share, or sums of their gradients; on GPUs what the CPU "
     "waited"},
    {"peak_bytes", &Step::peak_bytes, Kind::kBytes, Fold::kMost, "memory/peak_bytes",
     "of tensors on the device, as its allocator counts them"},
    {"predicted_peak_bytes", &Step::predicted_peak_bytes, Kind::kBytes},
    {"tokens_per_s", &Step::tokens_per_s, Kind::kNumber, Fold::kOwn, "throughput/tokens_per_s"},
    {"overhead_ms", &Step::overhead_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "neither inside nodes nor waiting"},
    {"epoch", &Step::epoch, Kind::kCount, Fold::kOwn, nullptr,
     "0, and one more each time that the run lost or gained ranks"},
    {"ranks", &Step::ranks, Kind::kCount, Fold::kOwn, nullptr, "that trained it"},
    {"snapshot_bytes", &Step::snapshot_bytes, Kind::kBytes, Fold::kOwn, nullptr,
     "sent to buddies beside the step by all ranks; 0 where no snapshot was made"},
    {"snapshot_ms", &Step::snapshot_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that the last one cost: its thread's time on a processor, and what the update waited for it"},
    {"checkpoint_blocked_ms", &Step::checkpoint_blocked_ns, Kind::kMilliseconds, Fold::kMost, nullptr,
     "that saving held the run up since the line before: inside time_ms where the save is asynchronous, "
     "before "
     "the step where the run waits for it"},
    {"rank_pace", &Step::rank_pace, Kind::kNumber, Fold::kOwn, nullptr,
     "by rank: computed over planned, relative to the ranks' median (operating.md); 0 where it is not known; "
     "on more "
     "than 64 ranks every tenth step"},
    {"rank_wait_ms", &Step::rank_wait_ms, Kind::kNumber, Fold::kOwn, nullptr,
     "by rank: what it waited for others, likewise"},
    {"slowest_rank", &Step::slowest_rank, Kind::kCount, Fold::kOwn, nullptr, "whose pace is the highest"},
    {"slowest_pace", &Step::slowest_pace, Kind::kNumber, Fold::kOwn, "time/slowest_pace"},
    {"reward", &Step::reward, Kind::kNumber, Fold::kOwn, "rl/reward",
     "mean of a rollout's responses, before overlong ones are punished; this and the following in runs with "
     "[rl] "
     "alone, of a rollout by its first step",
     kSparse},
    {"entropy", &Step::entropy, Kind::kNumber, Fold::kOwn, "rl/entropy",
     "nats a token, as the mean of -log p of what was said estimates it", kSparse},
    {"groups_kept", &Step::groups_kept, Kind::kCount, Fold::kOwn, "rl/groups_kept",
     "prompts whose responses are trained on", kSparse},
    {"draws", &Step::draws, Kind::kCount, Fold::kOwn, nullptr, "of rl.prompts_per_step prompts", kSparse},
    {"response_tokens", &Step::response_tokens, Kind::kCount, Fold::kOwn, nullptr,
     "of all responses that were drawn", kSparse},
    {"response_mean", &Step::response_mean, Kind::kNumber, Fold::kOwn, "rl/response_mean",
     "tokens of a response", kSparse},
    {"response_p99", &Step::response_p99, Kind::kCount, Fold::kOwn, "rl/response_p99", "", kSparse},
    {"rollout_ms", &Step::rollout_ns, Kind::kMilliseconds, Fold::kOwn, "time/rollout_ms",
     "that pulling whole models and saying responses took; not in time_ms", kSparse},
    {"reward_ms", &Step::reward_ns, Kind::kMilliseconds, Fold::kOwn, "time/reward_ms", "likewise, rewards",
     kSparse},
    {"clip_fraction", &Step::clip_fraction, Kind::kNumber, Fold::kOwn, "rl/clip_fraction",
     "of tokens whose advantage pulled no more", kSparse},
    {"divergence", &Step::divergence, Kind::kNumber, Fold::kOwn, "rl/divergence",
     "from the reference, nats a token (k3)", kSparse},
    {"rollout_gap", &Step::rollout_gap, Kind::kNumber, Fold::kOwn, "rl/rollout_gap",
     "mean |log p - the rollout's|; in a rollout's first step what two layouts and rounding make", kSparse},
    {"margin", &Step::margin, Kind::kNumber, Fold::kOwn, "rl/margin", "of pairs, in nats times rl.beta",
     kSparse},
    {"accuracy", &Step::accuracy, Kind::kNumber, Fold::kOwn, "rl/accuracy", "of pairs: margins above 0",
     kSparse},
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

void read(const Metric& metric, const Json& line, const std::string& place, Step& step) {
  if (!line.contains(metric.key) || line.at(metric.key).is_null()) return;
  const auto whole = [&] {
    if (metric.kind == Kind::kMilliseconds)
      return std::llround(base::require_in(line, metric.key, kMetricMilliseconds, place) * 1e6);
    if (metric.kind == Kind::kNumber) return base::require<long long>(line, metric.key, place);
    return static_cast<long long>(base::require_in(line, metric.key, kMetricCounts, place));
  };
  std::visit(
      [&](auto member) {
        auto& value = step.*member;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>) {
          value = whole();
        } else if constexpr (kIsOptional<T>) {
          value = base::require<typename T::value_type>(line, metric.key, place);
        } else {
          value = base::require<T>(line, metric.key, place);
        }
      },
      metric.member);
}

// Calls use(place among RankFigures, metric, member) for those that ranks add up.
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

std::span<const Metric> step_metrics() { return kMetrics; }

Json to_json(const StepRecord& step) {
  Json json = Json::object();
  for (const Metric& metric : kMetrics) {
    Json value = value_of(metric, step);
    if (!metric.sparse || !value.is_null()) json[metric.key] = std::move(value);
  }
  return json;
}

StepRecord step_record(const Json& line, const std::string& place) {
  StepRecord step;
  base::require_in(line, "step", kMetricCounts, place);
  base::require_in(line, "time_ms", kMetricMilliseconds, place);
  for (const Metric& metric : kMetrics) read(metric, line, place, step);
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
  constexpr size_t kColumn = 22;
  std::string text;
  for (const Metric& metric : kMetrics) {
    std::string line = metric.key;
    line.resize(kColumn, ' ');
    line += base::text(metric.meaning, who(metric.fold));
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace sluice::report
