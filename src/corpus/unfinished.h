// Where a corpus grows until it is whole: a folder PREFIX.unfinished that one process at a time may write
// into, and that a killed one leaves for the next, with what it had last saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::corpus {

// A file that is written from its end on.
class GrowingFile {
 public:
  // Makes the file, or cuts it to `keep_bytes`. InputError when it has fewer; RunError when it cannot be
  // written.
  GrowingFile(std::filesystem::path path, int64_t keep_bytes);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // RunError naming path and reason on a full disk.
  void write(std::string_view bytes);
  // What was written survives a crash of the machine.
  void sync();
  // Gives the file, whole and on disk, its name. REQUIRES: not written afterwards.
  void move_to(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

class Unfinished {
 public:
  // Takes the folder, empty unless what lies there has this fingerprint, which says what the corpus is made
  // of and how, and a whole state; an empty one continues nothing. InputError when another process has it.
  Unfinished(const std::filesystem::path& prefix, std::string fingerprint);
  // Removes the folder, unless keep() was called.
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // As last saved; null when nothing was.
  const base::Json& state() const { return *state_; }
  // Writes state and fingerprint, whole or not at all.
  void save(base::Json state);
  // Leaves the folder to the next process, if anything was saved that it can go on with: after a full disk,
  // say.
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
