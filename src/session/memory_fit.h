// Finds settings under which a model and its context fit a machine's memory, and the bytes on a device.
// Refusals name the settings as the way out, and `sluice fits` prints them.
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
  int64_t length_tokens = 0;  // the sequence that has to fit
  int max_cp = 1;
  int max_share = 1;
  plan::Savings savings{.recompute = true, .offload = true};
};

// Bytes on the fullest device.
struct DeviceBytes {
  int64_t owned = 0;      // masters, moments, summed gradients
  int64_t computing = 0;  // parameters, gradients and buffers of its part of the model
  int64_t activations = 0;
  int64_t host = 0;  // host memory for offloaded activations
  int64_t usable = 0;
  int64_t all() const { return owned + computing + activations; }
};

struct MemoryFit {
  plan::MemoryChoice choice;
  cost::CostModel cost;  // under the choice and these settings
  int world_size = 1;
  int64_t length_tokens = 0;
  bool narrow_masters = false;  // chosen, although the request's are wide
  bool coded_moments = false;   // likewise

  DeviceBytes bytes() const;
  int64_t longest_tokens() const;
  // As in a configuration, `memory.offload = 0.4`, in the order in which a user would set them.
  std::vector<std::string> settings() const;
};

// The fit under the request's own limits.
std::optional<MemoryFit> find_fit(const FitRequest& request);
// The fit with all savings, and lanes as the machine allows. If there is none, the first of these that fits:
// masters in bfloat16; moments in 8 bits; both; twice as many ranks or more.
std::optional<MemoryFit> find_fit_otherwise(FitRequest request);

// "'1x<1,1,8,8>' holds it with train.master_dtype = "bfloat16" and memory.offload = 0.4", or the advice to
// shorten the context if nothing fits.
std::string way_out(const FitRequest& request);
// The same from the request's find_fit_otherwise().
std::string way_out(const FitRequest& request, const std::optional<MemoryFit>& fit);

// "memory.recompute = 0.25", and so on.
std::vector<std::string> settings_of(const strategy::MemoryPolicy& policy);

base::Json to_json(const MemoryFit& fit);

}  // namespace sluice::session
