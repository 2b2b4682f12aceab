#include "corpus/build_result.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/indexed.h"

namespace sluice::corpus {

using base::Json;

namespace {

constexpr const char* kPartSchema = "sluice.part/1";
// The shortest context length in the table; the others double from there.
constexpr int64_t kShortestContext = 512;

// The number of documents longer than each context length, up to the first length that holds all.
Json over_context(const LengthDistribution& lengths) {
  Json over = Json::array();
  for (int64_t context = kShortestContext;; context *= 2) {
    int64_t documents = 0;
    for (auto at = lengths.counts().upper_bound(context); at != lengths.counts().end(); ++at)
      documents += at->second;
    over.push_back({{"context_length", context},
                    {"documents", documents},
                    {"share", lengths.empty() ? 0.0
                                              : static_cast<double>(documents) /
                                                    static_cast<double>(lengths.documents())}});
    if (documents == 0) return over;
  }
}

Json sources_json(const BuildResult& result) {
  Json sources = Json::array();
  for (size_t i = 0; i < result.source_names.size(); ++i) {
    const SourceCounts counts =
        i < result.encoded.sources.size() ? result.encoded.sources[i] : SourceCounts{};
    sources.push_back({{"name", result.source_names[i]},
                       {"rows", counts.rows},
                       {"documents", counts.documents},
                       {"tokens", counts.tokens},
                       {"duplicates", counts.duplicates}});
  }
  return sources;
}

}  // namespace

double BuildResult::unigram_entropy_nats() const {
  return corpus::unigram_entropy_nats(encoded.token_counts);
}

int64_t BuildResult::loss_tokens() const {
  // The first token of a document is no target.
  return has_mask ? encoded.loss_tokens : lengths.tokens() - lengths.documents();
}

int64_t BuildResult::duplicates() const {
  int64_t duplicates = 0;
  for (const SourceCounts& source : encoded.sources) duplicates += source.duplicates;
  return duplicates;
}

Json lengths_json(const BuildResult& result) {
  Json json = to_json(result.lengths);
  json["vocabulary"] = result.vocabulary;
  json["begin_id"] = result.begin_id;
  json["end_id"] = result.end_id;
  json["tokenizer"] = result.tokenizer.filename().string();
  json["unigram_entropy_nats"] = result.unigram_entropy_nats();
  json["bytes"] = result.encoded.counts.bytes;
  if (!result.chat_options.empty()) {
    json["chat"] = base::parse_json(result.chat_options, "chat options");
    if (result.encoded.chats.dated_documents == 0) json["chat"].erase("date");
  }
  json["bytes_per_token"] = result.lengths.tokens() == 0 ? 0.0
                                                         : static_cast<double>(result.encoded.counts.bytes) /
                                                               static_cast<double>(result.lengths.tokens());
  json["loss_tokens"] = result.loss_tokens();
  json["over_context"] = over_context(result.lengths);
  json["duplicates"] = result.duplicates();
  json["sources"] = sources_json(result);
  return json;
}

Json part_json(const BuildResult& result, const std::string& what) {
  return {{"schema", kPartSchema},           {"part", result.part.index + 1},
          {"parts", result.part.count},      {"what", what},
          {"vocabulary", result.vocabulary}, {"begin_id", result.begin_id},
          {"end_id", result.end_id},         {"tokenizer", result.tokenizer.filename().string()},
          {"has_mask", result.has_mask},     {"chat_options", result.chat_options},
          {"sources", result.source_names},  {"encoded", to_json(result.encoded)}};
}

std::optional<PartFile> read_part_file(const std::filesystem::path& prefix) {
  const std::filesystem::path path = prefix.parent_path() / kPartFile;
  if (!std::filesystem::exists(path)) return std::nullopt;
  const std::string name = path.string();
  const Json json = base::read_json(path);
  base::require_schema(json, kPartSchema, name);
  PartFile part{.what = base::require<std::string>(json, "what", name)};
  BuildResult& result = part.result;
  result.part = {base::require<int64_t>(json, "part", name) - 1, base::require<int64_t>(json, "parts", name)};
  result.vocabulary = base::require<int64_t>(json, "vocabulary", name);
  result.begin_id = base::require<int32_t>(json, "begin_id", name);
  result.end_id = base::require<int32_t>(json, "end_id", name);
  result.tokenizer = base::require<std::string>(json, "tokenizer", name);
  result.has_mask = base::require<bool>(json, "has_mask", name);
  result.chat_options = base::require<std::string>(json, "chat_options", name);
  result.source_names = base::require<std::vector<std::string>>(json, "sources", name);
  result.encoded = encoded_from_json(base::require<Json>(json, "encoded", name), name);
  result.encoded.sources.resize(result.source_names.size());
  part.leaves_out_duplicates = std::filesystem::exists(with_suffix(prefix, ".marks"));
  return part;
}

}  // namespace sluice::corpus
