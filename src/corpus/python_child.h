// A script of Sluice's, run by Python in a child process, that answers over its standard input and output.
// Integers travel little-endian; each answer follows a status byte (the scripts say which answers there are).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::corpus {

// Where Python and the scripts are.
struct PythonTools {
  std::filesystem::path interpreter;  // with the packages that scripts import; empty: python3
  std::filesystem::path scripts;      // the folder tools/ of Sluice
};

// Not thread-safe.
class PythonChild {
 public:
  // Starts scripts/`script` with the arguments and waits for its first status byte. `subject` is what the
  // script is for, a path. InputError when Python or the script is missing, or with the script's own message,
  // which names the file that is at fault.
  PythonChild(const PythonTools& tools, const std::string& script, const std::vector<std::string>& arguments,
              std::string subject);
  // The child ends when its input does.
  ~PythonChild();
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  // How long an answer may take from here on: a child that takes longer is ended, and receive() throws
  // RunError. For ever unless set.
  void set_patience(double seconds);
  // RunError when the child has ended.
  void send(const void* data, size_t size);
  void receive(void* data, size_t size);
  template <typename T>
  void send_number(T value) {
    send(&value, sizeof(value));
  }
  template <typename T>
  T receive_number() {
    T value;
    receive(&value, sizeof(value));
    return value;
  }
  // Reads the byte in front of each answer. InputError with the child's message when it says that it cannot.
  void check_status();

 private:
  void stop();

  std::string subject_;
  double patience_s_ = 0;  // 0: any
  int socket_ = -1;
  pid_t child_ = -1;
};

}  // namespace sluice::corpus
