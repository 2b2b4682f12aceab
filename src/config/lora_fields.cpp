#include "config/lora_fields.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "model/lora_targets.h"

namespace sluice::config {
namespace {

using model::LoraTarget;

constexpr base::Range<int64_t> kTargetRanks{1, 1 << 16};
constexpr base::Range<double> kTargetAlphas{1e-6, 1e6};

std::vector<LoraTarget> targets_of(const LoraConfig& lora) {
  return model::lora_targets({.rank = lora.rank, .alpha = lora.alpha, .targets = lora.targets});
}

void set_targets(LoraConfig& lora, const std::vector<LoraTarget>& targets) {
  lora.targets.clear();
  for (const LoraTarget& target : targets) lora.targets.push_back(target.entry());
}

}  // namespace

void TargetPattern::read(TomlSection& section, const std::string& key) {
  const toml::table* const pattern = section.node(key)->as_table();
  if (pattern == nullptr) section.refuse(key, "a table of numbers by target, as { q_proj = 4 }");
  TomlSection inner(pattern, "lora." + key, section.file());
  std::vector<LoraTarget> targets = targets_of(lora_);
  for (const auto& [word, unused] : *pattern) {
    const std::string name(word.str());
    const auto target = std::ranges::find(targets, name, &LoraTarget::name);
    if (target == targets.end())
      section.wrong(key, base::text("names '", name, "', which lora.targets does not: it has ",
                                    base::join(lora_.targets, ", ")));
    target->own = true;
    if (of_ == Of::kRank) {
      inner.read_in(name, target->rank, kTargetRanks);
    } else {
      inner.read_in(name, target->alpha, kTargetAlphas);
    }
  }
  if (lora_.rank > 0) set_targets(lora_, targets);
}

void TargetPattern::write(toml::table& table, const std::string& key) const {
  toml::table none;
  none.is_inline(true);
  table.insert(key, std::move(none));
}

void RankStabilised::read(TomlSection& section, const std::string& key) {
  bool stabilised = false;
  section.read(key, stabilised);
  if (!stabilised || lora_.rank == 0) return;
  std::vector<LoraTarget> targets = targets_of(lora_);
  for (LoraTarget& target : targets) target.alpha *= std::sqrt(static_cast<double>(target.rank));
  set_targets(lora_, targets);
  lora_.alpha *= std::sqrt(static_cast<double>(lora_.rank));
}

}  // namespace sluice::config
