#include "base/choices.h"

#include "base/text.h"

namespace sluice::base {

std::string choices_text(const std::vector<std::string>& choices) {
  return text(choices.size() == 1 ? "choose " : "choose one of ", join(choices, ", "));
}

}  // namespace sluice::base
