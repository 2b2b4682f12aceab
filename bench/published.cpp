// Published step times beside the same steps by analytic costs (data/published/steps.csv), and the stage
// times of the shipped A800 fits beside analytic ones. No cost is fitted to these except a800-7b and a800-32b
// (tools/device_rates.py).
//
//   published_bench [STEPS_CSV]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "graph/build.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "published/lane_groups.h"
#include "session/public_models.h"
#include "study/rival_traits.h"

namespace {

using namespace sluice;

constexpr int64_t kLengths[] = {4096, 8192, 16384, 32768};
constexpr double kPeakFlopsPerNs = 312e3;  // the peak to which MEMO's MFU refers

// A line of the file, by its header's names.
using Row = std::map<std::string, std::string>;

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw base::InputError("no rows in " + path);
  const auto cells = [](std::string text) {
    while (!text.empty() && text.back() == '\r') text.pop_back();
    std::vector<std::string> split = base::split(text, ',');
    return split;
  };
  const std::vector<std::string> names = cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> values = cells(line);
    if (values.size() != names.size())
      throw base::InputError(base::text(path, ": '", line, "' has not ", names.size(), " cells: mend it"));
    for (size_t i = 0; i < names.size(); ++i)
      (i == 0 ? rows.emplace_back() : rows.back())[names[i]] = values[i];
  }
  return rows;
}

double number(const Row& row, const char* name) { return std::strtod(row.at(name).c_str(), nullptr); }
int whole(const Row& row, const char* name) { return static_cast<int>(number(row, name)); }

strategy::Cluster cluster_of(const Row& row) {
  constexpr int kNodeGpus = 8;
  strategy::Cluster cluster =
      strategy::cluster_preset(row.at("cluster"), std::max(1, whole(row, "gpus") / kNodeGpus));
  cluster.name = row.at("device");  // kernel speeds of this device
  cluster.flops_per_ns *= number(row, "flops_share");
  cluster.device_bytes_per_ns *= number(row, "memory_share");
  return cluster;
}

// Costs on devices with unlimited memory, because the published runs did fit.
cost::CostModel cost_of(const Row& row) {
  const strategy::Cluster cluster = cluster_of(row);
  const cost::AnalyticMemory memory{.device_bytes = int64_t{1} << 44, .element_bytes = 2};
  const std::vector<int> degrees = {whole(row, "tp")};
  cost::CostModel::Options options = cost::analytic_options(
      session::model_to_plan(row.at("model")), cost::rates_of(cluster), memory, degrees, cluster.topology());
  if (row.at("products") == "float8") {
    for (cost::KindCost& kind : options.kinds_by_tp.begin()->second) {
      if (kind.low_precision.contains(base::GemmFormat::kFloat8))
        kind.times = kind.low_precision.at(base::GemmFormat::kFloat8);
    }
  }
  return cost::CostModel(std::move(options));
}

// The whole step by the clock, as FSDP with rings runs it. With MEMO, each rank holds all parameters.
double step_ns(const Row& row) {
  const int gpus = whole(row, "gpus");
  const study::Sharding sharding =
      row.at("place") == "MEMO" ? study::Sharding::kZero1 : study::Sharding::kZero3;
  const cost::CostModel cost =
      study::sharded_cost(cost_of(row), sharding, row.at("recompute") == "full", gpus);
  published::GroupProgram program =
      study::sharded_program(sharding, {.tp = whole(row, "tp")}, strategy::Exchange::kRing, cost, gpus);
  program.memory.recompute_permille = row.at("recompute") == "selective" ? strategy::MemoryPolicy::kAll : 0;
  const std::vector<int64_t> lengths(static_cast<size_t>(whole(row, "sequences")),
                                     static_cast<int64_t>(number(row, "length")));
  const strategy::StepPlan plan =
      published::static_groups_plan({.program = program,
                                     .group_lanes = whole(row, "cp"),
                                     .micro_batch_tokens = static_cast<int64_t>(number(row, "micro_batch"))},
                                    lengths, cost, gpus);
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  return static_cast<double>(
      graph::build(plan, table, cost, gpus, {.disabled_passes = {"verify"}}).makespan_ns);
}

