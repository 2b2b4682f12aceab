#include "corpus/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstdio>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "corpus/parallel.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace {

// SentencePiece writes blanks as U+2581 and reads it back as a blank, so a real one must not reach it.
constexpr std::string_view kBlock = "\xE2\x96\x81";
constexpr const char* kBlockBytes[] = {"<0xE2>", "<0x96>", "<0x81>"};

constexpr size_t kSentenceBytes = 4096;
constexpr int64_t kFixedPieces = 2 + 2 + 256;  // unknown, end; newline, tab; bytes

// Gives the trainer our sentences, one after the other.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ >= sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model, const std::string& name,
                                               const TokenizerOptions& options)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()), threads_(options.threads) {
  const auto status = processor_->LoadFromSerializedProto(model);
  if (!status.ok() || processor_->GetPieceSize() == 0) {
    throw InputError(text(name, " is not a SentencePiece model (", model.size(),
                          " bytes): give the tokenizer.model ",
                          "of a SentencePiece tokenizer or a Hugging Face tokenizer.json"));
  }
  vocabulary_ = processor_->GetPieceSize();
  if (options.end_token.empty()) {
    end_id_ = processor_->eos_id();
  } else if (options.end_token != kAddedToken) {  // no piece is added behind a text
    end_id_ = piece_id(options.end_token, name, "--end-token");
  }
  require_end(options, name);
  if (!options.begin_token.empty()) begin_id_ = piece_id(options.begin_token, name, "--begin-token");
  for (const char* piece : kBlockBytes) {
    const int id = processor_->PieceToId(piece);
    if (processor_->IsByte(id)) block_ids_.push_back(id);
  }
  if (block_ids_.size() != std::size(kBlockBytes)) block_ids_.clear();
  constexpr int kFirstLater = 0x80, kLastLater = 0xBF;  // bytes of a letter behind its first
  char piece[8];
  for (int byte = kFirstLater; byte <= kLastLater; ++byte) {
    std::snprintf(piece, sizeof piece, "<0x%02X>", static_cast<unsigned>(byte));
    const int id = processor_->PieceToId(piece);
    if (processor_->IsByte(id)) later_bytes_.insert(id);
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int32_t SentencePieceTokenizer::piece_id(const std::string& piece, const std::string& name,
                                         const char* option) const {
  if (piece == kNoToken) return -1;
  const int id = processor_->PieceToId(piece);
  if (id >= 0 && !processor_->IsUnknown(id)) return id;
  throw InputError(
      text(name, " has no token '", piece, "': name one of its pieces, or '", kNoToken, "', with ", option));
}

std::vector<int32_t> SentencePieceTokenizer::encode_one(std::string_view whole) const {
  std::vector<int32_t> ids;
  const auto encode_plain = [&](std::string_view part) {
    std::vector<int> part_ids;
    const auto status = processor_->Encode({part.data(), part.size()}, &part_ids);
    SLUICE_ASSERT(status.ok(), status.ToString());
    ids.insert(ids.end(), part_ids.begin(), part_ids.end());
  };
  size_t begin = 0;
  if (!block_ids_.empty()) {
    for (size_t at = whole.find(kBlock); at != whole.npos; at = whole.find(kBlock, begin)) {
      if (at > begin) encode_plain(whole.substr(begin, at - begin));
      ids.insert(ids.end(), block_ids_.begin(), block_ids_.end());
      begin = at + kBlock.size();
    }
  }
  if (begin < whole.size()) encode_plain(whole.substr(begin));
  return ids;
}

std::vector<std::vector<int32_t>> SentencePieceTokenizer::encode_all(
    std::span<const std::string> texts) const {
  std::vector<std::vector<int32_t>> ids(texts.size());
  parallel_for(texts.size(), threads_, [&](size_t i) { ids[i] = encode_one(texts[i]); });
  return ids;
}

std::vector<std::string> SentencePieceTokenizer::decode_all(std::span<const std::vector<int32_t>> ids) const {
  std::vector<std::string> texts(ids.size());
  parallel_for(ids.size(), threads_, [&](size_t i) {
    std::vector<int> known;
    for (const int32_t id : ids[i]) {
      if (id >= 0 && id < vocabulary_) known.push_back(id);
    }
    const auto status = processor_->Decode(known, &texts[i]);
    if (!status.ok()) throw InputError(text("cannot decode tokens: ", status.ToString()));
  });
  return texts;
}

// The trainer takes no newline and reserves the tab; both are pieces of their own anyway.
void SentencePieceTrainer::add(std::string_view whole) {
  while (!whole.empty() && !full()) {
    const size_t line = std::min(whole.find_first_of("\n\t"), whole.size());
    std::string_view rest = whole.substr(0, line);
    while (!rest.empty()) {
      const size_t cut = base::utf8_cut(rest, kSentenceBytes);
      sentences_.emplace_back(rest.substr(0, cut));
      rest.remove_prefix(cut);
    }
    taken_bytes_ += static_cast<int64_t>(line) + 1;
    whole.remove_prefix(std::min(line + 1, whole.size()));
  }
}

namespace {

// Returns nullopt if a vocabulary of this size is possible; else SentencePiece's message.
std::optional<std::string> fault_of(const std::vector<std::string>& texts, int64_t vocabulary,
                                    std::string& model) {
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary)},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"byte_fallback", "true"},
      {"user_defined_symbols", "\n,\t"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"max_sentence_length", std::to_string(2 * kSentenceBytes)},
      {"num_threads", "2"},
      {"minloglevel", "2"},
  };
  Sentences sentences(texts);
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &sentences, &model);
  if (status.ok()) return std::nullopt;
  return status.ToString();
}

