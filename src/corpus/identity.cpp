#include "corpus/identity.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace {

// Describes the difference between `now` and `then` for people.
std::string difference(const CorpusIdentity& then, const CorpusIdentity& now) {
  if (then.documents != now.documents || then.tokens != now.tokens) {
    return text(base::human_count(now.documents, "document", "documents"), " of ",
                base::human_count(now.tokens, "token", "tokens"), " and had ",
                base::human_count(then.documents), " of ", base::human_count(then.tokens));
  }
  return then.index != now.index ? "documents of other lengths or in another order than before"
                                 : "other tokens, or another mask, in documents of the same lengths";
}

}  // namespace

std::vector<CorpusIdentity> identities(const Blend& blend) {
  std::vector<CorpusIdentity> all;
  for (const Blend::Entry& part : blend.parts()) {
    const IndexedCorpus& corpus = *part.corpus;
    all.push_back({corpus.documents(), corpus.tokens(), corpus.index_hash(), corpus.content_hash()});
  }
  return all;
}

void require_same(const std::vector<CorpusIdentity>& then, const std::vector<CorpusIdentity>& now,
                  const Blend& blend, const std::string& where) {
  if (then.size() != now.size()) {
    throw InputError(text(where, " was trained on ",
                          base::human_count(static_cast<int64_t>(then.size()), "corpus", "corpora"),
                          ", data.train names ", now.size(), ": resume with the same"));
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == then[i]) continue;
    throw InputError(text("corpus ", blend.parts()[i].corpus->prefix().string(), " is not the one that ",
                          where, " was trained on: it has ", difference(then[i], now[i]),
                          "; restore it, or export the model and begin a new run with it"));
  }
}

Json to_json(const std::vector<CorpusIdentity>& identities) {
  Json json = Json::array();
  for (const CorpusIdentity& identity : identities) {
    json.push_back({{"documents", identity.documents},
                    {"tokens", identity.tokens},
                    {"index", base::hash_text(identity.index)},
                    {"content", base::hash_text(identity.content)}});
  }
  return json;
}

std::vector<CorpusIdentity> identities_from_json(const Json& json, const std::string& name) {
  std::vector<CorpusIdentity> all;
  for (const Json& entry : json) {
    const auto hash = [&](const char* key) {
      return base::parse_hash(base::require<std::string>(entry, key, name));
    };
    all.push_back({base::require<int64_t>(entry, "documents", name),
                   base::require<int64_t>(entry, "tokens", name), hash("index"), hash("content")});
  }
  return all;
}

}  // namespace sluice::corpus
