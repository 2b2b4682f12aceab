#include "cli/failure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <system_error>

#include "base/printable.h"
#include "base/text.h"

namespace sluice::cli {

namespace {

// What a limit of this process says, "no limit" included.
std::string limit_text(__rlimit_resource resource, bool bytes) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return bytes ? base::human_bytes(static_cast<double>(limit.rlim_cur))
               : base::human_count(static_cast<int64_t>(limit.rlim_cur));
}

// Without memory there may be none for a better line.
[[noreturn]] void end_uncaught() {
  static constexpr char kOutOfMemory[] =
      "sluice: out of memory: raise the limit (ulimit -v), or free memory\n";
  try {
    if (const std::exception_ptr failure = std::current_exception()) std::rethrow_exception(failure);
    std::fputs("sluice: a thread was left running\n", stderr);
  } catch (const std::bad_alloc&) {
    static_cast<void>(!::write(STDERR_FILENO, kOutOfMemory, sizeof kOutOfMemory - 1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", base::printable(describe_failure(error)).c_str());
  } catch (...) {
    std::fputs("sluice: an unknown failure\n", stderr);
  }
  ::_exit(1);
}

}  // namespace

void say_what_nobody_catches() { std::set_terminate(&end_uncaught); }

std::string describe_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return base::text("out of memory: this process may use ", limit_text(RLIMIT_AS, true),
                      " of address space (ulimit -v); raise that, free memory, or ask for less");
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return base::text("the system refused another thread: this user may run ",
                      limit_text(RLIMIT_NPROC, false),
                      " (ulimit -u), or memory for its stack is missing (ulimit -v ",
                      limit_text(RLIMIT_AS, true), "): raise the limit, or lower train.threads");
  }
  const std::string message = error.what();  // libtorch's goes on with its stack
  return message.substr(0, message.find('\n'));
}

}  // namespace sluice::cli
