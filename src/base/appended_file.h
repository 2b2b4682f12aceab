// A file to append to that others may delete meanwhile: its bytes exist as long as it is open, and the next
// append then writes all of them to a new file of that name.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

namespace sluice::base {

class AppendedFile {
 public:
  // Creates the file if it does not exist. RunError naming the path if it cannot be written.
  explicit AppendedFile(std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // RunError on a full disk. If another file has that name by now, appending continues in that file.
  void append(std::string_view bytes);

  // Whether the file or its directory was deleted since the last call and has been created again.
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
