// Roles of the parameters of a model's ends (model/end_kinds.h).
#pragma once

#include <string_view>

namespace sluice::model {

inline constexpr std::string_view kEmbeddingRole = "embedding";
inline constexpr std::string_view kFinalNormRole = "final_norm";
inline constexpr std::string_view kHeadRole = "head";

}  // namespace sluice::model