// Nanoseconds of a step with the published throughput.
double published_ns(const Row& row) {
  const double value = number(row, "value"), length = number(row, "length"), gpus = number(row, "gpus");
  const std::string& micro_batch = row.at("unit");
  if (micro_batch == "s a step") return value * 1e9;
  if (micro_batch == "tokens/s a GPU") return length * number(row, "sequences") / value / gpus * 1e9;
  const model::Model model = session::model_to_plan(row.at("model"));
  const model::Program program(model);
  double parameters = 0;
  for (const model::Bucket& bucket : model::parameter_table(model, program).buckets)
    parameters += static_cast<double>(bucket.size);
  const double attended = static_cast<double>(program.blocks().size() * model.hidden());
  return (6 * parameters * length + 6 * attended * length * length) / (value / 100 * kPeakFlopsPerNs) / gpus;
}

struct Error {
  std::string row;
  double log = 0;
};

void print_steps(const std::vector<Row>& rows, std::vector<Error>& errors) {
  std::printf(
      "| place | row | machine | published | step, s | simulated, s | ln(simulated ÷ published) | source |\n"
      "|---|---|---|---:|---:|---:|---:|---|\n");
  for (const Row& row : rows) {
    const double theirs = published_ns(row), ours = step_ns(row);
    errors.push_back({row.at("place") + " " + row.at("row"), std::log(ours / theirs)});
    std::printf("| %s | %s | %s %s | %s %s | %.2f | %.2f | %+.2f | %s |\n", row.at("place").c_str(),
                row.at("row").c_str(), row.at("gpus").c_str(), row.at("cluster").c_str(),
                row.at("value").c_str(), row.at("unit").c_str(), theirs / 1e9, ours / 1e9, errors.back().log,
                row.at("source").c_str());
    std::fflush(stdout);
  }
}

// Errors at the stages in a shipped A800 fit, with TP inside a node.
std::vector<double> fit_errors(const std::string& size) {
  const cost::CostModel fit(cost::shipped("a800-" + size).options);
  const strategy::Cluster cluster = strategy::cluster_preset("a800x8", 1);
  const std::vector<int> degrees = {1, 2, 4, 8};
  const cost::CostModel analytic(cost::analytic_options(
      model::named_outline("llama-" + size), cost::rates_of(cluster),
      {.device_bytes = cluster.device_memory_bytes, .element_bytes = 2}, degrees, cluster.topology()));
  std::vector<double> errors;
  for (const auto& [scheme, row] : fit.options().scheme_times) {
    if (row.derived || scheme.first > cluster.gpus_per_node) continue;
    const strategy::Scheme of{.tp = scheme.first, .pp = scheme.second};
    // A published row stands for any stage; the middle one has neither embedding nor head.
    for (const int64_t length : kLengths) {
      const std::vector<int64_t> lengths = {length};
      const auto ours = static_cast<double>(analytic.stage_times(of, of.pp / 2).of_sequences(lengths));
      errors.push_back(std::log(ours / static_cast<double>(row.stage.of_sequences(lengths))));
    }
  }
  return errors;
}

double median_of(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void print_fits(std::vector<Error>& errors) {
  std::printf(
      "\n| fit | fitted on | stages × lengths | median of abs(ln) | most |\n|---|---|---:|---:|---:|\n");
  for (const char* size : {"7b", "13b", "32b"}) {
    const std::vector<double> logs = fit_errors(size);
    double most = 0;
    for (const double log : logs) most = std::max(most, std::abs(log));
    const bool fitted = std::string(size) != "13b";
    std::printf("| a800-%s | %s | %zu | %.3f | %.3f |\n", size, fitted ? "yes" : "no", logs.size(),
                median_of(logs), most);
    if (!fitted) errors.push_back({base::text("fit a800-", size), median_of(logs)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<Error> errors;
    print_steps(read_rows(argc > 1 ? argv[1] : "data/published/steps.csv"), errors);
    print_fits(errors);
    std::vector<double> logs;
    std::vector<std::string> far;
    for (const Error& error : errors) {
      logs.push_back(error.log);
      if (std::abs(error.log) > 0.35) far.push_back(error.row);
    }
    std::printf("\nRows that were not fitted: %zu; median of abs(ln) %.3f; above 0.35: %s.\n", logs.size(),
                median_of(logs), far.empty() ? "none" : base::join(far, "; ").c_str());
  } catch (const base::InputError& error) {
    std::fprintf(stderr, "published_bench: %s\n", error.what());
    return 2;
  }
}
