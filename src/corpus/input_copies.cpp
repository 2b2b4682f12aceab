#include "corpus/input_copies.h"

#include <system_error>
#include <utility>

#include "base/file.h"
#include "corpus/remote_copy.h"

namespace sluice::corpus {

namespace fs = std::filesystem;

InputCopies::InputCopies(const std::vector<InputFile>& files, fs::path folder,
                         std::function<bool(size_t)> is_wanted)
    : files_(files), folder_(std::move(folder)), is_wanted_(std::move(is_wanted)) {}

InputCopies::~InputCopies() {
  if (copied_.valid()) copied_.wait();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

// Formats are recognized by endings, so the copy keeps the file's name.
fs::path InputCopies::copy_of(size_t file) const {
  return folder_ / std::to_string(file) / files_[file].path.filename();
}

void InputCopies::begin(size_t file) {
  coming_ = file;
  base::make_directories(copy_of(file).parent_path());
  copied_ = std::async(std::launch::async, [this, file] {
    copy_to_file(files_[file].place, files_[file].version, copy_of(file));
  });
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
