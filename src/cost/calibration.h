// calibration.json: a cost model in a file ("sluice.calibration/1", docs/formats.md).
//
// `schemes` is for people and other programs: T(l) of one stage under common schemes. The model is made from
// `layers` (by TP degree; nanoseconds), `links`, `memory` and `update_ps_per_element`. A file without
// `layers` is a published table: its model is made from `schemes`. A table without rows of one TP rank gets
// derived ones (cost/derived_rows.h), which are written with "derived": true.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cost/cost_model.h"

namespace sluice::cost {

struct Calibration {
  std::string hardware;  // "2 x Intel ..., Gloo"
  std::string source;    // measured, fitted or quoted, and from where
  CostModel::Options options;
};

// Writes a row of `schemes` for each given scheme, or for every row of a table, with memory figures as if on
// `world_size` ranks. Coefficients keep every bit.
base::Json to_json(const Calibration& calibration, const std::vector<strategy::Scheme>& schemes,
                   int world_size);

// InputError naming `name` (the file), the key and the value if something is absent, of another type,
// negative, not finite, beyond any machine, or degenerate. Times of a layer with neither a nor b are
// degenerate, and so are links without bandwidth and TP degrees without layer times, ends or bytes. In a
// table, a row is degenerate if a times its GPUs is 0 or beyond 8/5 or 5/8 of the rows' median.
Calibration calibration_from_json(const base::Json& json, const std::string& name);

// Names the differences between `model` and the calibrated model ("num_hidden_layers is 24, there 32"); "" if
// the times and memory of one hold for the other. Norms' epsilons and rotary frequencies change neither.
std::string model_fault(const Calibration& calibration, const model::Model& model);

// Takes the nodes and groups of nodes from `described`, because measurements know no groups. Links between
// groups become no faster than the measured links inside them.
void take_levels(const CostModel::Options& described, CostModel::Options& options);
// Divides the ranks into nodes of `ranks` each. InputError if larger groups do not hold whole nodes then.
void move_to_nodes_of(int ranks, CostModel::Options& options);

}  // namespace sluice::cost
