#include "base/failure.h"

#include <sys/resource.h>

#include <new>
#include <system_error>

#include "base/text.h"

namespace sluice::base {

namespace {

// What a limit of this process says, "no limit" included.
std::string limit_text(__rlimit_resource resource, bool bytes) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return bytes ? human_bytes(static_cast<double>(limit.rlim_cur))
               : human_count(static_cast<int64_t>(limit.rlim_cur));
}

}  // namespace

std::string describe_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return text("out of memory: this process may use ", limit_text(RLIMIT_AS, true),
                " of address space (ulimit -v); raise that, free memory, or ask for less");
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return text("the system refused another thread: this user may run ", limit_text(RLIMIT_NPROC, false),
                " (ulimit -u), or memory for its stack is missing (ulimit -v ", limit_text(RLIMIT_AS, true),
                "): raise the limit, or lower train.threads");
  }
  const std::string message = error.what();  // libtorch's goes on with its stack
  return message.substr(0, message.find('\n'));
}

}  // namespace sluice::base
