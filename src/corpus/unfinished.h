// A corpus under construction: a folder PREFIX.unfinished. One process at a time may write into it, and a
// killed process leaves it, with the state saved last, to the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::corpus {

// A file that is appended to.
class GrowingFile {
 public:
  // Makes the file, or truncates it to `keep_bytes`. InputError if it is shorter; RunError if it cannot be
  // written.
  GrowingFile(std::filesystem::path path, int64_t keep_bytes);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // RunError naming path and reason if the disk is full.
  void write(std::string_view bytes);
  // After sync(), the written bytes survive a crash of the machine.
  void sync();
  // Moves the file, whole and on disk, to its final name. REQUIRES: no writes afterwards.
  void move_to(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

class Unfinished {
 public:
  // Takes the folder. Its content stays if it has a whole state and this fingerprint of the corpus' inputs
  // and options; an empty fingerprint continues nothing. InputError if another process has it.
  Unfinished(const std::filesystem::path& prefix, std::string fingerprint);
  // Removes the folder, unless keep() was called.
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // The state saved last; null if there is none.
  const base::Json& state() const { return *state_; }
  // Writes state and fingerprint atomically.
  void save(base::Json state);
  // Leaves the folder to the next process if a state was saved from which it can continue; for example after
  // a full disk.
  void keep();

 private:
  void lock();

  std::filesystem::path folder_;
  std::string fingerprint_;
  std::unique_ptr<base::Json> state_;
  int lock_ = -1;
  bool keep_ = false;
};

}  // namespace sluice::corpus
