// The parameters that a run begins with: by chance, of a model folder, or as an earlier part of it left them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/run_config.h"
#include "run/run_start.h"
#include "runtime/parameter_store.h"
#include "survive/control.h"

namespace sluice::run {

// The masters of a policy's reference, or none where no loss asks for it.
class Reference {
 public:
  // Collective: where there is one the store has the same parameters behind it. `store` outlives it.
  Reference(const config::RunConfig& config, runtime::ParameterStore& store, survive::Control& control);

  bool empty() const { return masters_.empty(); }

  // For as long as it lives the store has the reference's parameters, on all ranks. REQUIRES: there is one;
  // no step is under way.
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
  std::vector<at::Tensor> masters_;  // by bucket; undefined of those that are not trained
};

// A model's first parameters: the weights of a folder, "" for none, and of what is not there numbers by
// chance.
void begin_parameters(const config::RunConfig& config, const std::string& folder,
                      runtime::ParameterStore& store);

// Collective: what the run goes on with. A reference's parameters, which the store has then, are what it
// begins with.
void open_parameters(const config::RunConfig& config, RunStart& start, const Reference& reference,
                     runtime::ParameterStore& store, survive::Control& control);

}  // namespace sluice::run
