// Whether a model and its context fit a machine's memory, with which settings, and how many bytes that takes
// of a device: what a refusal names as the way out, and `sluice fits` tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cost/cost_model.h"
#include "plan/memory_choice.h"

namespace sluice::session {

struct FitRequest {
  cost::CostModel cost;
  int world_size = 1;
  int64_t length_tokens = 0;  // of a sequence that has to fit
  int max_cp = 1;
  int max_share = 1;
  plan::Savings savings{.recompute = true, .offload = true};
};

// Of the device with most.
struct DeviceBytes {
  int64_t owned = 0;      // masters, moments, gradients that are summed there
  int64_t computing = 0;  // parameters, gradients and buffers of its part of the model
  int64_t activations = 0;
  int64_t host = 0;  // host memory, for what is offloaded
  int64_t usable = 0;
  int64_t all() const { return owned + computing + activations; }
};

struct MemoryFit {
  plan::MemoryChoice choice;
  cost::CostModel cost;  // under the choice and these settings
  int world_size = 1;
  int64_t length_tokens = 0;
  bool narrow_masters = false;  // chosen, where the request's are wide
  bool coded_moments = false;   // likewise

  DeviceBytes bytes() const;
  int64_t longest_tokens() const;
  // As a configuration says them: `memory.offload = 0.4`, in the order in which one would set them.
  std::vector<std::string> settings() const;
};

// As the request says.
std::optional<MemoryFit> find_fit(const FitRequest& request);
// Where that does not fit, the first of these that does: parameters that the optimiser updates in bfloat16;
// moments in 8 bits; both; twice as many ranks or more. Savings and lanes as the machine allows.
std::optional<MemoryFit> find_fit_otherwise(FitRequest request);

// "'1x<1,1,8,8>' holds it with train.master_dtype = "bfloat16" and memory.offload = 0.4"; where nothing does,
// that it needs a shorter context.
std::string way_out(const FitRequest& request);

// "memory.recompute = 0.25", and so on.
std::vector<std::string> settings_of(const strategy::MemoryPolicy& policy);

base::Json to_json(const MemoryFit& fit);

}  // namespace sluice::session
