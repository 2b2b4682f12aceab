#include "rl/prompt_notes.h"

#include <algorithm>

#include "base/text.h"
#include "rl/episode.h"

namespace sluice::rl {

using base::human_count;
using base::text;

namespace {

struct Counts {
  int64_t documents = 0;  // read
  int64_t unasked = 0;    // without a prompt, or without an answer
  int64_t long_prompts = 0;
  int64_t narrow = 0;  // with less room than max_completion_length
  int64_t long_documents = 0;
};

Counts counts_of(const corpus::Blend& blend, int64_t context, int64_t max_response) {
  Counts counts{.documents = std::min(kLookedAt, blend.documents())};
  for (int64_t i = 0; i < counts.documents; ++i) {
    const int64_t document = i * blend.documents() / counts.documents;
    const std::optional<Prompt> question = prompt_of(blend, document);
    if (!question) {
      ++counts.unasked;
      continue;
    }
    const auto prompt = std::ssize(question->tokens);
    if (prompt >= context) ++counts.long_prompts;
    if (prompt < context && prompt + max_response > context) ++counts.narrow;
    if (blend.length(document) > context) ++counts.long_documents;
  }
  return counts;
}

void add(int64_t count, const Counts& counts, const std::string& key, const std::string& why,
         std::vector<std::string>& notes) {
  if (count > 0)
    notes.push_back(
        text(key, ": ", human_count(count), " of ", human_count(counts.documents), " documents ", why));
}

}  // namespace

std::vector<std::string> prompt_notes(const config::RunConfig& config, const corpus::Blend& training,
                                      const std::optional<corpus::Blend>& rejected) {
  std::vector<std::string> notes;
  if (config.rl.algorithm == config::RlAlgorithm::kNone && !config.generates()) return notes;
  const int64_t context = config.data.context_length, response = config.rl.max_completion_length;
  const Counts counts = counts_of(training, context, response);
  const std::string unasked = "have no prompt with an answer behind it and are left out";
  const std::string within = text("data.context_length, ", context);
  add(counts.unasked, counts, "data.train", unasked, notes);
  if (config.generates()) {
    add(counts.long_prompts, counts, "data.train",
        text("have a prompt that is too long: it leaves no room for a response in ", within,
             ", and is left out"),
        notes);
    add(counts.narrow, counts, "data.train",
        text("have a prompt that leaves less room than rl.max_completion_length, ", response, ", in ", within,
             ": responses are cut where it ends"),
        notes);
    return notes;
  }
  const std::string too_long =
      text("are longer than ", within, ", and left out with what they are compared with");
  add(counts.long_documents, counts, "data.train", too_long, notes);
  if (!rejected) return notes;
  const Counts worse = counts_of(*rejected, context, response);
  add(worse.unasked, worse, "rl.rejected", unasked, notes);
  add(worse.long_documents, worse, "rl.rejected", too_long, notes);
  return notes;
}

}  // namespace sluice::rl
