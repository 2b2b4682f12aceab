// Reads and trains SentencePiece models: byte-pair encoding without loss. Normalisation is the identity, runs
// of blanks are pieces, newline and tab are separate pieces, and characters outside the vocabulary fall back
// to bytes, so decode(encode(x)) = x for every UTF-8 text.
#pragma once

#include <functional>
#include <memory>

#include "corpus/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace sluice::corpus {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `model` is a file's content; errors contain `name`.
  SentencePieceTokenizer(const std::string& model, const std::string& name, const TokenizerOptions& options);
  ~SentencePieceTokenizer() override;

  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override;
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override;

 private:
  std::vector<int32_t> encode_one(std::string_view text) const;
  // -1 for kNoToken. InputError naming the option if the model has no such piece.
  int32_t piece_id(const std::string& piece, const std::string& name, const char* option) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::vector<int32_t> block_ids_;  // U+2581 as bytes; empty when the model has no byte pieces
  int threads_;
};

// Collects text to train from, up to a limit, and trains. The same texts in the same order give the same
// model on every machine.
class SentencePieceTrainer {
 public:
  // REQUIRES: sample_bytes > 0.
  explicit SentencePieceTrainer(int64_t sample_bytes) : sample_bytes_(sample_bytes) {}

  bool full() const { return taken_bytes_ >= sample_bytes_; }
  int64_t taken_bytes() const { return taken_bytes_; }
  void add(std::string_view text);

  // The model's bytes. InputError when the vocabulary is too small or too large for the texts.
  std::string train(int64_t vocabulary) const;

 private:
  int64_t sample_bytes_;
  int64_t taken_bytes_ = 0;
  std::vector<std::string> sentences_;
};

}  // namespace sluice::corpus
