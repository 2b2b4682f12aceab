#include "train/resources.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "profile/machine.h"

namespace sluice::train {

runtime::Precision precision_of(const std::string& dtype) {
  if (dtype == "float64") return {comm::DType::kFloat64};
  if (dtype == "bfloat16") return {comm::DType::kBFloat16};
  return {comm::DType::kFloat32};
}

int compute_threads(int configured, int local_ranks) {
  if (configured > 0) return configured;
  return std::max(1, profile::this_machine().cores / local_ranks);
}

int64_t usable_memory_bytes(const config::MemoryConfig& memory, int local_ranks) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  const double device = memory.device_gib > 0 ? memory.device_gib * kGibibyte
                                              : static_cast<double>(profile::this_machine().available_bytes) /
                                                    static_cast<double>(local_ranks);
  const double usable = device - memory.margin_gib * kGibibyte;
  if (usable <= 0) {
    throw base::InfeasibleError(base::text("a rank may use ", base::human_bytes(device),
                                           ", and memory.margin_gib takes ", memory.margin_gib,
                                           " GiB of it: lower the margin or run fewer ranks"));
  }
  return static_cast<int64_t>(usable);
}

}  // namespace sluice::train
