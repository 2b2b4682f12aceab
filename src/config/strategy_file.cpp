#include "config/strategy_file.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::config {

namespace {

using base::InputError;
using base::text;
using strategy::Strategy;

constexpr const char* kSchema = "sluice.strategies/1";

// A strategy's text, and where it stands.
struct Found {
  std::string text;
  std::string where;
};

std::vector<Found> found_in_json(const std::string& path) {
  const base::Json json = base::read_json(path);
  base::require_schema(json, kSchema, path);
  const auto entries = base::require<base::Json>(json, "strategies", path);
  if (!entries.is_array()) throw InputError(text(path, ": key 'strategies' is not a list"));
  std::vector<Found> found;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string where = text(path, ": strategies[", i, "]");
    found.push_back({base::require<std::string>(entries[i], "strategy", where), where});
  }
  return found;
}

std::vector<Found> found_in_lines(const std::string& path) {
  std::vector<Found> found;
  int line_number = 0;
  for (const std::string& line : base::split(base::read_file(path), '\n')) {
    ++line_number;
    const std::string_view value = base::trim(std::string_view(line).substr(0, line.find('#')));
    if (!value.empty()) found.push_back({std::string(value), text(path, ":", line_number)});
  }
  return found;
}

std::vector<Found> found_in_file(const std::string& path) {
  std::vector<Found> found = path.ends_with(".json") ? found_in_json(path) : found_in_lines(path);
  if (found.empty()) throw InputError(text(path, " holds no strategy: give one a line, or run propose"));
  return found;
}

Strategy parse(const Found& found, int world_size) {
  try {
    return strategy::parse_strategy(found.text, world_size);
  } catch (const InputError& error) {
    throw InputError(text(found.where, ": ", error.what()));
  }
}

// Over the batches that the strategy holds.
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

}  // namespace

std::vector<Strategy> read_strategies(const std::vector<std::string>& given, int world_size) {
  std::vector<Strategy> strategies;
  for (const std::string& each : given) {
    if (each.find('<') != std::string::npos) {
      strategies.push_back(strategy::parse_strategy(each, world_size));
      continue;
    }
    std::error_code ignored;
    if (!std::filesystem::exists(each, ignored)) {
      throw InputError(text("'", each, "' is no file and no strategy: write one as '1x<4,2,1> + 2x<1,1,1>'"));
    }
    for (const Found& found : found_in_file(each)) strategies.push_back(parse(found, world_size));
  }
  return strategies;
}

base::Json strategies_to_json(const std::vector<plan::Proposal>& proposals,
                              const std::vector<std::vector<int64_t>>& sample_batches, base::Json inputs) {
  base::Json entries = base::Json::array();
  for (const plan::Proposal& proposal : proposals) {
    entries.push_back({{"strategy", to_text(proposal.strategy)},
                       {"max_len", proposal.max_len_tokens},
                       {"frequency", proposal.frequency},
                       {"mean_estimated_ns", proposal.mean_estimated_ns},
                       {"gpus", proposal.strategy.ranks()},
                       {"tokens_per_s", tokens_per_s(proposal, sample_batches)}});
  }
  const base::Json context_length = inputs.at("context_length");
  return {{"schema", kSchema},
          {"context_length", context_length},
          {"strategies", std::move(entries)},
          {"inputs", std::move(inputs)}};
}

}  // namespace sluice::config
