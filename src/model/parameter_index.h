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
        places_[parameter.name] = {bucket.index, parameter.offset, parameter.format, &parameter};
    }
  }

  // The table outlives the index. Parameters whose numbers are coded in one table alone are passed over.
  // Calls visit(parameter, run, bucket, elsewhere) for each of another table's parameters that has elements
  // `run` in `interval` of its bucket `from`: elements `elsewhere` of bucket `bucket` here. Parameters that
  // are not known here are passed over.
  template <typename Visit>
  void for_each_run(const Bucket& from, base::Interval interval, Visit visit) const {
    for (const Parameter& parameter : from.parameters) {
      const base::Interval run = base::intersect(interval, parameter.stored());
      const auto place = places_.find(parameter.name);
      if (run.empty() || place == places_.end() || place->second.format != parameter.format) continue;
      const int64_t by = place->second.offset - parameter.offset;
      visit(parameter, run, place->second.bucket, base::Interval{run.begin + by, run.end + by});
    }
  }

  // Those that are coded here and not there: visit(parameter, run, bucket, the parameter here).
  template <typename Visit>
  void for_each_coded(const Bucket& from, base::Interval interval, Visit visit) const {
    for (const Parameter& parameter : from.parameters) {
      const base::Interval run = base::intersect(interval, parameter.stored());
      const auto place = places_.find(parameter.name);
      if (run.empty() || place == places_.end() || parameter.format.coded()) continue;
      if (place->second.format.coded()) visit(parameter, run, place->second.bucket, *place->second.parameter);
    }
  }

 private:
  struct Place {
    int bucket = 0;
    int64_t offset = 0;
    BaseFormat format = {};
    const Parameter* parameter = nullptr;
  };
  std::map<std::string, Place> places_;
};

}  // namespace sluice::model
