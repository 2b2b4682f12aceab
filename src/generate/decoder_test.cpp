// What is said token by token, on pages, in whatever company, is what the whole text would have said.
#include "generate/decoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "base/rng.h"
#include "generate/generator.h"
#include "layers/head.h"
#include "layers/make_operation.h"

namespace sluice::generate {
namespace {

constexpr int64_t kLongest = 200;

model::Shape small_shape() {
  return {.layers = 3, .hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 8, .ffn_hidden = 30, .vocab = 53};
}

// A model of random weights on one rank, in FP64.
class Model {
 public:
  explicit Model(const model::Shape& shape)
      : table_(model::parameter_table(shape)),
        context_(layers::layer_context(shape, {}, kLongest, at::dtype(at::kDouble))) {
    at::manual_seed(7);
    for (const model::Bucket& bucket : table_.buckets) {
      at::Tensor flat = at::randn({bucket.size}, at::kDouble) * 0.3;
      for (const model::Parameter& p : bucket.parameters) {
        if (p.one_dimensional()) flat.narrow(0, p.offset, p.size()).add_(1.0);
      }
      weights_.push_back(flat);
    }
  }

  WholeModel whole() const {
    return {table_, context_, [this](int bucket) { return weights_[static_cast<size_t>(bucket)]; },
            at::dtype(at::kDouble)};
  }

  // Of every token of a text, all at once.
  at::Tensor logits(const std::vector<int64_t>& tokens) const {
    const WholeModel model = whole();
    layers::Flow flow;
    flow.layout = layers::micro_batch_layout({{static_cast<int64_t>(tokens.size())}}, 1, at::kCPU,
                                             layers::reach_of(table_.shape));
    flow.id_T = layers::row_values(tokens, flow.layout, at::kCPU);
    for (int64_t position = 0; position < table_.program.head(); ++position) {
      layers::make_operation(model.context, table_, position, model.weights, {})
          ->forward(flow, layers::Purpose::kEvaluate);
    }
    const layers::OperationShards shards(table_, table_.program.head(), model.weights,
                                         layers::OperationShards::Of::kWeights, {});
    return layers::head_logits(model.context, layers::head_parameters(shards), flow.activation_SH);
  }

