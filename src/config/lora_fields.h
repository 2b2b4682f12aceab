// Keys of [lora] under PEFT's names. Reading folds them into the targets and alpha, so a configuration has
// one form. Include only in .cpp files, after the keys that they change.
#pragma once

#include <string>

#include "config/field.h"
#include "config/run_config.h"

namespace sluice::config {

// A table of ranks or of alphas by target.
class TargetPattern final : public FieldValue {
 public:
  enum class Of : uint8_t { kRank, kAlpha };
  TargetPattern(LoraConfig& lora, Of of) : lora_(lora), of_(of) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  LoraConfig& lora_;
  Of of_;
};

// rsLoRA: divides alphas by the square root of the rank. Reading multiplies alpha by that root.
class RankStabilised final : public FieldValue {
 public:
  explicit RankStabilised(LoraConfig& lora) : lora_(lora) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override { table.insert(key, false); }
  std::string expectation() const override { return "true | false"; }

 private:
  LoraConfig& lora_;
};

}  // namespace sluice::config
