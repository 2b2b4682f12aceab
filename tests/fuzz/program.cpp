#include "program.h"

#include <iostream>

#include "base/error.h"
#include "base/text.h"

namespace sluice::fuzz {

namespace {

std::string usage(const Program& program) {
  std::string usage = "usage: " + program.name + " [--count N] [--seed S]";
  for (const std::string& flag : program.flags) usage += " [" + flag + "]";
  return usage;
}

Cases parse_cases(const Program& program, int argc, char** argv) {
  Cases cases{.count = program.count};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (program.flags.contains(name)) {
      cases.flags.insert(name);
      continue;
    }
    const auto value = i + 1 < argc ? base::parse_integer(argv[++i]) : std::nullopt;
    if (!value || (name != "--count" && name != "--seed")) throw base::InputError(usage(program));
    (name == "--count" ? cases.count : cases.seed) = *value;
  }
  return cases;
}

void run_cases(const Program& program, const Cases& cases) {
  constexpr int64_t kMostFailures = 20;
  int64_t failures = 0;
  for (int64_t i = 0; i < cases.count && failures < kMostFailures; ++i) {
    const auto seed = static_cast<uint64_t>(cases.seed + i);
    try {
      program.run_case(cases, seed);
    } catch (const std::exception& error) {
      std::cerr << "case " << seed << ": " << error.what() << std::endl;
      ++failures;
    }
  }
  if (failures > 0) throw base::RunError(base::text(failures, " cases failed"));
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  try {
    const Cases cases = parse_cases(program, argc, argv);
    run_cases(program, cases);
    std::cout << program.summary(cases) << "\n";
    return 0;
  } catch (const base::Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_status();
  }
}

void require(bool condition, const std::string& fault) {
  if (!condition) throw base::RunError(fault);
}

}  // namespace sluice::fuzz
