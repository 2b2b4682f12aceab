// Adapters of a run's base model that evaluations try in place of the trained one (train.eval_adapters).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/run_config.h"
#include "runtime/parameter_store.h"
#include "survive/control.h"

namespace sluice::run {

class OtherAdapters {
 public:
  // Collective. Reads this rank's slices of all adapters, and keeps them in memory. Both arguments outlive
  // this object. InputError naming a folder that the run's adapters cannot stand for.
  OtherAdapters(const config::RunConfig& config, runtime::ParameterStore& store, survive::Control& control);

  const std::vector<std::string>& names() const { return names_; }

  // During its lifetime the store holds one of the adapters, on all ranks. REQUIRES: no step is running.
  class InPlace {
   public:
    InPlace(OtherAdapters& adapters, size_t index) : adapters_(adapters), index_(index) {
      adapters_.exchange(index_);
    }
    ~InPlace() { adapters_.exchange(index_); }
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    OtherAdapters& adapters_;
    size_t index_;
  };

 private:
  using Masters = std::vector<at::Tensor>;  // by bucket; undefined for buckets without adapters
  void exchange(size_t index);

  runtime::ParameterStore& store_;
  std::vector<std::string> names_;
  std::vector<Masters> all_;
};

}  // namespace sluice::run
