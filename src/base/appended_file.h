// A file that grows while others may delete it: what was written is still there as long as it is open, and is
// written anew under its name.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

namespace sluice::base {

class AppendedFile {
 public:
  // Makes the file unless it is there. RunError naming it when it cannot be written.
  explicit AppendedFile(std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // RunError on a full disk. A file that somebody else has put in its place is gone on with.
  void append(std::string_view bytes);

  // Whether the file, perhaps its directory, had been deleted since the last call and was written anew.
  bool take_restored() { return std::exchange(restored_, false); }

 private:
  void open();
  void close();
  void follow_name();
  void restore();

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool restored_ = false;
};

}  // namespace sluice::base
