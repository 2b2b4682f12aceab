#include "session/memory_fit.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "cost/parameter_counts.h"
#include "plan/scheme_figures.h"

namespace sluice::session {

namespace {

using base::text;

constexpr int kMostTimes = 128;  // the largest multiple of the request's ranks that is tried

int64_t lane_tokens(int64_t length, int lanes) { return (length + lanes - 1) / lanes; }

std::optional<MemoryFit> fit_of(const FitRequest& request) {
  const auto schemes =
      plan::roomy_schemes(request.cost, request.world_size, request.max_cp, request.max_share);
  const auto choice =
      plan::choose_memory(request.cost, schemes, request.world_size, request.length_tokens, request.savings);
  if (!choice) return std::nullopt;
  return MemoryFit{.choice = *choice,
                   .cost = request.cost.under(choice->policy),
                   .world_size = request.world_size,
                   .length_tokens = request.length_tokens};
}

// The request with other bytes per owned parameter; nothing if it has these, or measured bytes of its own.
std::optional<FitRequest> with_owners(const FitRequest& request, bool narrow_masters, bool coded_moments) {
  cost::CostModel::Options options = request.cost.options();
  cost::MemoryModel& memory = options.memory;
  const bool changed = (narrow_masters && memory.narrow_masters()) | (coded_moments && memory.code_moments());
  if (!changed) return std::nullopt;
  FitRequest other = request;
  other.cost = request.cost.with(std::move(options));
  return other;
}

// The length that narrow masters would allow, with moments in 8 bits if they must, for requests that need
// more ranks besides.
std::string narrow_masters_hold(const FitRequest& request) {
  for (const bool coded_moments : {false, true}) {
    const auto narrow = with_owners(request, true, coded_moments);
    if (!narrow) return "";
    const auto schemes =
        plan::roomy_schemes(narrow->cost, narrow->world_size, narrow->world_size, narrow->world_size);
    const int64_t longest = plan::longest_held(narrow->cost, schemes, narrow->world_size, {true, true});
    if (longest == 0) continue;
    return text("; with train.master_dtype = \"bfloat16\"",
                coded_moments ? " and optimizer.name = \"adamw_8bit\" " : " ",
                base::human_count(request.world_size, "rank holds", "ranks hold"), " ",
                base::human_count(longest), " tokens");
  }
  return "";
}

std::string shown_share(int permille) { return text(static_cast<double>(permille) / 1000); }

}  // namespace

std::vector<std::string> settings_of(const strategy::MemoryPolicy& policy) {
  std::vector<std::string> settings;
  if (policy.recomputes_some()) {
    settings.push_back(text("memory.recompute = ", shown_share(policy.recompute_permille)));
  } else if (policy.recomputes()) {
    settings.emplace_back("memory.recompute = \"full\"");
  }
  if (policy.offload_permille > 0)
    settings.push_back(text("memory.offload = ", shown_share(policy.offload_permille)));
  return settings;
}

DeviceBytes MemoryFit::bytes() const {
  const cost::MemoryModel& memory = cost.options().memory;
  const cost::MemoryCost own(cost, choice.scheme);
  const cost::ParameterCount all = cost::all_parameters(cost.program(), memory);
  const int64_t tokens = lane_tokens(length_tokens, choice.scheme.cp);
  DeviceBytes bytes{.usable = cost.device_bytes()};
  bytes.owned =
      memory.owner_bytes(cost::divide_up(all.all, world_size), cost::divide_up(all.trained, world_size));
  bytes.computing = own.fixed_bytes(world_size) - bytes.owned;
  bytes.activations = own.bytes_of(tokens);
  bytes.host = own.host_bytes_of(tokens);
  return bytes;
}

int64_t MemoryFit::longest_tokens() const {
  const int64_t lane = cost::MemoryCost(cost, choice.scheme).max_len_tokens(world_size);
  return plan::longest_on(choice.scheme.cp, lane);
}

std::vector<std::string> MemoryFit::settings() const {
  std::vector<std::string> settings;
  if (narrow_masters) settings.emplace_back("train.master_dtype = \"bfloat16\"");
  if (coded_moments) settings.emplace_back("optimizer.name = \"adamw_8bit\"");
  std::ranges::move(settings_of(choice.policy), std::back_inserter(settings));
  return settings;
}

std::optional<MemoryFit> find_fit(const FitRequest& request) { return fit_of(request); }

std::optional<MemoryFit> find_fit_otherwise(FitRequest request) {
  request.savings = {.recompute = true, .offload = true};
  request.max_cp = request.max_share = request.world_size;
  if (auto fit = fit_of(request)) return fit;
  for (const auto& [narrow, coded] : {std::pair{true, false}, {false, true}, {true, true}}) {
    const auto other = with_owners(request, narrow, coded);
    auto fit = other ? fit_of(*other) : std::nullopt;
    if (!fit) continue;
    fit->narrow_masters = narrow;
    fit->coded_moments = coded;
    return fit;
  }
  for (int times = 2; times <= kMostTimes; times *= 2) {
    FitRequest larger = request;
    larger.max_cp = larger.max_share = larger.world_size = request.world_size * times;
    if (auto fit = fit_of(larger)) return fit;
  }
  return std::nullopt;
}

std::string way_out(const FitRequest& request) { return way_out(request, find_fit_otherwise(request)); }

std::string way_out(const FitRequest& request, const std::optional<MemoryFit>& fit) {
  if (!fit) {
    return text("no settings hold it, even on ",
                base::human_count(int64_t{request.world_size} * kMostTimes, "rank", "ranks"),
                ": lower the context length, or use devices with more memory");
  }
  const std::string strategy = text("1x", to_text(fit->choice.scheme));
  const bool more = fit->world_size > request.world_size;
  const std::string ranks = more ? text(" on ", base::human_count(fit->world_size, "rank", "ranks")) : "";
  const std::vector<std::string> settings = fit->settings();
  return text("'", strategy, "'", ranks, " holds it",
              settings.empty() ? "" : " with " + base::join(settings, " and "),
              more ? narrow_masters_hold(request) : "");
}

base::Json to_json(const MemoryFit& fit) {
  const DeviceBytes bytes = fit.bytes();
  return {{"gpus", fit.world_size},
          {"strategy", text("1x", to_text(fit.choice.scheme))},
          {"settings", fit.settings()},
          {"recompute", static_cast<double>(fit.choice.policy.recompute_permille) / 1000},
          {"offload", static_cast<double>(fit.choice.policy.offload_permille) / 1000},
          {"longest_tokens", fit.longest_tokens()},
          {"estimated_ns", fit.choice.estimated_ns},
          {"device_bytes",
           {{"owned", bytes.owned},
            {"computing", bytes.computing},
            {"activations", bytes.activations},
            {"all", bytes.all()},
            {"usable", bytes.usable}}},
          {"host_bytes", bytes.host}};
}

}  // namespace sluice::session
