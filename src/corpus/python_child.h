// A Sluice script, run by Python in a child process, that answers over its own socket: little-endian
// integers, and a status byte before each answer (protocol: tools/sluice_channel.py).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::corpus {

// Locations of Python and the scripts.
struct PythonTools {
  std::filesystem::path interpreter;         // as the user named it; empty: the first of `usual` that works
  std::vector<std::filesystem::path> usual;  // a machine's interpreters; empty: python3
  std::filesystem::path scripts;             // the folder tools/ of Sluice
  std::string option = "--python";           // the option by which users name another interpreter
  double start_s = 0;                        // limit on a script's start, seconds; 0: none
};

// The child ended before it answered. A new child may be asked.
class ChildEnded : public base::RunError {
 public:
  using RunError::RunError;
};
// The child was killed, because its answer took longer than allowed.
class ChildLate : public ChildEnded {
 public:
  using ChildEnded::ChildEnded;
};

// Not thread-safe.
class PythonChild {
 public:
  // Starts scripts/`script` with the arguments and waits for its first status byte. `subject` is the path
  // that the script works on. InputError if no Python works or the script is missing, or with the script's
  // own message, which names the file at fault. ChildLate if starting takes longer than tools.start_s.
  PythonChild(PythonTools tools, std::string script, std::vector<std::string> arguments, std::string subject);
  // The child ends when its input does; otherwise it is killed with all processes that it started.
  ~PythonChild();
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  // Ends the child and starts another one with the same arguments. Throws as the constructor.
  void restart();
  // Kills the child and all that it started.
  void kill();

  // Limits the time of an answer from now on: a child that takes longer is killed, and receive() throws
  // ChildLate. 0, the initial value: no limit.
  void set_patience(double seconds);
  // Buffers the data until flush(), the next receive() or a full buffer, so that the child wakes once per
  // message and not once per number. ChildEnded if the child has ended.
  void send(const void* data, size_t size);
  void flush();
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
  void send_text(const std::string& text);
  std::string receive_text();
  // Reads the status byte before an answer. InputError with the child's message if it reports an error.
  void check_status();

 private:
  void start();
  // Why this interpreter does not work, as part of a sentence; empty: it has started the script.
  std::string try_interpreter(const std::filesystem::path& interpreter);
  void stop();
  // A description of how the child ended, once it has.
  std::string ended();
  void send_at_once(const char* data, size_t size);
  // Receives at least one byte, at most `size`.
  size_t receive_some(char* data, size_t size);

  PythonTools tools_;
  std::string script_;
  std::vector<std::string> arguments_;
  std::string subject_;
  double patience_s_ = 0;
  int socket_ = -1;
  pid_t child_ = -1;
  std::string out_;       // waits to be sent
  std::vector<char> in_;  // received; [in_begin_, in_end_) is not read yet
  size_t in_begin_ = 0, in_end_ = 0;
};

}  // namespace sluice::corpus
