// The end of a model.
#pragma once

#include <cstdint>
#include <optional>

#include "model/activation.h"

namespace sluice::model {

// The end of a model: logits (kVocabulary), numbers for a sequence (classes, a reward) or for every token
// (classes, values), by a matrix of their own, or the normed rows themselves (kRows: embeddings).
enum class HeadKind : uint8_t { kVocabulary, kSequence, kTokens, kRows };
// The rows that represent a sequence (kSequence, kRows): the last token's, the first one's (CLS), or the mean
// of all.
enum class Pooling : uint8_t { kLast, kCls, kMean };
// Layers between the pooling and a head's matrix, as in encoders: act(x·wᵀ + bias), with or without a norm
// behind them.
struct NeckStyle {
  Activation activation = Activation::kGelu;
  bool bias = false;
  bool normed = false;
  bool operator==(const NeckStyle&) const = default;
};
struct HeadStyle {
  HeadKind kind = HeadKind::kVocabulary;
  int64_t numbers = 0;  // for kSequence and kTokens
  bool bias = false;    // likewise
  Pooling pooling = Pooling::kLast;
  std::optional<NeckStyle> neck = {};
  bool operator==(const HeadStyle&) const = default;
};

}  // namespace sluice::model
