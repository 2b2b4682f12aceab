#include "checkpoint/vocabulary_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::checkpoint {

ParameterSource with_vocabulary(const model::ParameterTable& wanted, const model::ParameterTable& files,
                                ParameterSource source) {
  SLUICE_ASSERT(wanted.buckets.size() == files.buckets.size(),
                base::text(wanted.buckets.size(), " buckets and ", files.buckets.size(), ": another model"));
  return [&wanted, &files, source = std::move(source)](int bucket, base::Interval interval, float* values) {
    const std::vector<model::Parameter>& in_files = files.buckets[static_cast<size_t>(bucket)].parameters;
    auto file = in_files.begin();
    for (const model::Parameter& own : wanted.buckets[static_cast<size_t>(bucket)].parameters) {
      const model::Parameter& other = *file++;
      SLUICE_ASSERT(own.columns == other.columns, base::text(own.name, " and ", other.name));
      const int64_t begin = std::max(interval.begin, own.offset);
      const int64_t end = std::min(interval.end, own.offset + own.size());
      if (begin >= end) continue;
      // Rows come first in the flat order, so the common ones are a prefix of both.
      const int64_t common = std::clamp(own.offset + std::min(own.size(), other.size()), begin, end);
      float* const first = values + (begin - interval.begin);
      const int64_t shift = other.offset - own.offset;
      if (begin < common) source(bucket, {begin + shift, common + shift}, first);
      std::fill(first + (common - begin), first + (end - begin), 0.0F);
    }
  };
}

}  // namespace sluice::checkpoint
