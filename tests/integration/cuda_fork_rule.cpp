// Stands in for CUDA's runtime of a machine with one GPU, where it is loaded before the program's own, and
// keeps CUDA's rule: once the driver was started in a process, which the first question does, every call in a
// child that the process forks fails (CUDA C++ Programming Guide, "Initialization"). What happens goes to the
// file $CUDA_FORK_LOG, a line each.
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kInitializationError = 3;
pid_t started_in = 0;

void tell(const char* what) {
  const char* path = std::getenv("CUDA_FORK_LOG");
  std::FILE* log = path == nullptr ? nullptr : std::fopen(path, "a");
  if (log == nullptr) return;
  std::fprintf(log, "%d %s\n", static_cast<int>(getpid()), what);
  std::fclose(log);
}

int answer(const char* what) {
  if (started_in == 0) started_in = getpid();
  const bool works = started_in == getpid();
  tell(works ? what : "asked in a forked child");
  return works ? kSuccess : kInitializationError;
}

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  const int status = answer("counted");
  *count = status == kSuccess ? 1 : 0;
  return status;
}

// Of whatever version: the name stands first in all of them.
int cudaGetDeviceProperties(void* properties, int /*device*/) {
  const int status = answer("looked at");
  if (status == kSuccess) std::strcpy(static_cast<char*>(properties), "a GPU that is not there");
  return status;
}
int cudaGetDeviceProperties_v2(void* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

}  // extern "C"
