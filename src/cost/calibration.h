// calibration.json: a cost model in a file ("sluice.calibration/1", docs/formats.md).
//
// `schemes` is for people and other programs: T(l) of one stage under common schemes. What the model is made
// of stands in `layers` (by TP degree; nanoseconds), `links`, `memory` and `update_ps_per_element`. A file
// without `layers` is a published table: there `schemes` is what the model is made of. A table without rows
// of one TP rank gets them derived (cost/derived_rows.h), marked so; they are written with "derived": true.
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

// Derived rows are written for `schemes`, or for every row of a table, as if on `world_size` ranks.
// Coefficients keep every bit.
base::Json to_json(const Calibration& calibration, const std::vector<strategy::Scheme>& schemes,
                   int world_size);

// InputError naming `name` (the file), the key and the value when something is absent, of another type,
// negative, not finite, beyond any machine, or degenerate: times of a layer with neither a nor b, links
// without bandwidth, a TP degree without layer times, ends or bytes. In a table, so is a row whose a times
// its GPUs is 0 or beyond 8/5 or 5/8 of the rows' median.
Calibration calibration_from_json(const base::Json& json, const std::string& name);

// In what a model differs from the one that was calibrated ("num_hidden_layers is 24, there 32"), or "" where
// the times and memory of one are those of the other: norms' epsilons and rotary frequencies decide neither.
std::string model_fault(const Calibration& calibration, const model::Shape& shape);

// The machine with the nodes and groups that are described: no measurement knows of groups. Links between
// these are no faster than the measured ones inside.
void take_levels(const CostModel::Options& described, CostModel::Options& options);
// The machine with nodes of so many ranks. InputError when its larger groups are not whole ones of these.
void move_to_nodes_of(int ranks, CostModel::Options& options);

}  // namespace sluice::cost
