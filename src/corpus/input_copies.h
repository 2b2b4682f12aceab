// Files of inputs on this machine: those in buckets are copied to a folder, the next one while one is read.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <vector>

#include "corpus/inputs.h"

namespace sluice::corpus {

// One thread's.
class InputCopies {
 public:
  // `folder` is made when a copy is; `is_wanted` says of which files there will be one.
  InputCopies(const std::vector<InputFile>& files, std::filesystem::path folder,
              std::function<bool(size_t file)> is_wanted);
  ~InputCopies();
  InputCopies(const InputCopies&) = delete;
  InputCopies& operator=(const InputCopies&) = delete;

  // The file, whose copy is there until the next call. InputError when what lies in the bucket is no more
  // what was found there; RunError when it cannot be reached. REQUIRES: calls with ascending numbers.
  InputFile open(size_t file);

 private:
  void begin(size_t file);
  std::filesystem::path copy_of(size_t file) const;

  const std::vector<InputFile>& files_;
  const std::filesystem::path folder_;
  const std::function<bool(size_t)> is_wanted_;
  std::optional<size_t> coming_;  // the number of the file that is being copied
  std::future<void> copied_;
  std::optional<size_t> open_;
};

}  // namespace sluice::corpus
