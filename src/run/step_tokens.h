// Reads the tokens of a step that one rank needs.
#pragma once

#include <optional>
#include <span>

#include "corpus/blend.h"
#include "runtime/step_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::run {

// The source of the tokens and targets of a step's sequences.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Adds the ids of a piece to `rows.tokens`.
  virtual void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                          runtime::LanePartTokens& rows) const = 0;
  // Adds the next id of each of its positions to `rows.targets`, or -1 where there is no loss, and the loss's
  // other inputs for the remaining positions. The last position of a sequence has no target.
  virtual void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                           runtime::LanePartTokens& rows) const = 0;
  // Adds the ids and targets of an MTP layer to `rows` (LanePartTokens). REQUIRES: the source is of
  // documents.
  virtual void add_mtp(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                       runtime::LanePartTokens& rows) const;
  // These pieces are read next: bytes from a network are fetched, all at once.
  virtual void fetch_ahead(std::span<const strategy::Sequence> /*sequences*/,
                           std::span<const strategy::Piece> /*pieces*/) const {}
  virtual int64_t read_bytes() const { return 0; }  // from files, so far
};

// Tokens of documents; tokens that the mask excludes are no targets. InputError as Blend::read.
class BlendTokens : public TokenSource {
 public:
  explicit BlendTokens(const corpus::Blend& blend) : blend_(blend) {}  // borrowed
  void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                  runtime::LanePartTokens& rows) const override;
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;
  void add_mtp(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
               runtime::LanePartTokens& rows) const override;
  void fetch_ahead(std::span<const strategy::Sequence> sequences,
                   std::span<const strategy::Piece> pieces) const override;
  int64_t read_bytes() const override { return blend_.read_bytes(); }

 private:
  const corpus::Blend& blend_;
};

// The same tokens with labels as targets: one label per sequence at one token, or a label at each token.
class LabelTokens final : public BlendTokens {
 public:
  explicit LabelTokens(const corpus::Blend& blend) : BlendTokens(blend), blend_(blend) {}  // borrowed
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;

 private:
  const corpus::Blend& blend_;
};

// The row of a piece at which a text's label stands; empty: that row lies in another piece.
std::optional<size_t> row_of_text(const strategy::Sequence& sequence, const strategy::Piece& piece,
                                  corpus::LabelRow row);

// The tokens of a blend's documents; the blend outlives the result.
std::unique_ptr<TokenSource> tokens_of(const corpus::Blend& blend);

// The pieces of a rank's own micro-batches, in the order of its tokens.
std::vector<std::vector<strategy::Piece>> pieces_of_rank(const strategy::StepPlan& plan, int world_size,
                                                         int rank);

// Reads this rank's tokens of a step; `mtp`: with those of an MTP layer.
enum class Mtp : uint8_t { kNone, kTrains };
runtime::StepTokens read_step_tokens(const TokenSource& source, const strategy::StepPlan& plan,
                                     int world_size, int rank, Mtp mtp = Mtp::kNone);

}  // namespace sluice::run
