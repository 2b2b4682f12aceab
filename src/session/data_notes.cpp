#include "session/data_notes.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/load_tokenizer.h"
#include "corpus/token_texts.h"
#include "session/made_for.h"

namespace sluice::session {

using base::human_count;
using base::text;

namespace fs = std::filesystem;

std::optional<corpus::TokenizerBytes> tokenizer_in(const fs::path& folder) {
  const fs::path path = corpus::tokenizer_beside(folder / "corpus");
  if (path.empty()) return std::nullopt;
  return corpus::TokenizerBytes{path.string(), base::read_file(path)};
}

namespace {

// The vocabulary in the lengths.json beside a corpus; 0: not given.
int64_t vocabulary_of(const corpus::IndexedCorpus& corpus) {
  const fs::path path = corpus::folder_beside(corpus.prefix(), corpus.options()) / "lengths.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return 0;
  return base::get_or<int64_t>(base::read_json(path), "vocabulary", 0, path.string());
}

// Reads documents spread evenly over the corpus; reading checks their tokens.
void look_into(const corpus::IndexedCorpus& corpus) {
  constexpr int64_t kDocuments = 4096;
  constexpr int64_t kTokens = 1 << 12;
  std::vector<int32_t> tokens(kTokens);
  const int64_t looks = std::min(kDocuments, corpus.documents());
  for (int64_t i = 0; i < looks; ++i) {
    const int64_t document = i * corpus.documents() / looks;
    corpus.read(document, 0, std::min(kTokens, corpus.length(document)), tokens.data());
  }
}

void require_rows(const corpus::Blend& blend, int64_t rows) {
  for (const corpus::Blend::Entry& part : blend.parts()) {
    const corpus::IndexedCorpus& corpus = *part.corpus;
    const int64_t vocabulary = vocabulary_of(corpus);
    if (0 < vocabulary && vocabulary <= rows) continue;
    const bool small = corpus.tokens() * corpus::token_bytes(corpus.token_type()) <= kMostSearchedBytes;
    try {
      vocabulary > rows || small ? corpus.check_tokens(rows) : look_into(corpus);
    } catch (const base::InputError& error) {
      if (vocabulary == 0) throw;
      throw base::InputError(text("the tokenizer of ", corpus.prefix().string(), " has ", vocabulary,
                                  " ids, but the model rows for ", rows, ": ", error.what()));
    }
  }
}

// Names a corpus with another tokenizer and shows a differing id; empty: all agree.
std::string tokenizer_fault(const config::RunConfig& config, const Data& data) {
  std::optional<corpus::TokenizerBytes> reference;
  if (!config.model.hf.empty()) reference = tokenizer_in(config.model.hf);
  std::vector<fs::path> seen;  // folders
  std::string fault;
  const auto compare = [&](const corpus::Blend& blend) {
    for (const corpus::Blend::Entry& part : blend.parts()) {
      const fs::path folder = corpus::folder_beside(part.corpus->prefix(), part.corpus->options());
      if (!fault.empty() || std::ranges::find(seen, folder) != seen.end()) continue;
      seen.push_back(folder);
      std::optional<corpus::TokenizerBytes> own = tokenizer_in(folder);
      if (own && reference) {
        const std::string found = difference(*own, *reference);
        if (!found.empty()) fault = text(part.corpus->prefix().string(), " is of another tokenizer: ", found);
      }
      if (own && !reference) reference = std::move(own);
    }
  };
  for (const DataPhase& phase : data.phases) {
    compare(phase.training);
    if (phase.rejected) compare(*phase.rejected);
    for (const ValidationData& set : phase.validation) compare(set.blend);
  }
  return fault;
}

std::string share_of(int64_t part, int64_t all) {
  return base::human_percent(static_cast<double>(part) / static_cast<double>(std::max<int64_t>(all, 1)));
}

// Notes on the documents that training leaves out in a phase.
void add_left_out(const DataPhase& phase, std::vector<std::string>& notes) {
  const corpus::SamplerCounts counts = corpus::Sampler(phase.training.sources(), phase.sampling).counts();
  const int64_t all = phase.training.documents() - counts.other_subset;
  if (counts.short_documents > 0)
    notes.push_back(text("data.train: ", counts.short_documents, " of ", human_count(all),
                         " documents have fewer than 2 tokens and are left out"));
  if (counts.long_documents == 0 || phase.sampling.overflow == corpus::Overflow::kSplit) return;
  const bool cut = phase.sampling.overflow == corpus::Overflow::kTruncate;
  notes.push_back(text("data.train: ", human_count(counts.long_documents), " of ", human_count(all),
                       " documents are longer than data.context_length, ", phase.sampling.context_length,
                       ", and ", cut ? "cut there" : "left out", ": ", human_count(counts.lost_tokens),
                       " tokens, ", share_of(counts.lost_tokens, phase.training.tokens()),
                       ", are not trained on (data.overflow = \"", name(phase.sampling.overflow),
                       "\"; \"split\" keeps them)"));
}

// Notes on held-out documents that a list of batches names all the same.
void add_listed(const DataPhase& phase, std::vector<std::string>& notes) {
  if (phase.sampling.validation_ppm == 0) return;
  std::vector<int64_t> first{0};
  for (const corpus::Blend::Entry& part : phase.training.parts())
    first.push_back(first.back() + part.corpus->documents());
  int64_t held_out = 0, example = 0;
  for (const std::vector<corpus::Sample>& samples : phase.listed->steps) {
    for (const corpus::Sample& sample : samples) {
      const int64_t begin = *std::prev(std::ranges::upper_bound(first, sample.document));
      if (!corpus::is_held_out(sample.document - begin, phase.sampling)) continue;
      if (held_out++ == 0) example = sample.document;
    }
  }
  if (held_out > 0)
    notes.push_back(text(phase.listed->name, " names documents ", human_count(held_out),
                         " times that data.validation_fraction holds "
                         "out, document ",
                         example, " first: they are trained on and evaluated with"));
}

bool counts_anything(const ValidationData& set) {
  if (!set.blend.has_mask()) return true;
  std::vector<uint8_t> mask;
  for (const corpus::Batch& batch : set.batches) {
    for (const corpus::Sample& sample : batch.samples) {
      mask.resize(static_cast<size_t>(sample.length_tokens));
      set.blend.read_mask(sample.document, sample.begin_token, sample.length_tokens, mask.data());
      if (std::any_of(mask.begin() + 1, mask.end(), [](uint8_t counts) { return counts != 0; })) return true;
    }
  }
  return false;
}

void add_validation(const config::RunConfig& config, const DataPhase& phase,
                    std::vector<std::string>& notes) {
  for (const ValidationData& set : phase.validation) {
    const std::string named = set.name.empty() ? "the validation set" : text("the validation set ", set.name);
    if (set.batches.empty() && config.data.validation_fraction > 0) {
      notes.push_back(text("data.validation_fraction is ", config.data.validation_fraction,
                           ", which holds none of ",
                           human_count(set.blend.documents(), "document", "documents"),
                           " out: nothing is evaluated; raise it, or name corpora as data.validation"));
    } else if (set.batches.empty()) {
      notes.push_back(text(
          named, " has no document of 2 tokens or more within data.context_length: it is not evaluated"));
    } else if (!counts_anything(set)) {
      notes.push_back(text(named, " has no token that counts within data.context_length, ",
                           phase.sampling.context_length,
                           ": it has no loss, and is not evaluated; raise data.context_length"));
    }
  }
}

void add_positions(const config::RunConfig& config, std::vector<std::string>& notes) {
  const fs::path path = fs::path(config.model.hf) / "config.json";
  std::error_code ignored;
  if (config.model.hf.empty() || !fs::is_regular_file(path, ignored)) return;
  const std::string note = positions_note(positions_of(base::read_python_json(path)),
                                          config::longest_context(config), "data.context_length");
  if (!note.empty()) notes.push_back(note);
}

}  // namespace

void require_rows(const config::RunConfig& config, const Data& data) {
  const int64_t rows = config.model.resolved->vocab();
  for (const DataPhase& phase : data.phases) {
    require_rows(phase.training, rows);
    if (phase.rejected) require_rows(*phase.rejected, rows);
    for (const ValidationData& set : phase.validation) require_rows(set.blend, rows);
  }
}

void require_tokenizer(const config::RunConfig& config, const Data& data) {
  if (config.data.other_tokenizers) return;
  const std::string fault = tokenizer_fault(config, data);
  if (fault.empty()) return;
  throw base::InputError(
      text(fault,
           ": build the corpus with the model's tokenizer, or set data.other_tokenizers = true where "
           "this is meant"));
}

std::vector<std::string> data_notes(const config::RunConfig& config, const Data& data) {
  std::vector<std::string> notes;
  for (const DataPhase& phase : data.phases) {
    if (!phase.listed) {
      add_left_out(phase, notes);
    } else if (!phase.listed->repeats) {
      add_listed(phase, notes);
    }
    if (config.train.eval_every > 0) add_validation(config, phase, notes);
  }
  add_positions(config, notes);
  if (const std::string fault = config.data.other_tokenizers ? tokenizer_fault(config, data) : "";
      !fault.empty())
    notes.push_back(text(fault, " (data.other_tokenizers)"));
  // Phases that go on with the same documents have the same notes: each is listed once.
  std::vector<std::string> once;
  for (std::string& note : notes) {
    if (std::ranges::find(once, note) == once.end()) once.push_back(std::move(note));
  }
  return once;
}

}  // namespace sluice::session
