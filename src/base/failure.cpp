#include "base/failure.h"

#include <sys/resource.h>

#include <new>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace sluice::base {

namespace {

// The process's soft limit for `resource` as text; "unlimited" if it has none.
std::string limit_text(__rlimit_resource resource, bool bytes) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return bytes ? human_bytes(static_cast<double>(limit.rlim_cur))
               : human_count(static_cast<int64_t>(limit.rlim_cur));
}

// Names the limit only if one is set: without it the machine's memory has run out.
std::string room_for_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "the machine has no more; free memory, or ask for less";
  return text("this process may use ", limit_text(RLIMIT_AS, true),
              " of address space (ulimit -v); raise that, free memory, or ask for less");
}

// Cuts off the place: "[enforce fail at device.cc:186] rv != -1. -1 vs -1. Cannot bind" and "[pair.cc:547]
// Cannot bind" both become "Cannot bind".
std::string_view without_place(std::string_view message) {
  const bool enforced = message.starts_with("[enforce fail at ");
  const size_t end = message.find("] ");
  if (end == message.npos || !(enforced || message.starts_with("[/"))) return message;
  message.remove_prefix(end + 2);
  const size_t last = message.rfind(". ");
  return enforced && last != message.npos ? message.substr(last + 2) : message;
}

}  // namespace

std::string describe_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return text("out of memory: ", room_for_memory());
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return text("the system refused another thread: this user may run ", limit_text(RLIMIT_NPROC, false),
                " (ulimit -u), or memory for its stack is missing (ulimit -v ", limit_text(RLIMIT_AS, true),
                "): raise the limit, or lower train.threads");
  }
  std::string_view whole = error.what();
  const std::string message(
      without_place(whole.substr(0, whole.find('\n'))));  // libtorch's messages continue with a stack trace
  if (message.ends_with("Too many open files")) {
    return text(message, ": this process may have ", limit_text(RLIMIT_NOFILE, false),
                " (ulimit -n): raise the limit");
  }
  if (message.find("Cannot allocate memory") != message.npos) {  // libtorch's message, about a mapping
    return text(message, ": ", room_for_memory());
  }
  return message;
}

}  // namespace sluice::base
