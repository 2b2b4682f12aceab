// cuDNN's plans of this process, made before they are needed: for all sizes of a run, on threads, and kept on
// disk for later runs. Internal to src/ops; GPUs only.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ops/libraries/cudnn_graph.h"
#include "ops/planned_sizes.h"

namespace sluice::ops::cudnn {

// The plan for the shape with these sizes, on the GPU; null if cuDNN has none. Where limits are known, the
// first call of a kind, that is of a shape without its direction and sizes, makes the plans of all sizes
// within them in both directions and waits for them. Else the plan alone is made. Thread-safe.
std::shared_ptr<Plan> plan_of(const GraphShape& shape, const PlannedSizes& sizes, int gpu);
// The same without making others of its kind, now or later.
std::shared_ptr<Plan> plan_alone(const GraphShape& shape, const PlannedSizes& sizes, int gpu);

// Makes the plans for micro-batches within these limits: now for kinds that were asked for already, as a
// run's probes do, and for others at their first call. From here on plans are kept below `cache`, if it is
// not empty, in a folder for the library's version and the kind of GPU.
void make_plans_ahead(const RowLimits& limits, const std::filesystem::path& cache);

// "31 plans, 20 of them from disk, 1 inside a step".
std::string plans_in_words();

}  // namespace sluice::ops::cudnn
