#include "corpus/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/permutation.h"
#include "base/rng.h"

namespace sluice::corpus {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> random_lengths(size_t count, int64_t longest, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<int32_t> lengths(count);
  for (int32_t& length : lengths) length = static_cast<int32_t>(rng.between(0, longest));
  return lengths;
}

// The sampler's rules as plainly as possible: corpora are endless lists of sequences, written out for a
// number of epochs; batches take sequences one by one.
class SlowSampler {
 public:
  SlowSampler(const std::vector<LengthSource>& sources, const SamplerOptions& options, int epochs)
      : options_(options) {
    int64_t first = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      lists_.push_back(list_of(sources[i], first, i, epochs));
      weights_.push_back(sources[i].weight_ppm);
      first += static_cast<int64_t>(sources[i].lengths.size());
    }
    next_.resize(lists_.size());
    delivered_.resize(lists_.size());
  }

  Batch next() {
    Batch batch;
    batch.step = step_++;
    while (true) {
      const size_t corpus = choose();
      const Sample sample = lists_[corpus].at(next_[corpus]);
      if (!batch.samples.empty() && batch.tokens + sample.length_tokens > options_.tokens_per_step)
        return batch;
      ++next_[corpus];
      delivered_[corpus] += sample.length_tokens;
      batch.samples.push_back(sample);
      batch.tokens += sample.length_tokens;
    }
  }

 private:
  std::vector<Sample> list_of(const LengthSource& source, int64_t first, size_t corpus, int epochs) const {
    std::vector<int64_t> kept;
    for (size_t i = 0; i < source.lengths.size(); ++i) {
      const bool held_out = is_held_out(static_cast<int64_t>(i), options_);
      const int64_t length = source.lengths[i];
      if (held_out != (options_.subset == Subset::kValidation) || length < 2) continue;
      if (options_.overflow == Overflow::kDrop && length > options_.context_length) continue;
      kept.push_back(static_cast<int64_t>(i));
    }
    std::vector<Sample> list;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const base::Permutation permutation(kept.size(), options_.seed,
                                          (uint64_t{corpus} << 40) + static_cast<uint64_t>(epoch));
      for (size_t i = 0; i < kept.size(); ++i) {
        const int64_t document = kept[permutation.at(i)];
        const int64_t length = source.lengths[static_cast<size_t>(document)];
        for (int64_t begin = 0; length - begin >= 2; begin += options_.context_length) {
          list.push_back({first + document, begin, std::min(length - begin, options_.context_length)});
          if (options_.overflow != Overflow::kSplit) break;
        }
      }
    }
    return list;
  }

  size_t choose() const {
    const double all = static_cast<double>(std::accumulate(weights_.begin(), weights_.end(), int64_t{0}));
    const double tokens =
        static_cast<double>(std::accumulate(delivered_.begin(), delivered_.end(), int64_t{1}));
    std::vector<double> lags;
    for (size_t i = 0; i < lists_.size(); ++i) {
      lags.push_back(static_cast<double>(weights_[i]) * tokens - static_cast<double>(delivered_[i]) * all);
    }
    return static_cast<size_t>(std::max_element(lags.begin(), lags.end()) - lags.begin());
  }

  SamplerOptions options_;
  std::vector<std::vector<Sample>> lists_;
  std::vector<int64_t> weights_;
  std::vector<size_t> next_;
  std::vector<int64_t> delivered_;
  int64_t step_ = 0;
};

