// The model program: the operations of one forward pass, the same under every strategy, with empty slots.
//
// Around every operation stand slots for subgraphs (Hydraulis, section 5.3), which lowering fills for one
// strategy:
//   Pull         before the operation: brings its parameters to where the strategy computes it;
//   Communicate  between neighbouring operations: carries activations forward and their gradients back when
//                the strategy computes the two on different stages, nothing when on the same;
//   Push         behind the operation's last gradient: brings it home to the owners, summing.
// The backward pass walks the same operations in reverse.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "cost/cost_model.h"
#include "link/layout.h"
#include "model/parameters.h"
#include "strategy/scheme.h"

namespace sluice::graph {

enum class Purpose : uint8_t { kTrain, kEvaluate };  // evaluation: pulls, forwards, scalars

struct Operation {
  enum class Kind : uint8_t { kEmbedding, kLayer, kHead };
  Kind kind = Kind::kLayer;
  int64_t layer = -1;        // for kLayer
  std::vector<int> buckets;  // whose parameters it reads and whose gradients it writes, ascending
};

struct ModelProgram {
  std::vector<Operation> operations;  // embedding, layers, head

  int64_t layers() const { return static_cast<int64_t>(operations.size()) - 2; }
  // Positions of the ends.
  int64_t embedding() const { return 0; }
  int64_t head() const { return layers() + 1; }
  const Operation& at(int64_t position) const { return operations[static_cast<size_t>(position)]; }

  // The run of operations that a stage computes: its layers, and the ends of the model on the outer stages.
  base::Interval of_stage(int stages, int stage) const;
  // The layers in a run of operations.
  base::Interval layers_in(base::Interval run) const;
  // The operations of a run that a cell of this kind works on. The head does everything in its forward
  // (logits never live from one pass to the other); the embedding has no weight gradient of its own, because
  // its input gradient is that.
  base::Interval at_work(cost::CellKind kind, base::Interval run) const;
  // Whether a cell of this kind that works on the operation completes its parameters' gradients.
  bool writes_gradient(cost::CellKind kind, const Operation& operation) const;
};

ModelProgram model_program(const model::ParameterTable& table);

// The Pull slots filled: by operation the link round after which all its parameters are there.
std::vector<int> pull_rounds(const ModelProgram& program, const link::Rounds& rounds);

// Cuts a stage's run so that part i can start before the round of part i + 1 has arrived. Rounds need not
// ascend along a stage (another pipeline may want a bucket earlier), so the cuts stand where the largest
// round so far grows. Walked backward the same parts are those after which some round and all later ones
// are complete: pushes hang on the same cuts.
std::vector<base::Interval> parts_by_round(base::Interval run, const std::vector<int>& pull_rounds);

}  // namespace sluice::graph
