#include "session/made_for.h"

#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::session {

int64_t positions_of(const base::Json& config) {
  for (const char* key : {"max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len"}) {
    const base::Json* found = base::find(config, key);
    if (found != nullptr && base::holds_integer<int64_t>(*found)) return found->get<int64_t>();
  }
  const base::Json* text_part = base::find(config, "text_config");
  return text_part == nullptr ? 0 : positions_of(*text_part);
}

std::string positions_note(int64_t positions, int64_t tokens, const std::string& what) {
  if (positions <= 0 || tokens <= positions) return "";
  return base::text(
      what, " is ", tokens, ", but the model was made for ", positions,
      " positions (max_position_embeddings): it has never seen later ones, and its answers there may mean "
      "nothing; keep to ",
      positions, ", or fine-tune it with scaled rotary frequencies");
}

}  // namespace sluice::session
