// reader_fuzz --count N --seed S: the texts that people bring, damaged at random (run_inputs.h): JSON, JSON
// Lines, lists, compressed documents, TOML, tables and tokenizers. A part of input_fuzz that links little,
// for a sanitizer's build in minutes.
#include "run_inputs.h"

int main(int argc, char** argv) {
  using namespace sluice::fuzz;
  const auto inputs = [](const std::filesystem::path& scratch) {
    std::vector<Input> all = reader_inputs(scratch), more = python_inputs(scratch);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return run_inputs("reader_fuzz", inputs, argc, argv);
}
