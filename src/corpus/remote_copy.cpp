#include "corpus/remote_copy.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/text.h"
#include "corpus/parallel.h"

namespace sluice::corpus {

namespace {

constexpr int64_t kRequestBytes = int64_t{8} << 20;

}  // namespace

// Copies a few ranges at a time, written in order, so that memory holds only these.
void copy_to_file(const storage::Location& place, const std::string& version,
                  const std::filesystem::path& path) {
  if (place.status().value_or(storage::FileStatus{}).version != version) {
    throw base::InputError(
        base::text(place.string(), " has been replaced or removed since it was found: begin again"));
  }
  const std::unique_ptr<storage::Source> source = place.open();
  base::AtomicFile copy(path);
  const auto readers = static_cast<int64_t>(source->readers());
  for (int64_t begin = 0; begin < source->size(); begin += readers * kRequestBytes) {
    const int64_t end = std::min(source->size(), begin + readers * kRequestBytes);
    const auto requests = static_cast<size_t>((end - begin + kRequestBytes - 1) / kRequestBytes);
    parallel_for(requests, static_cast<int>(readers), [&](size_t request) {
      const int64_t from = begin + static_cast<int64_t>(request) * kRequestBytes;
      source->fetch({from, std::min(end, from + kRequestBytes)});
    });
    copy.write(source->data() + begin, static_cast<size_t>(end - begin));
    source->release({begin, end});
  }
  copy.commit();
}

}  // namespace sluice::corpus
