// The three kinds of failure (docs/architecture.md): the user's (exceptions below, one line that names the
// value and the way out), expected ones (values, never exceptions), and our own (SLUICE_ASSERT).
#pragma once

#include <stdexcept>
#include <string>

namespace sluice::base {

// A failure that ends the command with `exit_status()`. The line for the user is `what()`. Everything that
// the message quotes is made printable in it (base/printable.h), including zero bytes, at which a reader of a
// C string would stop.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int exit_status);
  int exit_status() const { return exit_status_; }

 private:
  int exit_status_;
};

// Something failed at run time: a lost rank, a full disk. Exit status 1.
class RunError : public Error {
 public:
  explicit RunError(const std::string& message) : Error(message, 1) {}
};

// The user's input is wrong: usage, configuration, file contents. Exit status 2.
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(message, 2) {}
};

// The request cannot be met with the given resources, e.g. no strategy holds the context. Exit status 3.
class InfeasibleError : public Error {
 public:
  explicit InfeasibleError(const std::string& message) : Error(message, 3) {}
};

// Our own mistake. Only code that then tries another plan (run/plan_ahead.h) catches it below main.
class AssertionError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void assertion_failed(const char* file, int line, const char* condition,
                                   const std::string& message);

}  // namespace sluice::base

// Checks an invariant of ours in every build type; `message` is evaluated only on failure.
#define SLUICE_ASSERT(condition, message)                                          \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::sluice::base::assertion_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
