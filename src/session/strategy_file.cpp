#include "session/strategy_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/model_flops.h"
#include "session/proposal_memory.h"
#include "strategy/device_peaks.h"

namespace sluice::session {

namespace {

using base::InputError;
using base::Json;
using base::text;
using strategy::Strategy;

constexpr const char* kSchema = "sluice.strategies/1";

// A strategy as it was written. Messages begin with `where`: a place in a file; empty: it was given as it is.
struct Entry {
  std::string written;
  std::string where;
};

// Whether the text begins like a strategy with named degrees: "tp2,cp8", "2x fsdp8".
bool names_a_degree(const std::string& written) {
  const size_t first = written.find_first_not_of(" \t0123456789x");
  if (first == std::string::npos) return false;
  for (const std::string_view word : {"tp", "pp", "cp", "fsdp", "ep"}) {
    const size_t behind = first + word.size();
    if (written.compare(first, word.size(), word) == 0 && behind < written.size() && written[behind] >= '0' &&
        written[behind] <= '9')
      return true;
  }
  return false;
}

std::vector<Entry> entries_in_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  const auto list = base::require<Json>(json, "strategies", name);
  if (!list.is_array()) throw InputError(text(name, ": key 'strategies' is not a list"));
  std::vector<Entry> entries;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = text(name, ": strategies[", i, "]");
    entries.push_back({base::require<std::string>(list[i], "strategy", where), where});
  }
  return entries;
}

std::vector<Entry> entries_in_text(const std::string& bytes, const std::string& name) {
  std::vector<Entry> entries;
  int line_number = 0;
  for (const std::string& line : base::split(bytes, '\n')) {
    ++line_number;
    const std::string_view value = base::trim(std::string_view(line).substr(0, line.find('#')));
    if (!value.empty()) entries.push_back({std::string(value), text(name, ":", line_number)});
  }
  return entries;
}

// The entries of a strategy's text, or of a file.
std::vector<Entry> entries_of(const std::string& given) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(given, ignored);
  if (given.find('<') != std::string::npos || (!exists && names_a_degree(given))) return {{given, ""}};
  if (!exists)
    throw InputError(text("'", given, "' is no file and no strategy: write one as 'tp4,pp2 + 2x cp2'"));
  if (given.ends_with(".json")) return entries_in_json(base::read_json(given), given);
  return entries_in_text(base::read_file(given), given);
}

Strategy parse(const Entry& entry, int world_size) {
  try {
    return strategy::parse_strategy(entry.written, world_size);
  } catch (const InputError& error) {
    throw InputError(entry.where.empty() ? error.what() : text(entry.where, ": ", error.what()));
  }
}

std::vector<Strategy> parse(const std::vector<Entry>& entries, const std::string& name, int world_size) {
  if (entries.empty()) throw InputError(text(name, " holds no strategy: give one a line, or run propose"));
  std::vector<Strategy> strategies;
  for (const Entry& entry : entries) strategies.push_back(parse(entry, world_size));
  return strategies;
}

// Tokens per second over the batches that the strategy holds.
int64_t tokens_per_s(const plan::Proposal& proposal,
                     const std::vector<std::vector<int64_t>>& sample_batches) {
  int64_t tokens = 0;
  int64_t held = 0;
  for (const std::vector<int64_t>& lengths : sample_batches) {
    if (std::ranges::max(lengths) > proposal.max_len_tokens) continue;
    tokens += std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    ++held;
  }
  const int64_t total_ns = held * proposal.mean_estimated_ns;
  return total_ns == 0
             ? 0
             : static_cast<int64_t>(static_cast<double>(tokens) / (static_cast<double>(total_ns) / 1e9));
}

// MFU over the same batches; none if the peak rate is unknown.
std::optional<double> mfu(const plan::Proposal& proposal,
                          const std::vector<std::vector<int64_t>>& sample_batches,
                          const cost::CostModel& cost, const strategy::Cluster& cluster) {
  const cost::ModelFlops model(cost.program(), cost.window());
  double flops = 0;
  int64_t held = 0;
  for (const std::vector<int64_t>& lengths : sample_batches) {
    if (std::ranges::max(lengths) > proposal.max_len_tokens) continue;
    flops += model.of_sequences(lengths);
    ++held;
  }
  return cost::utilisation(flops, held * proposal.mean_estimated_ns,
                           strategy::peak_flops_per_ns(cluster, proposal.strategy.ranks()));
}

}  // namespace

std::vector<Strategy> strategies_from_json(const base::Json& json, const std::string& name, int world_size) {
  return parse(entries_in_json(json, name), name, world_size);
}

std::vector<Strategy> strategies_from_text(const std::string& bytes, const std::string& name,
                                           int world_size) {
  return parse(entries_in_text(bytes, name), name, world_size);
}

std::vector<Strategy> read_strategies(const std::vector<std::string>& given, int world_size) {
  std::vector<Strategy> strategies;
  for (const std::string& each : given)
    std::ranges::move(parse(entries_of(each), each, world_size), std::back_inserter(strategies));
  return strategies;
}

int ranks_needed(const std::vector<std::string>& given) {
  constexpr int kMostRanks = 1 << 20;
  int ranks = 0;
  for (const Strategy& strategy : read_strategies(given, kMostRanks)) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) {
      for (const int rank : pipeline.ranks) ranks = std::max(ranks, rank + 1);
    }
  }
  return ranks;
}

base::Json strategies_to_json(const std::vector<plan::Proposal>& proposals,
                              const plan::PlannerOptions& options, const cost::CostModel& cost,
                              const strategy::Cluster& cluster, base::Json inputs) {
  const std::vector<int64_t> peaks = device_peaks_bytes(options, cost, proposals);
  base::Json entries = base::Json::array();
  for (size_t i = 0; i < proposals.size(); ++i) {
    const plan::Proposal& proposal = proposals[i];
    Json entry = {{"strategy", to_text(proposal.strategy)},
                  {"max_len", proposal.max_len_tokens},
                  {"frequency", proposal.frequency},
                  {"longest", {proposal.longest.least, proposal.longest.most}},
                  {"mean_estimated_ns", proposal.mean_estimated_ns},
                  {"gpus", proposal.strategy.ranks()},
                  {"tokens_per_s", tokens_per_s(proposal, options.sample_batches)}};
    if (const auto share = mfu(proposal, options.sample_batches, cost, cluster)) entry["mfu"] = *share;
    if (peaks[i] > 0) entry["peak_bytes"] = peaks[i];
    if (proposal.mean_measured_ns > 0) entry["mean_estimated_ns_measured_passes"] = proposal.mean_measured_ns;
    entries.push_back(std::move(entry));
  }
  const base::Json context_length = inputs.at("context_length");
  return {{"schema", kSchema},
          {"context_length", context_length},
          {"strategies", std::move(entries)},
          {"inputs", std::move(inputs)}};
}

}  // namespace sluice::session
