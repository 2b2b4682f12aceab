// reader_fuzz --count N --seed S: the texts that people bring, damaged at random (run_inputs.h): JSON, JSON
// Lines, lists, compressed documents, TOML. A part of input_fuzz that links little, for a sanitizer's build
// in minutes.
#include "run_inputs.h"

int main(int argc, char** argv) {
  return sluice::fuzz::run_inputs("reader_fuzz", sluice::fuzz::reader_inputs, argc, argv);
}