TEST(Sampler, EqualsItsSlowTwin) {
  const std::vector<int32_t> a = random_lengths(60, 300, 1);
  const std::vector<int32_t> b = random_lengths(23, 900, 2);
  const std::vector<int32_t> c = random_lengths(5, 40, 3);
  const std::vector<LengthSource> sources = {{a, 500'000}, {b, 300'000}, {c, 77'777}};
  for (const Overflow overflow : {Overflow::kTruncate, Overflow::kSplit, Overflow::kDrop}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SamplerOptions options{
          .context_length = 128, .overflow = overflow, .tokens_per_step = 700, .seed = seed};
      options.validation_ppm = seed % 2 == 0 ? 0 : 100'000;
      Sampler sampler(sources, options);
      SlowSampler twin(sources, options, 400);
      for (int step = 0; step < 60; ++step) EXPECT_EQ(sampler.next(), twin.next());
    }
  }
}

TEST(Sampler, EpochVisitsEachDocumentOnceInANewOrder) {
  const std::vector<int32_t> lengths(50, 10);
  Sampler sampler({{lengths}}, {.tokens_per_step = 500});
  std::vector<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const Batch batch = sampler.next();
    EXPECT_EQ(sampler.epochs()[0], epoch + 1);
    std::vector<int64_t> order;
    for (const Sample& sample : batch.samples) order.push_back(sample.document);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 50);
    orders.push_back(order);
  }
  EXPECT_EQ(std::set<std::vector<int64_t>>(orders.begin(), orders.end()).size(), 4);
}

TEST(Sampler, SeedsGiveDifferentOrders) {
  const std::vector<int32_t> lengths(50, 10);
  Sampler one({{lengths}}, {.seed = 1});
  Sampler two({{lengths}}, {.seed = 2});
  EXPECT_NE(one.next().samples, two.next().samples);
}

