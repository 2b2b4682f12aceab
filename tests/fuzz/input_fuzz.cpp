// input_fuzz --count N --seed S: every kind of file that Sluice reads, damaged at random (run_inputs.h).
#include "run_inputs.h"

int main(int argc, char** argv) {
  using namespace sluice::fuzz;
  const auto inputs = [](const std::filesystem::path& scratch) {
    std::vector<Input> all = planning_inputs();
    for (auto& more :
         {file_inputs(scratch), folder_inputs(scratch), reader_inputs(scratch), python_inputs(scratch)}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  return run_inputs("input_fuzz", inputs, argc, argv);
}
