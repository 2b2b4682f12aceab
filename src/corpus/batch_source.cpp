#include "corpus/batch_source.h"

#include "base/hash.h"
#include "base/json_fields.h"

namespace sluice::corpus {

using base::Json;

Json to_json(const SamplerState& state) {
  Json cursors = Json::array();
  for (const SamplerState::Cursor& cursor : state.cursors) {
    cursors.push_back({{"position", cursor.position},
                       {"begin_token", cursor.begin_token},
                       {"delivered_tokens", cursor.delivered_tokens}});
  }
  return {{"step", state.step}, {"fingerprint", base::hash_text(state.fingerprint)}, {"cursors", cursors}};
}

SamplerState sampler_state_from_json(const Json& json, const std::string& where) {
  SamplerState state;
  state.step = base::require<int64_t>(json, "step", where);
  state.fingerprint = base::parse_hash(base::require<std::string>(json, "fingerprint", where));
  for (const Json& cursor : base::require<Json>(json, "cursors", where)) {
    state.cursors.push_back({base::require<int64_t>(cursor, "position", where),
                             base::require<int64_t>(cursor, "begin_token", where),
                             base::require<int64_t>(cursor, "delivered_tokens", where)});
  }
  return state;
}

}  // namespace sluice::corpus
