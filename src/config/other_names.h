// Other trainers' names for keys, to answer unknown keys.
#pragma once

#include <string>
#include <string_view>

namespace sluice::config {

// The key, with its section, that another trainer calls `name`: "optimizer.lr" for "learning_rate". Trainers
// are Hugging Face's, TRL, verl, Megatron-LM and torchtitan. "" for other names. Case is ignored, and a dash
// equals an underscore.
std::string_view key_of_other_name(std::string_view name);

}  // namespace sluice::config