// The number behind `words` in a message; nullopt if there is none.
std::optional<int64_t> number_behind(const std::string& message, std::string_view words) {
  const size_t at = message.find(words);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(message).substr(at + words.size());
  return base::parse_integer(rest.substr(0, rest.find_first_not_of("0123456789")));
}

// SentencePiece names the possible sizes in its two refusals: more pieces than the text gives, and fewer than
// its characters need.
std::optional<int64_t> most_pieces(const std::string& fault) { return number_behind(fault, "value <= "); }
std::optional<int64_t> least_pieces(const std::string& fault) { return number_behind(fault, " vs "); }

// The one hint on vocabularies of a text: the sizes that can be trained. tools/train_tokenizer.py gives the
// same hint.
std::string vocabulary_advice(int64_t vocabulary, const std::string& why, int64_t least,
                              std::optional<int64_t> most) {
  std::string cure = text("--train-tokenizer ", least, " or more");
  if (most)
    cure = least <= *most ? text("--train-tokenizer ", least, " to ", *most, ", or more text") : "more text";
  return text("cannot train a tokenizer of ", vocabulary, " pieces: ", why, ": give ", cure);
}

}  // namespace

std::string SentencePieceTrainer::train(int64_t vocabulary) const {
  if (sentences_.empty()) throw InputError("there is no text to train a tokenizer from: check the inputs");
  std::string model;
  std::optional<std::string> fault;
  if (vocabulary > kFixedPieces) {
    fault = fault_of(sentences_, vocabulary, model);
    if (!fault) return model;
  }
  // Try the smallest vocabulary: its error comes before any training and names the size that the characters
  // need.
  std::string ignored;
  const std::string smallest = fault_of(sentences_, kFixedPieces + 1, ignored).value_or("");
  const int64_t least = least_pieces(smallest).value_or(kFixedPieces + 1);
  const std::optional<int64_t> most = most_pieces(fault ? *fault : smallest);
  if (most) {
    throw InputError(vocabulary_advice(vocabulary, text(taken_bytes_, " bytes of text give at most ", *most),
                                       least, most));
  }
  if (vocabulary < least) {
    throw InputError(vocabulary_advice(
        vocabulary, text("bytes, control symbols and the text's characters are ", least - 1), least,
        std::nullopt));
  }
  throw InputError(vocabulary_advice(vocabulary, *fault, least, std::nullopt));
}

}  // namespace sluice::corpus
