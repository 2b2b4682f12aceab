#include "checkpoint/mtp_copies.h"

#include "base/text.h"

namespace sluice::checkpoint {

std::optional<std::string> original_of_mtp(const std::string& name, const model::ParameterTable& table,
                                           const FileNames& names) {
  const std::string behind = base::text(names.trunk, "layers.", table.model.layers(), ".");
  if (!name.starts_with(behind) && !name.starts_with("mtp.")) return std::nullopt;
  const model::Bucket& embedding = table.embedding();
  const std::string of_embedding = names.tensors(embedding, embedding.parameters.front()).front().name;
  if (name.ends_with(".embed_tokens.weight")) return of_embedding;
  if (!name.ends_with(".shared_head.head.weight") && !name.ends_with(".lm_head.weight")) return std::nullopt;
  return table.model.ties_head() ? of_embedding : names.head + "weight";
}

}  // namespace sluice::checkpoint
