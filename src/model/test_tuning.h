// model/tuning.h in place, for tests that change outlines step by step. Header-only; not part of the library.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/outline.h"
#include "model/tuning.h"

namespace sluice::model {

inline void freeze(Outline& outline, const std::vector<std::string>& patterns) {
  outline = frozen(outline, patterns).outline();
}
inline void freeze(Model& model, const std::vector<std::string>& patterns) {
  model = frozen(model, patterns);
}
inline void adapt(Outline& outline, const Lora& lora) { outline = adapted(outline, lora).outline(); }
inline void adapt(Model& model, const Lora& lora) { model = adapted(model, lora); }
inline void remember_loads(Outline& outline) { outline = remembering_loads(outline).outline(); }
inline void quantize_base(Outline& outline, const BaseFormat& format) {
  outline = with_base(outline, format).outline();
}
inline void read_tuning(const base::Json& json, const std::string& name, Outline& outline) {
  outline = with_tuning(outline, json, name).outline();
}

}  // namespace sluice::model
