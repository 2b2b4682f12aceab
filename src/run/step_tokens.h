// Reads the tokens that one rank needs of a step.
#pragma once

#include <optional>
#include <span>

#include "corpus/blend.h"
#include "runtime/step_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::run {

// What a step's sequences are made of.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Adds the ids of a piece to `rows.tokens`.
  virtual void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                          runtime::LanePartTokens& rows) const = 0;
  // Adds the next id of each of its positions to `rows.targets`, or -1 where there is no loss, and what the
  // loss is given of the others. The last position of a sequence has none.
  virtual void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                           runtime::LanePartTokens& rows) const = 0;
  // These pieces are read next: what comes over a network is fetched, all of it at once.
  virtual void fetch_ahead(std::span<const strategy::Sequence> /*sequences*/,
                           std::span<const strategy::Piece> /*pieces*/) const {}
  virtual int64_t read_bytes() const { return 0; }  // from files, so far
};

// Of documents; what their mask leaves out is no target. InputError as Blend::read.
class BlendTokens : public TokenSource {
 public:
  explicit BlendTokens(const corpus::Blend& blend) : blend_(blend) {}  // borrowed
  void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                  runtime::LanePartTokens& rows) const override;
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;
  void fetch_ahead(std::span<const strategy::Sequence> sequences,
                   std::span<const strategy::Piece> pieces) const override;
  int64_t read_bytes() const override { return blend_.read_bytes(); }

 private:
  const corpus::Blend& blend_;
};

// The same tokens, whose targets are labels: of a sequence at one token, or of tokens each at its own.
class LabelTokens final : public BlendTokens {
 public:
  explicit LabelTokens(const corpus::Blend& blend) : BlendTokens(blend), blend_(blend) {}  // borrowed
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;

 private:
  const corpus::Blend& blend_;
};

// The one of a piece's rows that a text's label stands at; nothing: it lies in another piece.
std::optional<size_t> row_of_text(const strategy::Sequence& sequence, const strategy::Piece& piece,
                                  corpus::LabelRow row);

// What steps read of a blend's documents, which outlives it.
std::unique_ptr<TokenSource> tokens_of(const corpus::Blend& blend);

// The pieces of a rank's own micro-batches, in the order of its tokens.
std::vector<std::vector<strategy::Piece>> pieces_of_rank(const strategy::StepPlan& plan, int world_size,
                                                         int rank);

// Of this rank.
runtime::StepTokens read_step_tokens(const TokenSource& source, const strategy::StepPlan& plan,
                                     int world_size, int rank);

}  // namespace sluice::run