 private:
  model::ParameterTable table_;
  layers::LayerContext context_;
  std::vector<at::Tensor> weights_;
};

std::vector<int64_t> random_tokens(base::Rng& rng, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(rng.between(0, 52));
  return tokens;
}

struct Family {
  std::string name;
  std::function<void(model::Shape&)> apply;
};
void PrintTo(const Family& family, std::ostream* stream) { *stream << family.name; }

class Families : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override { GetParam().apply(shape_); }
  model::Shape shape_ = small_shape();
};

// Each said token is the one that the whole text's logits give, and as likely to 1e-11.
void expect_as_whole(const Model& model, const std::vector<int64_t>& prompt, const Said& said,
                     const Sampling& sampling, uint64_t stream) {
  std::vector<int64_t> tokens = prompt;
  tokens.insert(tokens.end(), said.tokens.begin(), said.tokens.end());
  const at::Tensor logits = model.logits(tokens);
  const at::Tensor log_probabilities = at::log_softmax(logits, 1);
  for (size_t i = 0; i < said.prompt.size(); ++i) {
    const at::Tensor row = log_probabilities[static_cast<int64_t>(i)];
    EXPECT_NEAR(said.prompt[i].log_probability, row[prompt[i + 1]].item<double>(), 1e-11);
    EXPECT_EQ(said.prompt[i].likeliest, row.argmax().item<int64_t>());
    EXPECT_NEAR(said.prompt[i].likeliest_log_probability, row.max().item<double>(), 1e-11);
  }
  for (size_t i = 0; i < said.tokens.size(); ++i) {
    const auto row = static_cast<int64_t>(prompt.size() + i) - 1;
    const at::Tensor own = logits[row].contiguous();
    const Choice choice = choose({own.const_data_ptr<double>(), 53}, sampling, stream, row + 1);
    ASSERT_EQ(said.tokens[i], choice.token) << "token " << i;
    EXPECT_NEAR(said.log_probabilities[i], choice.log_probability, 1e-11) << "token " << i;
  }
}

TEST_P(Families, SayWhatTheWholeTextSays) {
  const Model model(shape_);
  base::Rng rng(3);
  struct Load {
    int64_t pages, most_texts, most_rows;
  };
  // Ample; tight, so that texts are put off; small passes, which cut prompts.
  for (const Load& load : {Load{60, 64, 2048}, Load{8, 64, 2048}, Load{30, 3, 17}}) {
    const Decoder decoder(model.whole(), load.pages, load.most_texts);
    Generator generator(decoder,
                        {.pages = load.pages, .most_texts = load.most_texts, .most_rows = load.most_rows});
    Manner manner{.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4}};
    struct Asked {
      std::vector<int64_t> prompt;
      int samples;
      int64_t first;
    };
    std::vector<Asked> asked;
    for (uint64_t number = 0; number < 6; ++number) {
      const std::vector<int64_t> prompt = random_tokens(rng, rng.between(1, 90));
      const int samples = number == 2 ? 3 : 1;
      manner.number = number;
      const Request request{prompt, rng.between(1, 50), samples, /*scored=*/number % 2 == 0};
      asked.push_back({prompt, samples, generator.add(request, manner)});
    }
    while (generator.step()) {
    }
    if (load.pages == 8) {
      EXPECT_GT(generator.scheduler().evictions(), 0);
    }
    for (size_t number = 0; number < asked.size(); ++number) {
      for (int sample = 0; sample < asked[number].samples; ++sample) {
        SCOPED_TRACE(testing::Message()
                     << load.pages << " pages, prompt " << number << ", sample " << sample);
        const bool scored = number % 2 == 0 && sample == 0;
        EXPECT_EQ(generator.said(asked[number].first + sample).prompt.size(),
                  scored ? asked[number].prompt.size() - 1 : 0);
        expect_as_whole(model, asked[number].prompt, generator.said(asked[number].first + sample),
                        manner.sampling, (uint64_t{number} << 24) + static_cast<uint64_t>(sample));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Families,
    testing::Values(Family{"Llama", [](model::Shape&) {}},
                    Family{"NormedHeadsAndBiases",
                           [](model::Shape& s) {
                             s.qk_norm = model::QkNorm::kEachHead;
                             s.qkv_bias = true;
                             s.tie_embeddings = true;
                           }},
                    Family{"Window", [](model::Shape& s) { s.window = 7; }},
                    Family{"LatentAttention",
                           [](model::Shape& s) {
                             s.latent = {.q_rank = 9, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
                             s.kv_heads = s.heads;
                             s.head_dim = 8;
                             s.rotated = 2;
                           }},
                    Family{"WindowsThatAlternateWithSinksAndCaps",
                           [](model::Shape& s) {
                             s.window = 20;
                             s.block_types = {{.windowed = true}, {}, {.windowed = true}};
                             s.sinks = s.out_bias = true;
                             s.score_cap = 2.0;
                             s.logit_cap = 5.0;
                           }},
                    Family{"NormsAround",
                           [](model::Shape& s) {
                             s.norm_place = model::NormPlace::kAround;
                             s.norm_offset = 1.0;
                             s.activation = model::Activation::kGeluTanh;
                           }},
                    Family{"Experts",
                           [](model::Shape& s) {
                             s.experts = {.count = 6, .per_token = 2, .hidden = 9, .normalised = true};
                             s.block_types = {{}, {.experts = true}, {.experts = true}};
                           }},
                    Family{"Recurrent",
                           [](model::Shape& s) {
                             s.recurrent = {.key_heads = 2,
                                            .value_heads = 4,
                                            .key_width = 5,
                                            .value_width = 3,
                                            .convolution = 4};
                             s.block_types = {{.recurrent = true}, {}, {.recurrent = true}};
                           }},
                    Family{"Mamba2",
                           [](model::Shape& s) {
                             s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                                            .key_heads = 1,
                                            .value_heads = 4,
                                            .key_width = 5,
                                            .value_width = 3,
                                            .convolution = 4,
                                            .convolution_bias = true};
                             s.block_types = {{.recurrent = true}, {}, {.recurrent = true}};
                           }},
                    Family{"RecurrentAlone",
                           [](model::Shape& s) {
                             s.recurrent = {.key_heads = 3,
                                            .value_heads = 3,
                                            .key_width = 4,
                                            .value_width = 6,
                                            .convolution = 2,
                                            .rate_scale = 2.0};
                             s.block_types = {{.recurrent = true}, {.recurrent = true}, {.recurrent = true}};
                           }}),
    [](const auto& info) { return info.param.name; });

Said all_said(const Decoder& decoder, const Manner& manner) {
  Generator generator(decoder, {.pages = 10});
  generator.add({{5, 6, 7}, 30}, manner);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.scheduler().free_pages(), 10);
  return generator.said(0);
}

TEST(Generator, EndsWhereAnEndTokenComesOrItIsToldTo) {
  const Model model(small_shape());
  const Decoder decoder(model.whole(), 10, 64);
  const Said free = all_said(decoder, {});
  EXPECT_FALSE(free.ended);
  ASSERT_EQ(free.tokens.size(), 30U);
  const Said ended = all_said(decoder, {.end_tokens = {free.tokens[4]}});
  EXPECT_TRUE(ended.ended);
  EXPECT_LE(ended.tokens.size(), 4U);
  const Said told = all_said(decoder, {.ends = [](const Said& said) { return said.tokens.size() == 3; }});
  EXPECT_TRUE(told.ended);
  EXPECT_EQ(told.tokens, std::vector(free.tokens.begin(), free.tokens.begin() + 3));
}

TEST(Generator, ATextThatIsDroppedGivesItsPagesBackAndLeavesTheOthersAlone) {
  const Model model(small_shape());
  const Decoder decoder(model.whole(), 10, 64);
  const Said alone = all_said(decoder, {});
  Generator generator(decoder, {.pages = 10});
  const int64_t dropped = generator.add({{1, 2, 3, 4}, 90}, {});
  const int64_t kept = generator.add({{5, 6, 7}, 30}, {});
  for (int i = 0; i < 5; ++i) generator.step();
  generator.drop(dropped);
  const int64_t waiting = generator.add({{9}, 5}, {});
  generator.drop(waiting);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.said(kept).tokens, alone.tokens);
  EXPECT_EQ(generator.scheduler().free_pages(), 10);
}

}  // namespace
}  // namespace sluice::generate
