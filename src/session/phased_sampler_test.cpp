#include "session/phased_sampler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "corpus/sampler.h"

namespace sluice::session {
namespace {

class Phases : public testing::Test {
 protected:
  corpus::Sampler sampler(int64_t context, int64_t tokens, uint64_t seed = 1) const {
    return {{{lengths_}}, {.context_length = context, .tokens_per_step = tokens, .seed = seed}};
  }
  std::unique_ptr<corpus::Sampler> drawing(int64_t context, int64_t tokens, uint64_t seed = 1) const {
    return std::make_unique<corpus::Sampler>(sampler(context, tokens, seed));
  }
  // A change of the context at step 4 and of the batch at step 9.
  PhasedSampler phased() const {
    std::vector<SamplerPhase> phases;
    phases.push_back({0, drawing(16, 64)});
    phases.push_back({4, drawing(64, 64, 2)});
    phases.push_back({9, drawing(64, 256, 2), /*goes_on=*/true});
    return PhasedSampler(std::move(phases));
  }
  const std::vector<int32_t> lengths_ = std::vector<int32_t>(100, 40);
};

TEST_F(Phases, EachBeginsAtItsStep) {
  PhasedSampler batches = phased();
  corpus::Sampler first = sampler(16, 64);
  corpus::Sampler second = sampler(64, 64, 2);
  for (int64_t step = 0; step < 4; ++step) EXPECT_EQ(batches.next(), first.next());
  EXPECT_EQ(batches.phase(), 0);
  for (int64_t step = 4; step < 9; ++step) {
    const corpus::Batch batch = batches.next();
    EXPECT_EQ(batch.step, step);
    EXPECT_EQ(batch.samples, second.next().samples);
  }
  EXPECT_EQ(batches.phase(), 1);
  // The next documents, in larger batches.
  corpus::Batch large = batches.next();
  EXPECT_EQ(large.samples.size(), 6);
  for (const corpus::Sample& sample : large.samples) EXPECT_EQ(sample, second.next().samples.at(0));
}

TEST_F(Phases, RestoringAnywhereIsGoingOn) {
  for (int64_t stop = 1; stop < 14; ++stop) {
    PhasedSampler whole = phased();
    whole.skip(stop);
    PhasedSampler resumed = phased();
    resumed.restore(whole.state());
    EXPECT_EQ(resumed.step(), stop);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(resumed.next(), whole.next()) << stop;
  }
}

TEST_F(Phases, SkippingIsDrawing) {
  PhasedSampler drawn = phased();
  for (int i = 0; i < 12; ++i) drawn.next();
  PhasedSampler skipped = phased();
  skipped.skip(12);
  EXPECT_EQ(skipped.next(), drawn.next());
}

// A phase may be added to a run that has stopped, beginning with the next step.
TEST_F(Phases, PhaseAddedAtTheNextStepIsEntered) {
  PhasedSampler before(drawing(16, 64));
  before.skip(4);
  PhasedSampler after = phased();
  after.restore(before.state());
  EXPECT_EQ(after.next().step, 4);
  EXPECT_EQ(after.phase(), 1);
  before.skip(1);
  EXPECT_THROW(phased().restore(before.state()), base::InputError);  // step 5 belongs to another phase
}

}  // namespace
}  // namespace sluice::session
