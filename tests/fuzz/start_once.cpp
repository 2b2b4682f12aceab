// Loaded into a program by LD_PRELOAD, it runs the program's main() for one request after another, in a child each:
// what the program's libraries do before main() is done once.
//
// A request on stdin is its length (4 bytes) and so many bytes: words that each end with 0, namely the limit of
// processor time in seconds, the folder to run in, the files for stdout and stderr, and the arguments. The answer on
// stdout is the child's process id (8 bytes) and, behind its end, three more figures of 8 bytes: its status as wait()
// gives it, its processor time in microseconds, its peak memory in KiB.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main program = nullptr;

bool receive(void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t got = ::read(STDIN_FILENO, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void answer(int64_t figure) {
  if (::write(STDOUT_FILENO, &figure, sizeof figure) != sizeof figure) _exit(1);
}

void open_as(int descriptor, const char* path, int flags) {
  const int file = ::open(path, flags, 0644);
  if (file < 0 || ::dup2(file, descriptor) < 0) _exit(127);
  ::close(file);
}

// In the child, instead of the requests.
[[noreturn]] void run(std::vector<char*> words, char* name) {
  constexpr size_t kSettings = 4;
  const rlim_t seconds = std::strtoul(words[0], nullptr, 10);
  const rlimit limit{seconds, seconds};
  ::setrlimit(RLIMIT_CPU, &limit);
  if (::chdir(words[1]) != 0) _exit(127);
  open_as(STDIN_FILENO, "/dev/null", O_RDONLY);
  open_as(STDOUT_FILENO, words[2], O_WRONLY | O_CREAT | O_TRUNC);
  open_as(STDERR_FILENO, words[3], O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> arguments(words.begin() + kSettings, words.end());
  arguments.insert(arguments.begin(), name);
  arguments.push_back(nullptr);
  std::exit(program(static_cast<int>(arguments.size()) - 1, arguments.data(), environ));
}

int serve(int, char** argv, char**) {
  ::unsetenv("LD_PRELOAD");  // for what the program starts itself
  uint32_t size = 0;
  while (receive(&size, sizeof size)) {
    std::string request(size, '\0');
    if (!receive(request.data(), size)) break;
    std::vector<char*> words;
    for (size_t at = 0; at < request.size(); at = request.find('\0', at) + 1) words.push_back(&request[at]);
    const pid_t child = ::fork();
    if (child == 0) run(words, argv[0]);
    answer(child);
    int status = 0;
    rusage usage{};
    ::wait4(child, &status, 0, &usage);
    answer(status);
    answer((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * int64_t{1'000'000} + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec);
    answer(usage.ru_maxrss);
  }
  return 0;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack_end) {
  program = main;
  const auto next = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(&serve, argc, argv, init, fini, loader_fini, stack_end);
}
