// Golden files of tests: "key: value" lines and a description, a divider, and the expected text.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace sluice::base {

struct Golden {
  std::map<std::string, std::vector<std::string>> values;  // a key may occur several times

  bool has(const std::string& key) const { return values.contains(key); }
  // The first value of a key that must be there.
  const std::string& value(const std::string& key) const { return values.at(key).front(); }
  int64_t number(const std::string& key) const { return parse_integer(value(key)).value(); }
  int64_t number(const std::string& key, int64_t otherwise) const {
    return has(key) ? number(key) : otherwise;
  }
};

// kRewrite, which each test selects if SLUICE_UPDATE_GOLDEN is set, rewrites the expected text.
enum class GoldenUse { kCompare, kRewrite };

// Compares `make(golden)` with the expected text of each file in tests/golden/NAME. Returns how many files.
template <typename Make>
int check_golden(const std::string& name, GoldenUse use, Make make) {
  constexpr std::string_view kDivider = "----\n";
  const auto root = std::filesystem::path(SLUICE_SOURCE_DIR);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden" / name)) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    const std::string bytes = read_file(entry.path());
    const size_t divider = bytes.find(kDivider);
    const std::string head = bytes.substr(0, divider);
    Golden golden;
    for (const std::string& line : split(head, '\n')) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      golden.values[line.substr(0, colon)].emplace_back(trim(line.substr(colon + 1)));
    }
    const std::string actual = make(golden);
    if (use == GoldenUse::kRewrite) {
      write_file_atomically(entry.path(), text(head, kDivider, actual));
    } else {
      const std::string expected =
          divider == std::string::npos ? "" : bytes.substr(divider + kDivider.size());
      EXPECT_EQ(actual, expected) << entry.path();
    }
  }
  return files;
}

}  // namespace sluice::base
