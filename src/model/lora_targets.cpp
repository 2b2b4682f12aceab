#include "model/lora_targets.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/range.h"
#include "base/text.h"
#include "model/derive.h"

namespace sluice::model {
namespace {

using base::text;

constexpr base::Range<int64_t> kTargetRanks{1, 1 << 16};
constexpr base::Range<double> kTargetAlphas{1e-6, 1e9};

LoraTarget target_of(const Lora& lora, const std::string& entry) {
  const std::vector<std::string> parts = base::split(entry, ':');
  if (parts.size() == 1) return {.name = entry, .rank = lora.rank, .alpha = lora.alpha};
  const std::optional<int64_t> rank = base::parse_integer(parts[1]);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // no range holds it
  const double alpha = parts.size() == 3 ? base::parse_number(parts[2]).value_or(kNone) : kNone;
  if (parts.front().empty() || !rank || !kTargetRanks.holds(*rank) || !kTargetAlphas.holds(alpha)) {
    throw base::InputError(
        text("lora.targets has '", entry, "': give a name, or NAME:RANK:ALPHA, as \"q_proj:4:32\""));
  }
  return {.name = parts.front(), .rank = *rank, .alpha = alpha, .own = true};
}

template <typename Matches>
std::optional<LoraTarget> find_target(const Lora& lora, Matches matches) {
  if (lora.rank == 0) return std::nullopt;
  for (const LoraTarget& target : lora_targets(lora)) {
    if (matches(target.name)) return target;
  }
  return std::nullopt;
}

}  // namespace

std::string LoraTarget::entry() const {
  return own ? text(name, ':', rank, ':', base::json_text(base::Json(alpha))) : name;
}

std::vector<LoraTarget> lora_targets(const Lora& lora) {
  std::vector<LoraTarget> targets;
  for (const std::string& entry : lora.targets) targets.push_back(target_of(lora, entry));
  return targets;
}

std::optional<LoraTarget> target_of_module(const Lora& lora, std::string_view tensor) {
  const std::string_view module = module_of(tensor);
  return find_target(lora, [&](const std::string& name) { return name == module; });
}

std::optional<LoraTarget> target_of_stack(const Lora& lora, std::string_view path) {
  return find_target(lora, [&](const std::string& name) { return names_stack(path, name); });
}

double adapter_factor(const Lora& lora, const Parameter& parameter) {
  const std::string_view tensor = parameter.tensors.front();
  const std::string path(tensor.substr(0, tensor.find(".lora_")));
  const auto target =
      parameter.experts > 0 ? target_of_stack(lora, path) : target_of_module(lora, path + ".weight");
  SLUICE_ASSERT(target.has_value(), text("no target has ", parameter.name));
  return target->factor();
}

}  // namespace sluice::model
