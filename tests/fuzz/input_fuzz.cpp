// input_fuzz --count N --seed S: every kind of file that Sluice reads, damaged at random. Reading one ends in
// a result or in an error with a message of one line; what was accepted is used. Meant for the sanitizers.
// Exit status 1 when a case fails in another way.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "inputs.h"
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

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  using namespace sluice::fuzz;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(name_case);
  std::signal(SIGALRM, end_by_signal);
  const Scratch scratch;
  std::vector<Input> inputs = planning_inputs();
  for (Input& input : file_inputs(scratch.path())) inputs.push_back(std::move(input));
  for (Input& input : folder_inputs(scratch.path())) inputs.push_back(std::move(input));
  int64_t refused = 0;
  return run_program(
      {.name = "input_fuzz",
       .count = 2000,
       .run_case = [&](const Cases&, uint64_t seed) { run_watched_case(inputs, seed, refused); },
       .summary =
           [&](const Cases& cases) {
             return text(cases.count, " inputs: ", refused, " refused with a message, the others read");
           }},
      argc, argv);
}