TEST(Sampler, BatchIsFilledButNotOverfilled) {
  const std::vector<int32_t> lengths = random_lengths(500, 400, 4);
  Sampler sampler({{lengths}}, {.context_length = 300, .tokens_per_step = 1'000});
  Batch previous = sampler.next();
  for (int step = 1; step < 300; ++step) {
    const Batch batch = sampler.next();
    EXPECT_LE(previous.tokens, 1'000);
    EXPECT_GT(previous.tokens + batch.samples[0].length_tokens, 1'000);
    EXPECT_EQ(batch.step, step);
    previous = batch;
  }
}

TEST(Sampler, SequenceLongerThanTheStepIsABatchOfItsOwn) {
  const std::vector<int32_t> lengths = {500, 500};
  Sampler sampler({{lengths}}, {.context_length = 1'000, .tokens_per_step = 100});
  for (int step = 0; step < 5; ++step) EXPECT_EQ(sampler.next().samples.size(), 1);
}

TEST(Sampler, TruncatesSplitsOrDrops) {
  const std::vector<int32_t> lengths = {25};
  const std::vector<int32_t> with_short = {25, 4};
  SamplerOptions options{.context_length = 10, .tokens_per_step = 25};
  Sampler truncate({{lengths}}, options);
  EXPECT_EQ(truncate.next().samples, (std::vector<Sample>{{0, 0, 10}, {0, 0, 10}}));
  options.overflow = Overflow::kSplit;
  Sampler split({{lengths}}, options);
  EXPECT_EQ(split.next().samples, (std::vector<Sample>{{0, 0, 10}, {0, 10, 10}, {0, 20, 5}}));
  options.overflow = Overflow::kDrop;
  options.tokens_per_step = 8;
  Sampler drop({{with_short}}, options);
  EXPECT_EQ(drop.next().samples, (std::vector<Sample>{{1, 0, 4}, {1, 0, 4}}));
}

TEST(Sampler, SplitDropsARestWithoutTarget) {
  const std::vector<int32_t> lengths = {21};
  Sampler sampler({{lengths}}, {.context_length = 10, .overflow = Overflow::kSplit, .tokens_per_step = 20});
  EXPECT_EQ(sampler.next().samples, (std::vector<Sample>{{0, 0, 10}, {0, 10, 10}}));
  EXPECT_EQ(sampler.next().samples, (std::vector<Sample>{{0, 0, 10}, {0, 10, 10}}));
  EXPECT_EQ(sampler.counts().lost_tokens, 1);
}

TEST(Sampler, CountsWhatItLeavesOut) {
  const std::vector<int32_t> lengths = {0, 1, 2, 10, 11, 30};
  SamplerOptions options{.context_length = 10};
  EXPECT_EQ(Sampler({{lengths}}, options).counts(), (SamplerCounts{4, 0, 2, 2, 1 + 1 + 20}));
  options.overflow = Overflow::kDrop;
  EXPECT_EQ(Sampler({{lengths}}, options).counts(), (SamplerCounts{2, 0, 2, 2, 1 + 11 + 30}));
  options.overflow = Overflow::kSplit;
  EXPECT_EQ(Sampler({{lengths}}, options).counts(), (SamplerCounts{4, 0, 2, 2, 1 + 1}));
}

TEST(Sampler, BlendKeepsSharesOfTokensAtEveryMoment) {
  const std::vector<int32_t> a = random_lengths(1'000, 100, 5);
  const std::vector<int32_t> b = random_lengths(100, 2'000, 6);
  const std::vector<int32_t> c = random_lengths(10, 500, 7);
  Sampler sampler({{a, 600'000}, {b, 300'000}, {c, 100'000}},
                  {.context_length = 2'000, .tokens_per_step = 4'000});
  for (int step = 0; step < 500; ++step) {
    sampler.next();
    const std::vector<int64_t> delivered = sampler.delivered_tokens();
    const int64_t all = std::accumulate(delivered.begin(), delivered.end(), int64_t{0});
    EXPECT_LE(std::abs(delivered[0] * 10 - all * 6), 10 * 2 * 2'000);
    EXPECT_LE(std::abs(delivered[1] * 10 - all * 3), 10 * 2 * 2'000);
    EXPECT_LE(std::abs(delivered[2] * 10 - all * 1), 10 * 2 * 2'000);
  }
}

TEST(Sampler, ResumesExactlyFromItsStateAsJson) {
  const std::vector<int32_t> a = random_lengths(40, 900, 8);
  const std::vector<int32_t> b = random_lengths(17, 300, 9);
  const std::vector<LengthSource> sources = {{a, 700'000}, {b, 300'000}};
  const SamplerOptions options{.context_length = 100, .overflow = Overflow::kSplit, .tokens_per_step = 333};
  Sampler whole(sources, options);
  for (int step = 0; step < 200; ++step) {
    const base::Json json = base::parse_json(to_json(whole.state()).dump(), "state");
    Sampler resumed(sources, options);
    resumed.restore(sampler_state_from_json(json, "state"));
    Sampler skipped(sources, options);
    skipped.skip(step);
    const Batch expected = whole.next();
    EXPECT_EQ(resumed.next(), expected);
    EXPECT_EQ(skipped.next(), expected);
    EXPECT_EQ(resumed.state(), whole.state());
  }
}

TEST(Sampler, StateOfOtherDataIsRefused) {
  const std::vector<int32_t> lengths = random_lengths(40, 900, 8);
  const std::vector<int32_t> other = random_lengths(40, 900, 9);
  const SamplerState state = Sampler({{lengths}}, {}).state();
  Sampler larger_steps({{lengths}}, {.tokens_per_step = 99'999});
  EXPECT_NO_THROW(larger_steps.restore(state));
  EXPECT_THROW(Sampler({{other}}, {}).restore(state), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.seed = 2}).restore(state), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.context_length = 64}).restore(state), base::InputError);
}

TEST(Sampler, SubsetsAreDisjointCompleteAndIndependentOfTheSeed) {
  const std::vector<int32_t> lengths(10'000, 5);
  SamplerOptions options{.context_length = 5, .tokens_per_step = 1'000'000, .validation_ppm = 50'000};
  std::set<int64_t> sides[2];
  for (const Subset subset : {Subset::kTraining, Subset::kValidation}) {
    options.subset = subset;
    for (const uint64_t seed : {1, 2}) {
      options.seed = seed;
      std::set<int64_t>& side = sides[static_cast<int>(subset)];
      const int64_t documents = Sampler({{lengths}}, options).counts().documents;
      options.tokens_per_step = documents * 5;
      for (const Sample& sample : Sampler({{lengths}}, options).next().samples) side.insert(sample.document);
      EXPECT_EQ(static_cast<int64_t>(side.size()), documents);
    }
  }
  EXPECT_EQ(sides[0].size() + sides[1].size(), 10'000);
  EXPECT_NEAR(static_cast<double>(sides[1].size()), 500, 100);
  for (const int64_t document : sides[1]) EXPECT_FALSE(sides[0].contains(document));
}

TEST(Sampler, BatchesInOrderVisitEachSequenceOnce) {
  const std::vector<int32_t> a = {5, 1, 25};
  const std::vector<int32_t> b = {7, 10};
  const SamplerOptions options{.context_length = 10, .overflow = Overflow::kSplit, .tokens_per_step = 20};
  const std::vector<Batch> batches = batches_in_order({{a}, {b}}, options);
  ASSERT_EQ(batches.size(), 3);
  EXPECT_EQ(batches[0].samples, (std::vector<Sample>{{0, 0, 5}, {2, 0, 10}}));
  EXPECT_EQ(batches[1].samples, (std::vector<Sample>{{2, 10, 10}, {2, 20, 5}}));
  EXPECT_EQ(batches[2].samples, (std::vector<Sample>{{3, 0, 7}, {4, 0, 10}}));
  EXPECT_EQ(batches[2].step, 2);
  EXPECT_EQ(batches[2].tokens, 17);
}

TEST(Sampler, BadOptionsAreRefused) {
  const std::vector<int32_t> lengths = {5, 9};
  const std::vector<int32_t> tiny = {0, 1};
  EXPECT_THROW(Sampler({{lengths}}, {.context_length = 1}), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.tokens_per_step = 0}), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.validation_ppm = 1'000'001}), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.subset = Subset::kValidation}), base::InputError);
  EXPECT_THROW(Sampler({{lengths}, {tiny}}, {}), base::InputError);
  EXPECT_THROW(Sampler({{lengths}}, {.context_length = 4, .overflow = Overflow::kDrop}), base::InputError);
  EXPECT_THROW(Sampler({}, {}), base::InputError);
}

TEST(Sampler, OverflowNamesAreReadBack) {
  for (const Overflow overflow : {Overflow::kTruncate, Overflow::kSplit, Overflow::kDrop}) {
    EXPECT_EQ(parse_overflow(name(overflow), "data.overflow"), overflow);
  }
  EXPECT_THROW(parse_overflow("cut", "data.overflow"), base::InputError);
}

TEST(Blend, WeightsAreReadInPartsPerMillion) {
  EXPECT_EQ(weight_ppm(0.3, "a"), 300'000);
  for (const double weight : {0.0, -1.0, 9e-10, 2e9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(weight_ppm(weight, "a"), base::InputError) << weight;
  }
}

TEST(Blend, SmallWeightsKeepTheirShares) {
  const auto fixtures = std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/corpus";
  const auto parts = [&](double one, double other) {
    const Blend blend = Blend::open({{fixtures / "uint16", one}, {fixtures / "int32", other}});
    return std::pair(blend.parts()[0].weight_ppm, blend.parts()[1].weight_ppm);
  };
  EXPECT_EQ(parts(0.7, 0.3), std::pair(int64_t{700'000}, int64_t{300'000}));
  EXPECT_EQ(parts(1, 1.5e-6), std::pair(int64_t{1'000'000'000}, int64_t{1500}));
  EXPECT_EQ(parts(1e9, 1e-9), std::pair(int64_t{1'000'000'000} * 1'000'000'000, int64_t{1}));
  const std::vector<std::pair<std::string, double>> many(5, {fixtures / "uint16", 1e9});
  auto mixed = many;
  mixed.emplace_back(fixtures / "int32", 1e-9);
  EXPECT_EQ(Blend::open(many).loss_ppm(), Blend::open({many[0]}).loss_ppm());
  EXPECT_THROW(Blend::open(mixed), base::InputError);
}

TEST(Blend, NumbersDocumentsThroughAllCorpora) {
  const auto fixtures = std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/corpus";
  const Blend blend = Blend::open({{fixtures / "uint16", 1.0}, {fixtures / "int32", 0.5}});
  EXPECT_EQ(blend.documents(), 7);
  EXPECT_EQ(blend.tokens(), 98);
  EXPECT_EQ(blend.length(6), 45);
  std::vector<int32_t> tokens(2);
  blend.read(6, 6, 2, tokens.data());
  EXPECT_THAT(tokens, testing::ElementsAre(7919 * 4 + 31, 7919 * 4 + 62));
  EXPECT_EQ(blend.read_bytes(), 8);
  EXPECT_TRUE(blend.has_mask());
  std::vector<uint8_t> mask(1);
  blend.read_mask(0, 0, 1, mask.data());
  EXPECT_EQ(mask[0], 0);
  EXPECT_THROW(Blend::open({}), base::InputError);
  EXPECT_THROW(Blend::open({{fixtures / "uint16", 0.0}}), base::InputError);
}

TEST(Sampler, SkippingFarIsDrawingFar) {
  const std::vector<int32_t> a = random_lengths(60, 300, 1);
  const std::vector<int32_t> b = random_lengths(23, 900, 2);
  for (const std::vector<LengthSource>& sources :
       {std::vector<LengthSource>{{a, 500'000}}, std::vector<LengthSource>{{a, 500'000}, {b, 300'000}}}) {
    const SamplerOptions options{.context_length = 128, .overflow = Overflow::kSplit, .tokens_per_step = 700};
    Sampler skipping(sources, options);
    Sampler drawing(sources, options);
    skipping.skip(5'000);
    for (int step = 0; step < 5'000; ++step) drawing.next();
    EXPECT_EQ(skipping.state(), drawing.state());
    EXPECT_EQ(skipping.next(), drawing.next());
  }
}

// More documents than one thread orders at once; some passes through them.
TEST(Sampler, SkippingManyDocumentsIsDrawingThem) {
  const std::vector<int32_t> a = random_lengths(40'000, 300, 1);
  const std::vector<int32_t> b = random_lengths(100, 900, 2);
  Sampler skipping({{a, 900'000}, {b, 100'000}}, {.tokens_per_step = 20'000});
  Sampler drawing = skipping;
  skipping.skip(1'000);
  for (int step = 0; step < 1'000; ++step) drawing.next();
  EXPECT_GE(skipping.epochs()[0], 2);
  EXPECT_EQ(skipping.state(), drawing.state());
  EXPECT_EQ(skipping.next(), drawing.next());
}

TEST(Sampler, BatchOfMillionsOfSequencesIsRefused) {
  const std::vector<int32_t> lengths = {10, 20};
  Sampler sampler({{lengths}}, {.tokens_per_step = (int64_t{1} << 31) - 1});
  try {
    sampler.next();
    FAIL() << "a batch of 2^31 tokens is drawn from documents of 30";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.tokens_per_step is 2147483647"));
    EXPECT_THAT(error.what(), HasSubstr("set it to that at most"));
  }
}

TEST(Sampler, CursorInsideASequenceIsDamage) {
  const std::vector<int32_t> lengths = {10, 25, 12};
  for (const auto& [overflow, begin_token, fault] :
       {std::tuple{Overflow::kTruncate, 10, true}, std::tuple{Overflow::kSplit, 7, true},
        std::tuple{Overflow::kSplit, -10, true}, std::tuple{Overflow::kSplit, 30, true},
        std::tuple{Overflow::kTruncate, 0, false}}) {
    Sampler sampler({{lengths}}, {.context_length = 10, .overflow = overflow, .tokens_per_step = 20});
    SamplerState state = sampler.state();
    state.cursors[0].begin_token = begin_token;
    if (fault) {
      EXPECT_THROW(sampler.restore(state), base::InputError) << begin_token;
    } else {
      sampler.restore(state);
    }
  }
}

}  // namespace
}  // namespace sluice::corpus
