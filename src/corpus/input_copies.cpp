#include "corpus/input_copies.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/text.h"
#include "corpus/parallel.h"

namespace sluice::corpus {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kRangeBytes = int64_t{8} << 20;  // of one request

// Some ranges at once, written in order; memory holds these only.
void copy_object(const InputFile& file, const fs::path& path) {
  if (file.place.status().value_or(storage::FileStatus{}).version != file.version) {
    throw base::InputError(
        base::text(file.path.string(), " has been replaced or removed since the build began: begin again"));
  }
  const std::unique_ptr<storage::Source> source = file.place.open();
  base::AtomicFile copy(path);
  const auto readers = static_cast<int64_t>(source->readers());
  for (int64_t begin = 0; begin < source->size(); begin += readers * kRangeBytes) {
    const int64_t end = std::min(source->size(), begin + readers * kRangeBytes);
    const auto ranges = static_cast<size_t>((end - begin + kRangeBytes - 1) / kRangeBytes);
    parallel_for(ranges, static_cast<int>(readers), [&](size_t range) {
      const int64_t from = begin + static_cast<int64_t>(range) * kRangeBytes;
      source->fetch({from, std::min(end, from + kRangeBytes)});
    });
    copy.write(source->data() + begin, static_cast<size_t>(end - begin));
    source->release({begin, end});
  }
  copy.commit();
}

}  // namespace

InputCopies::InputCopies(const std::vector<InputFile>& files, fs::path folder,
                         std::function<bool(size_t)> is_wanted)
    : files_(files), folder_(std::move(folder)), is_wanted_(std::move(is_wanted)) {}

InputCopies::~InputCopies() {
  if (copied_.valid()) copied_.wait();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

// Formats are told by endings, so the copy keeps the file's name.
fs::path InputCopies::copy_of(size_t file) const {
  return folder_ / std::to_string(file) / files_[file].path.filename();
}

void InputCopies::begin(size_t file) {
  coming_ = file;
  base::make_directories(copy_of(file).parent_path());
  copied_ = std::async(std::launch::async, [this, file] { copy_object(files_[file], copy_of(file)); });
}

InputFile InputCopies::open(size_t file) {
  InputFile opened = files_[file];
  std::error_code ignored;
  if (open_) fs::remove_all(copy_of(*std::exchange(open_, {})).parent_path(), ignored);
  if (opened.place.is_path()) return opened;
  if (coming_ != file) {
    if (copied_.valid()) copied_.wait();
    begin(file);
  }
  copied_.get();
  coming_.reset();
  open_ = file;
  opened.copy = copy_of(file);
  for (size_t next = file + 1; next < files_.size(); ++next) {
    if (files_[next].place.is_path() || !is_wanted_(next)) continue;
    begin(next);
    break;
  }
  return opened;
}

}  // namespace sluice::corpus
