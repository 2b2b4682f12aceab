// Local copies of input files in buckets: the next file is copied to a folder while one is read.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <vector>

#include "corpus/inputs.h"

namespace sluice::corpus {

// For use by one thread.
class InputCopies {
 public:
  // `folder` is made with the first copy. `is_wanted` tells which files will be opened.
  InputCopies(const std::vector<InputFile>& files, std::filesystem::path folder,
              std::function<bool(size_t file)> is_wanted);
  ~InputCopies();
  InputCopies(const InputCopies&) = delete;
  InputCopies& operator=(const InputCopies&) = delete;

  // Returns the file, whose copy stays until the next call. InputError if the object in the bucket has
  // changed, RunError if the bucket cannot be reached. REQUIRES: calls with ascending numbers.
  InputFile open(size_t file);

 private:
  void begin(size_t file);
  std::filesystem::path copy_of(size_t file) const;

  const std::vector<InputFile>& files_;
  const std::filesystem::path folder_;
  const std::function<bool(size_t)> is_wanted_;
  std::optional<size_t> coming_;  // number of the file that is being copied
  std::future<void> copied_;
  std::optional<size_t> open_;
};

}  // namespace sluice::corpus
