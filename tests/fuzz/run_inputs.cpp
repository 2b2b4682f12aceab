#include "run_inputs.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "mutate.h"
#include "program.h"

// Called by the sanitizers before they end the program.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace sluice::fuzz {
namespace {

using base::text;

constexpr unsigned kLongestCaseSeconds = 60;

uint64_t current_case = 0;

void name_case() {
  const std::string line = text("case ", current_case, " ends the program\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void end_by_signal(int number) {
  name_case();
  _exit(128 + number);
}

// An input that is refused must say why, in a message of a readable size that names no library's exception.
void run_watched_case(const std::vector<Input>& inputs, uint64_t seed, int64_t& refused) {
  current_case = seed;
  alarm(kLongestCaseSeconds);
  base::Rng rng(seed, 4);
  const Input& input = inputs[rng.below(inputs.size())];
  try {
    input.read_damaged(rng);
  } catch (const base::RunError& error) {
    throw base::RunError(text(input.name, ": ", error.what()));
  } catch (const base::Error& error) {
    ++refused;
    const std::string message = error.what();
    require(!message.empty() && message.size() < 2000 && message.find(": ") != std::string::npos &&
                message.find("exception") == std::string::npos,
            text(input.name, ": no message of a readable size with a way out: '", message, "'"));
  } catch (const std::exception& error) {
    throw base::RunError(text(input.name, ": ", error.what()));
  }
}

// The memory that the process has resident.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// A folder of this process that is removed at the end.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / text("sluice-input-fuzz-", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Not atomic: no reader meets it half-written, and a million of these need not reach the disk.
void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

std::function<void(base::Rng&)> damaged_file(const std::filesystem::path& path,
                                             const std::function<void(const std::filesystem::path&)>& read) {
  const std::string sound = base::read_file(path);
  read(path);  // sound, it is accepted
  return [=](base::Rng& rng) {
    put(path, damage(sound, rng));
    try {
      read(path);
    } catch (...) {
      put(path, sound);
      throw;
    }
    put(path, sound);
  };
}

int run_inputs(const std::string& name, const MakeInputs& make, int argc, char** argv) {
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(name_case);
  std::signal(SIGALRM, end_by_signal);
  const Scratch scratch;
  const std::vector<Input> inputs = make(scratch.path());
  // Beyond what the first thousands take, of caches and of what a sanitizer keeps back.
  constexpr int64_t kWarmCases = 5000, kMostGrowthBytes = int64_t{256} << 20;
  int64_t refused = 0, cases_run = 0, warm_bytes = 0;
  const auto run_case = [&](const Cases&, uint64_t seed) {
    run_watched_case(inputs, seed, refused);
    if (++cases_run == kWarmCases) warm_bytes = resident_bytes();
  };
  const auto summary = [&](const Cases& cases) {
    const int64_t grown = warm_bytes == 0 ? 0 : resident_bytes() - warm_bytes;
    require(grown < kMostGrowthBytes, text("memory grew by ", base::human_bytes(static_cast<double>(grown))));
    return text(cases.count, " inputs of ", inputs.size(), " kinds: ", refused,
                " refused with a message, the others read; memory grew by ",
                base::human_bytes(static_cast<double>(std::max<int64_t>(0, grown))));
  };
  return run_program({.name = name, .count = 2000, .run_case = run_case, .summary = summary}, argc, argv);
}

}  // namespace sluice::fuzz
