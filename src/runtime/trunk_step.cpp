#include "runtime/trunk_step.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::runtime {
namespace {

using graph::Purpose;
using link::RowEnd;

const graph::StepGraph& any_graph(const TrunkStep& trunk) {
  return trunk.forward != nullptr ? *trunk.forward : *trunk.train;
}

void require_chain(std::span<const TrunkStep> trunks) {
  int64_t end = 0;
  for (const TrunkStep& trunk : trunks) {
    const graph::StepGraph& graph = any_graph(trunk);
    const base::Interval run = graph.program.run();
    SLUICE_ASSERT(run.begin == end, base::text("a trunk begins with operation ", run.begin, " behind ", end));
    SLUICE_ASSERT(graph.plan.sequences == any_graph(trunks.front()).plan.sequences,
                  "trunks of a step have plans of other sequences");
    end = run.end;
  }
  SLUICE_ASSERT(end == any_graph(trunks.front()).program.size(), "trunks end before the model does");
}

// Runs the acts of one step one after the other.
class TrunkActs {
 public:
  TrunkActs(Engine& engine, std::span<const TrunkStep> trunks)
      : engine_(engine), trunks_(trunks), rows_(trunks.size()) {
    require_chain(trunks);
  }

  // Runs a trunk's forward and sends its rows to the next trunk.
  void forward(size_t trunk, RowFigures* figures = nullptr) {
    const TrunkStep& own = trunks_[trunk];
    TrunkRows rows{.begin = rows_[trunk]};
    add(trunk, Purpose::kEvaluate, engine_.evaluate(*own.forward, *own.tokens, figures, &rows));
    if (trunk + 1 < trunks_.size())
      rows_[trunk + 1] = carry(trunk, RowEnd::kLastStage, trunk + 1, RowEnd::kFirstStage, rows.end);
  }

  // Runs a trunk's training act and, if the trunk before trains, sends it the gradients.
  void train(size_t trunk, ActRows& gradient, const AdamW* optimizer) {
    const TrunkStep& own = trunks_[trunk];
    TrunkRows rows{.begin = std::move(rows_[trunk]), .end_gradient = std::move(gradient)};
    add(trunk, Purpose::kTrain,
        optimizer != nullptr ? engine_.train(*own.train, *own.tokens, *optimizer, nullptr, &rows)
                             : engine_.accumulate(*own.train, *own.tokens, nullptr, &rows));
    if (optimizer == nullptr)
      gradient = carry(trunk, RowEnd::kFirstStage, trunk - 1, RowEnd::kLastStage, rows.begin_gradient);
  }

  TrunksResult take() { return std::move(result_); }

 private:
  void add(size_t trunk, Purpose purpose, StepResult result) {
    result_.acts.push_back({.trunk = trunk, .purpose = purpose, .result = std::move(result)});
  }

  ActRows carry(size_t from, RowEnd from_end, size_t to, RowEnd to_end, ActRows& rows) {
    const graph::StepGraph &source = any_graph(trunks_[from]), &target = any_graph(trunks_[to]);
    const RowLink link =
        row_link(link::row_placement(source.plan, source.world_size, from_end),
                 link::row_placement(target.plan, target.world_size, to_end),
                 engine_.store().table().model.hidden(), source.links->topology, engine_.rank());
    // Ranks of other stages have no rows.
    std::erase_if(rows, [](const at::Tensor& shard) { return !shard.defined(); });
    result_.acts.back().row_bytes =
        link.sent_elements() * comm::size_of(engine_.store().options().precision.compute);
    return engine_.carry(link, rows);
  }

  Engine& engine_;
  std::span<const TrunkStep> trunks_;
  std::vector<ActRows> rows_;  // by trunk: rows in front of it
  TrunksResult result_;
};

// The first trunk in which something is trained.
size_t first_trained(std::span<const TrunkStep> trunks) {
  size_t trunk = 0;
  const model::Program& program = any_graph(trunks.front()).program;
  while (trunk + 1 < trunks.size() && any_graph(trunks[trunk]).program.run().end <= program.first_trained())
    ++trunk;
  return trunk;
}

}  // namespace

TrunksResult train_trunks(Engine& engine, std::span<const TrunkStep> trunks, const AdamW& optimizer) {
  TrunkActs acts(engine, trunks);
  for (size_t trunk = 0; trunk + 1 < trunks.size(); ++trunk) acts.forward(trunk);
  const size_t first = first_trained(trunks);
  ActRows gradient;
  for (size_t trunk = trunks.size(); trunk-- > first;)
    acts.train(trunk, gradient, trunk == first ? &optimizer : nullptr);
  return acts.take();
}

TrunksResult evaluate_trunks(Engine& engine, std::span<const TrunkStep> trunks, RowFigures* rows) {
  TrunkActs acts(engine, trunks);
  for (size_t trunk = 0; trunk < trunks.size(); ++trunk)
    acts.forward(trunk, trunk + 1 == trunks.size() ? rows : nullptr);
  return acts.take();
}

}  // namespace sluice::runtime
