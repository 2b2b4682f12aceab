#include "checkpoint/vocabulary_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::checkpoint {

BucketSource with_vocabulary(const model::ParameterTable& files, ParameterSource source) {
  std::map<std::string, std::pair<int, const model::Parameter*>> in_files;
  for (const model::Bucket& bucket : files.buckets) {
    for (const model::Parameter& parameter : bucket.parameters)
      in_files[parameter.name] = {bucket.index, &parameter};
  }
  return [in_files = std::move(in_files), source = std::move(source)](
             const model::Bucket& bucket, base::Interval interval, float* values) {
    for (const model::Parameter& own : bucket.parameters) {
      const auto found = in_files.find(own.name);
      SLUICE_ASSERT(found != in_files.end(), base::text(own.name, " is of another model"));
      const auto& [there, file] = found->second;
      const model::Parameter& other = *file;
      SLUICE_ASSERT(own.columns == other.columns, base::text(own.name, " and ", other.name));
      const int64_t begin = std::max(interval.begin, own.offset);
      const int64_t end = std::min(interval.end, own.offset + own.size());
      if (begin >= end) continue;
      // Rows come first in the flat order, so the common ones are a prefix of both.
      const int64_t common = std::clamp(own.offset + std::min(own.size(), other.size()), begin, end);
      float* const first = values + (begin - interval.begin);
      const int64_t shift = other.offset - own.offset;
      if (begin < common) source(there, {begin + shift, common + shift}, first);
      std::fill(first + (common - begin), first + (end - begin), 0.0F);
    }
  };
}

}  // namespace sluice::checkpoint
