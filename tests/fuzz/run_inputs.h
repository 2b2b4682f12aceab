// The loop of programs that damage inputs at random and read them. Reading one ends in a result or in an
// error with a message of one line; what was accepted is used. Meant for the sanitizers.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "inputs.h"

namespace sluice::fuzz {

// The inputs, with files in `scratch`.
using MakeInputs = std::function<std::vector<Input>(const std::filesystem::path& scratch)>;

// NAME --count N --seed S. The exit status is 1 when a case fails in another way, or memory grows.
int run_inputs(const std::string& name, const MakeInputs& make, int argc, char** argv);

}  // namespace sluice::fuzz
