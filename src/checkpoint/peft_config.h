// PEFT's adapter_config.json: the rank of each adapted matrix, and the factor of its adapter's
// product.
#pragma once

#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace sluice::checkpoint {

class PeftConfig {
 public:
  // InputError naming the file and the key if a key is invalid, or changes the result in a way that Sluice
  // does not compute (biases, initialisations that change the base).
  explicit PeftConfig(const std::filesystem::path& folder);

  // An adapter's product is multiplied by alpha / rank, or by alpha / sqrt(rank) under rsLoRA (Kalajdzievski,
  // 2023).
  struct Scale {
    int64_t rank = 0;
    double factor = 0;
  };
  // `module` is its path in the base model, "model.layers.0.self_attn.q_proj", or the path of a parameter.
  // The first pattern that matches the path's end decides, as in PEFT's get_pattern_key.
  Scale scale_of(const std::string& module) const;

  // All ranks that a matrix may have, ascending, each once.
  std::vector<int64_t> ranks() const;
  bool dora() const { return dora_; }
  const std::vector<std::string>& target_parameters() const { return target_parameters_; }
  const std::string& name() const { return name_; }
  // The base model's name in the file, for messages.
  const std::string& base_model() const { return base_model_; }

 private:
  template <typename T>
  using Patterns = std::vector<std::pair<std::regex, T>>;

  std::string name_;
  std::string base_model_;
  int64_t rank_ = 0;
  double alpha_ = 0;
  bool rank_stabilised_ = false;
  bool dora_ = false;
  Patterns<int64_t> ranks_;
  Patterns<double> alphas_;
  std::vector<std::string> target_parameters_;
};

}  // namespace sluice::checkpoint
