// Maps enumerators to the words that people write for them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"

namespace sluice::config {

template <typename E>
struct Word {
  const char* text;
  E value;
};

template <typename Words>
std::vector<std::string> texts_of(const Words& words) {
  std::vector<std::string> texts;
  for (const auto& word : words) texts.emplace_back(word.text);
  return texts;
}

// REQUIRES: `text` is one of the words.
template <typename Words>
auto value_of(const Words& words, const std::string& text) {
  for (const auto& word : words) {
    if (text == word.text) return word.value;
  }
  SLUICE_ASSERT(false, "no word '" + text + "'");
}

inline constexpr Word<ComputeType> kComputeTypes[] = {{"auto", ComputeType::kAuto},
                                                      {"float32", ComputeType::kFloat32},
                                                      {"bfloat16", ComputeType::kBFloat16},
                                                      {"float64", ComputeType::kFloat64}};
inline constexpr Word<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}};

}  // namespace sluice::config
