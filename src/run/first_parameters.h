// The initial parameters of a run: random, from a model folder, or from a checkpoint or snapshot of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/run_config.h"
#include "run/run_start.h"
#include "runtime/parameter_store.h"
#include "survive/control.h"

namespace sluice::run {

// The masters of a policy's reference policy; empty if no loss needs it.
class Reference {
 public:
  // Collective. If a reference is needed, `store` is left with its parameters. `store` outlives this object.
  Reference(const config::RunConfig& config, runtime::ParameterStore& store, survive::Control& control);

  bool empty() const { return masters_.empty(); }

  // During its lifetime the store holds the reference's parameters, on all ranks. REQUIRES: the reference is
  // not empty; no step is running.
  class InPlace {
   public:
    explicit InPlace(Reference& reference) : reference_(reference) { reference_.exchange(); }
    ~InPlace() { reference_.exchange(); }
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    Reference& reference_;
  };

 private:
  void exchange();

  runtime::ParameterStore& store_;
  std::vector<at::Tensor> masters_;  // by bucket; undefined for buckets that are not trained
};

// Initializes a model's parameters with the weights of a folder ("": none), and with random numbers for those
// that the folder lacks.
void begin_parameters(const config::RunConfig& config, const std::string& folder,
                      runtime::ParameterStore& store, survive::Activity& activity);

// Collective: fills the store with the parameters that the run resumes from. Without a checkpoint or
// snapshot, the store keeps the reference's parameters, which the run begins with.
void open_parameters(const config::RunConfig& config, RunStart& start, const Reference& reference,
                     runtime::ParameterStore& store, survive::Control& control);

}  // namespace sluice::run
