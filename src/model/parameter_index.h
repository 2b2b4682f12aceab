// Places of a model's parameters by name, to match tables of one model that is tuned in different ways.
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

  // The table must outlive the index. Calls visit(parameter, run, bucket, elsewhere) for each of another
  // table's parameters with elements `run` in `interval` of its bucket `from`; here they are elements
  // `elsewhere` of `bucket`. Skips parameters that this table does not have, and those coded in only one of
  // the tables.
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

  // Parameters coded here but not there: visit(parameter, run, bucket, the parameter here).
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
