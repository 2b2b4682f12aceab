// Keys by the names that other trainers have for them, for answers to unknown keys.
#pragma once

#include <string>
#include <string_view>

namespace sluice::config {

// "optimizer.lr" of "learning_rate": what the key is called here, with its section, where Hugging Face's
// trainers, TRL, verl, Megatron-LM or torchtitan have it by that name; "" for other names. The case, and
// dashes for underscores, make no difference.
std::string_view key_of_other_name(std::string_view name);

}  // namespace sluice::config
