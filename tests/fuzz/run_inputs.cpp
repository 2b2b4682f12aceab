#include "run_inputs.h"

#include <malloc.h>
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

extern "C" {
// Called by the sanitizers before they end the program.
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
// Of what was allocated and not freed, where a sanitizer allocates.
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();
}

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

// Each as often as its share says.
const Input& drawn(const std::vector<Input>& inputs, base::Rng& rng) {
  int64_t all = 0;
  for (const Input& input : inputs) all += input.share;
  int64_t at = static_cast<int64_t>(rng.below(static_cast<uint64_t>(all)));
  auto found = inputs.begin();
  while (at >= found->share) at -= (found++)->share;
  return *found;
}

// An input that is refused must say why, in a message of a readable size that names no library's exception.
void run_watched_case(const std::vector<Input>& inputs, uint64_t seed, int64_t& refused) {
  current_case = seed;
  alarm(kLongestCaseSeconds);
  base::Rng rng(seed, 4);
  const Input& input = drawn(inputs, rng);
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

// What the program has allocated and not freed. Its resident size says less: a sanitizer keeps back what is
// freed, and an allocator keeps pages of which a few bytes are used.
int64_t allocated_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
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
  // Beyond what the first cases allocate once and for all. An allocator counts blocks that it keeps for a
  // thread as used: a quarter of a mebibyte.
  constexpr int64_t kWarmCases = 1000, kMostGrowthBytes = int64_t{512} << 10;
  int64_t refused = 0, cases_run = 0, warm_bytes = 0;
  const auto run_case = [&](const Cases&, uint64_t seed) {
    run_watched_case(inputs, seed, refused);
    if (++cases_run == kWarmCases) warm_bytes = allocated_bytes();
  };
  const auto summary = [&](const Cases& cases) {
    const int64_t grown = warm_bytes == 0 ? 0 : allocated_bytes() - warm_bytes;
    require(grown < kMostGrowthBytes,
            text("allocated memory grew by ", base::human_bytes(static_cast<double>(grown))));
    return text(cases.count, " inputs of ", inputs.size(), " kinds: ", refused,
                " refused with a message, the others read; allocated memory grew by ",
                base::human_bytes(static_cast<double>(std::max<int64_t>(0, grown))));
  };
  return run_program({.name = name, .count = 2000, .run_case = run_case, .summary = summary}, argc, argv);
}

}  // namespace sluice::fuzz
