#include "model/parameter_count.h"

#include "model/program.h"
#include "model/roles.h"

namespace sluice::model {

int64_t parameter_count(const Model& model) {
  int64_t all = 0;
  const Program program(model);
  for (int64_t position = 0; position < program.size(); ++position) {
    for (const Parameter& parameter : program.kind_at(position).parameters()) all += parameter.size();
  }
  return all;
}

int64_t active_parameter_count(const Model& model) {
  int64_t all = parameter_count(model);
  const Experts& experts = model.experts();
  const int64_t unvisited = experts.count - experts.per_token;
  const Program program(model);
  for (int64_t position = 0; position < program.size(); ++position) {
    for (const Parameter& parameter : program.kind_at(position).parameters()) {
      const bool of_each = parameter.experts > 0 || parameter.role == roles::kExpertsDownBias;
      if (of_each) all -= parameter.size() / experts.count * unvisited;
    }
  }
  return all;
}

}  // namespace sluice::model
