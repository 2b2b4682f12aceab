// A script of Sluice's, run by Python in a child process, that answers over a socket of its own (the script
// tools/sluice_channel.py says how). Integers travel little-endian; each answer follows a status byte.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::corpus {

// Where Python and the scripts are.
struct PythonTools {
  std::filesystem::path interpreter;         // as the user named it; empty: the first of `usual` that serves
  std::vector<std::filesystem::path> usual;  // those of a machine; none: python3
  std::filesystem::path scripts;             // the folder tools/ of Sluice
  std::string option = "--python";           // by which the user names another interpreter
  double start_s = 0;                        // how long a script may take to start; 0: for ever
};

// The child has ended before it answered. A new one may be asked.
class ChildEnded : public base::RunError {
 public:
  using RunError::RunError;
};
// It was ended, because its answer took longer than it may.
class ChildLate : public ChildEnded {
 public:
  using ChildEnded::ChildEnded;
};

// Not thread-safe.
class PythonChild {
 public:
  // Starts scripts/`script` with the arguments and waits for its first status byte. `subject` is what the
  // script is for, a path. InputError when no Python serves or the script is missing, or with the script's
  // own message, which names the file that is at fault; ChildLate when it takes longer than tools.start_s.
  PythonChild(PythonTools tools, std::string script, std::vector<std::string> arguments, std::string subject);
  // The child ends when its input does; one that does not is killed, with all that it started.
  ~PythonChild();
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  // Ends the child, and starts another one as the first was. Throws what the constructor throws.
  void restart();
  // Kills the child and all that it started.
  void kill();

  // How long an answer may take from here on: a child that takes longer is killed, and receive() throws
  // ChildLate. 0: for ever, as it begins.
  void set_patience(double seconds);
  // What is sent waits until flush(), the next receive() or a full buffer: the child wakes once a question,
  // not once a number of it. ChildEnded when the child has ended.
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
  // Reads the byte in front of each answer. InputError with the child's message when it says that it cannot.
  void check_status();

 private:
  void start();
  // Why this interpreter doesn't serve, a part of a sentence; empty: it has started the script.
  std::string try_interpreter(const std::filesystem::path& interpreter);
  void stop();
  // How the child ended, once it has.
  std::string ended();
  void send_at_once(const char* data, size_t size);
  // At least one byte, at most `size`.
  size_t receive_some(char* data, size_t size);

  PythonTools tools_;
  std::string script_;
  std::vector<std::string> arguments_;
  std::string subject_;
  double patience_s_ = 0;
  int socket_ = -1;
  pid_t child_ = -1;
  std::string out_;       // that waits to be sent
  std::vector<char> in_;  // that was received, of which [in_begin_, in_end_) is not read yet
  size_t in_begin_ = 0, in_end_ = 0;
};

}  // namespace sluice::corpus
