// Keys of [lora] in PEFT's words. They are folded into the targets and into alpha when they are read, so that
// a configuration says each thing in one way. Include only in .cpp files, after the keys that they change.
#pragma once

#include <string>

#include "config/field.h"
#include "config/run_config.h"

namespace sluice::config {

// A table of ranks, or of alphas, by target.
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

// Has alphas be divided by the square root of the rank: alpha times that root over the rank.
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
