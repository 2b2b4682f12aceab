#include "cli/failure.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/failure.h"
#include "base/printable.h"

namespace sluice::cli {

namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
// The initialisers of libtorch take some 55 MiB.
constexpr int64_t kInitialisersBytes = 96 * kMebibyte;

// The address space in use; 0 if the system does not tell.
int64_t mapped_bytes() {
  char pages[32] = "";
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  static_cast<void>(!::read(file, pages, sizeof pages - 1));
  ::close(file);
  return std::strtoll(pages, nullptr, 10) * ::sysconf(_SC_PAGESIZE);
}

// Prints a fixed line if memory ran out: there may be none for a better one.
[[noreturn]] void end_uncaught() {
  static constexpr char kOutOfMemory[] =
      "sluice: out of memory: raise the limit (ulimit -v), or free memory\n";
  try {
    if (const std::exception_ptr failure = std::current_exception()) std::rethrow_exception(failure);
    std::fputs("sluice: a thread was left running\n", stderr);
  } catch (const std::bad_alloc&) {
    static_cast<void>(!::write(STDERR_FILENO, kOutOfMemory, sizeof kOutOfMemory - 1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", base::printable(base::describe_failure(error)).c_str());
  } catch (...) {
    std::fputs("sluice: an unknown failure\n", stderr);
  }
  ::_exit(1);
}

}  // namespace

void say_what_nobody_catches() { std::set_terminate(&end_uncaught); }

void require_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const int64_t least_bytes = mapped_bytes() + kInitialisersBytes;
  const auto allowed_bytes = static_cast<int64_t>(limit.rlim_cur);
  if (allowed_bytes >= least_bytes) return;
  char line[256];  // nothing is allocated: there may be no room
  const int size = std::snprintf(
      line, sizeof line,
      "sluice: out of memory: this process may use %lld MiB of address space (ulimit -v), and "
      "the program needs %lld MiB to start: raise the limit\n",
      static_cast<long long>(allowed_bytes / kMebibyte), static_cast<long long>(least_bytes / kMebibyte + 1));
  static_cast<void>(!::write(STDERR_FILENO, line, static_cast<size_t>(size)));
  ::_exit(1);
}

}  // namespace sluice::cli
