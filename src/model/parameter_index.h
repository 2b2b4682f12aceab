// Where a model's parameters lie, by name: between tables of one model that is tuned in different ways.
#pragma once

#include <map>
#include <string>

#include "base/interval.h"
#include "model/parameters.h"

namespace sluice::model {

class ParameterIndex {
 public:
  explicit ParameterIndex(const ParameterTable& table) {
    for (const Bucket& bucket : table.buckets) {
      for (const Parameter& parameter : bucket.parameters)
        places_[parameter.name] = {bucket.index, parameter.offset};
    }
  }

  // Calls visit(parameter, run, bucket, elsewhere) for each of another table's parameters that has elements
  // `run` in `interval` of its bucket `from`: elements `elsewhere` of bucket `bucket` here. Parameters that
  // are not known here are passed over.
  template <typename Visit>
  void for_each_run(const Bucket& from, base::Interval interval, Visit visit) const {
    for (const Parameter& parameter : from.parameters) {
      const base::Interval run =
          base::intersect(interval, {parameter.offset, parameter.offset + parameter.size()});
      const auto place = places_.find(parameter.name);
      if (run.empty() || place == places_.end()) continue;
      const auto [bucket, offset] = place->second;
      const int64_t by = offset - parameter.offset;
      visit(parameter, run, bucket, base::Interval{run.begin + by, run.end + by});
    }
  }

 private:
  struct Place {
    int bucket = 0;
    int64_t offset = 0;
  };
  std::map<std::string, Place> places_;
};

}  // namespace sluice::model
