// Identifies a corpus' content when a run begins, so that a resumed run can tell whether it has changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/blend.h"

namespace sluice::corpus {

struct CorpusIdentity {
  int64_t documents = 0;
  int64_t tokens = 0;
  uint64_t index = 0;    // IndexedCorpus::index_hash
  uint64_t content = 0;  // IndexedCorpus::content_hash, which says how much it proves
  bool operator==(const CorpusIdentity&) const = default;
};

// One identity per part. Reads at most some MiB of each corpus.
std::vector<CorpusIdentity> identities(const Blend& blend);

// InputError, naming `where` the identities `then` came from, if `then` and `now`, those of `blend`, differ.
void require_same(const std::vector<CorpusIdentity>& then, const std::vector<CorpusIdentity>& now,
                  const Blend& blend, const std::string& where);

// [{documents, tokens, index, content}, …] and back; InputError naming `name`.
base::Json to_json(const std::vector<CorpusIdentity>& identities);
std::vector<CorpusIdentity> identities_from_json(const base::Json& json, const std::string& name);

}  // namespace sluice::corpus
