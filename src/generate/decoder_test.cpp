// Token by token, in blocks, beside any other sequences, the decoder gives the whole sequence's results.
#include "generate/decoder.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "base/text.h"
#include "comm/test_fake.h"
#include "generate/followers.h"
#include "generate/generator.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "model/test_families.h"
#include "model/test_tuning.h"
#include "strategy/strategy.h"

namespace sluice::generate {
namespace {

constexpr int64_t kLongest = 200;

model::Outline small_shape() {
  return {.layers = 3, .hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 8, .ffn_hidden = 30, .vocab = 53};
}

// A model of random weights, in FP64.
class Model {
 public:
  // `adapters`: as ModelShard has them.
  explicit Model(const model::Outline& outline, int64_t adapters = 0)
      : table_(model::parameter_table(outline)),
        context_(layers::layer_context(outline, {}, kLongest, at::dtype(at::kDouble))),
        adapters_(adapters) {
    at::manual_seed(7);
    for (const model::Bucket& bucket : table_.buckets) {
      at::Tensor flat = at::randn({bucket.size}, at::kDouble) * 0.3;
      for (const model::Parameter& p : bucket.parameters) {
        if (p.one_dimensional()) flat.narrow(0, p.offset, p.size()).add_(1.0);
      }
      weights_.push_back(flat);
    }
  }

  // A rank's part of the model; TP ranks are neighbours.
  ModelShard part(int tp, int t, comm::Communicator* tensor_parallel, const Stages& stages,
                  const layers::ExpertLanes& experts = {}) const {
    layers::LayerContext context = context_;
    context.parallel = {tensor_parallel, tp, t};
    context.experts = experts;
    const auto weights = [this, cut = context.cut(/*layer=*/-1)](int bucket) {
      const base::IntervalSet shard = model::shard_of(table_.buckets[static_cast<size_t>(bucket)], cut);
      std::vector<at::Tensor> parts;
      for (const base::Interval interval : shard.intervals())
        parts.push_back(weights_[static_cast<size_t>(bucket)].narrow(0, interval.begin, interval.size()));
      return at::cat(parts);
    };
    return {table_, context, weights, at::dtype(at::kDouble), stages, /*lanes=*/{}, adapters_};
  }

  ModelShard whole() const {
    return {table_,
            context_,
            [this](int bucket) { return weights_[static_cast<size_t>(bucket)]; },
            at::dtype(at::kDouble),
            /*stages=*/{},
            /*lanes=*/{},
            adapters_};
  }

  // A model that has one of its adapters alone, with zeros for the others; -1: none.
  Model with_one(int64_t adapter) const {
    Model one = *this;
    one.adapters_ = 0;
    one.known_.clear();
    for (at::Tensor& flat : one.weights_) flat = flat.clone();
    for (const model::Bucket& bucket : table_.buckets) {
      for (const model::Parameter& p : bucket.parameters) {
        if (p.factor != model::Factor::kLeft) continue;
        const at::Tensor left = one.weights_[static_cast<size_t>(bucket.index)]
                                    .narrow(0, p.offset, p.size())
                                    .view({p.rows, adapters_, p.columns / adapters_});
        for (int64_t other = 0; other < adapters_; ++other) {
          if (other != adapter) left.select(1, other).zero_();
        }
      }
    }
    return one;
  }

  // The logits at every token of a sequence, computed all at once; only once for all ranks that say the same.
  at::Tensor logits(const std::vector<int64_t>& tokens) const {
    at::Tensor& known = known_[tokens];
    if (!known.defined()) known = computed(tokens);
    return known;
  }

 private:
  at::Tensor computed(const std::vector<int64_t>& tokens) const {
    const ModelShard model = whole();
    layers::Flow flow;
    flow.layout = layers::row_layout({{static_cast<int64_t>(tokens.size())}}, 1, at::kCPU,
                                     layers::reach_of(table_.model));
    flow.id_T = layers::row_values(tokens, flow.layout, at::kCPU);
    for (int64_t position = 0; position < table_.program.head(); ++position) {
      layers::make_operation(model.context, table_, position, model.weights, {})
          ->forward(flow, layers::Purpose::kEvaluate);
    }
    const layers::OperationShards shards(table_, table_.program.head(), model.weights,
                                         layers::OperationShards::Of::kWeights, {});
    return layers::head_logits(model.context, layers::head_parameters(shards), flow.activation_SH);
  }

  model::ParameterTable table_;
  layers::LayerContext context_;
  int64_t adapters_ = 0;
  std::vector<at::Tensor> weights_;
  mutable std::map<std::vector<int64_t>, at::Tensor> known_;  // of the weights; used by one thread
};

std::vector<int64_t> random_tokens(base::Rng& rng, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(rng.between(0, 52));
  return tokens;
}

struct Family {
  std::string name;
  std::function<void(model::Outline&)> apply;
};
void PrintTo(const Family& family, std::ostream* stream) { *stream << family.name; }

class Families : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    GetParam().apply(outline_);
  }
  model::Outline outline_ = small_shape();
};

// Each said token is the one that the whole text's logits give, and as likely to 1e-11.
void expect_as_whole(const Model& model, const std::vector<int64_t>& prompt, const Output& output,
                     const Sampling& sampling, uint64_t stream) {
  std::vector<int64_t> tokens = prompt;
  tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  const at::Tensor logits = model.logits(tokens);
  const at::Tensor log_probabilities = at::log_softmax(logits, 1);
  for (size_t i = 0; i < output.prompt_logprobs.size(); ++i) {
    const at::Tensor row = log_probabilities[static_cast<int64_t>(i)];
    EXPECT_NEAR(output.prompt_logprobs[i].log_probability, row[prompt[i + 1]].item<double>(), 1e-11);
    ASSERT_EQ(output.prompt_logprobs[i].alternatives.size(), 2u);
    EXPECT_EQ(output.prompt_logprobs[i].alternatives[0].token, row.argmax().item<int64_t>());
    EXPECT_NEAR(output.prompt_logprobs[i].alternatives[0].log_probability, row.max().item<double>(), 1e-11);
    EXPECT_GE(output.prompt_logprobs[i].alternatives[0].log_probability,
              output.prompt_logprobs[i].alternatives[1].log_probability);
  }
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    const auto row = static_cast<int64_t>(prompt.size() + i) - 1;
    const at::Tensor own = logits[row].contiguous();
    const SampledToken choice = sample_token({own.const_data_ptr<double>(), 53}, sampling, stream, row + 1);
    ASSERT_EQ(output.tokens[i], choice.token) << "token " << i;
    EXPECT_NEAR(output.log_probabilities[i], choice.log_probability, 1e-11) << "token " << i;
    ASSERT_EQ(output.alternatives[i].size(), 2u);
    EXPECT_EQ(output.alternatives[i][0].token, own.argmax().item<int64_t>());
  }
}

TEST_P(Families, SayWhatTheWholeTextSays) {
  const Model model(outline_);
  base::Rng rng(3);
  struct Load {
    int64_t pages, most_texts, most_rows;
  };
  // An ample cache; a tight one, which forces preemptions; small engine steps, which cut prompts.
  for (const Load& load : {Load{60, 64, 2048}, Load{8, 64, 2048}, Load{30, 3, 17}}) {
    const Decoder decoder(model.whole(), load.pages, load.most_texts);
    Generator generator(
        decoder,
        {.kv_blocks = load.pages, .max_num_seqs = load.most_texts, .max_num_batched_tokens = load.most_rows});
    SamplingParams sampling_params{.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4},
                                   .alternatives = 2};
    struct TestRequest {
      std::vector<int64_t> prompt;
      int samples;
      int64_t first;
    };
    std::vector<TestRequest> asked;
    for (uint64_t number = 0; number < 6; ++number) {
      const std::vector<int64_t> prompt = random_tokens(rng, rng.between(1, 90));
      const int samples = number == 2 ? 3 : 1;
      sampling_params.number = number;
      const inference::Request request{prompt, rng.between(1, 50), samples, /*scored=*/number % 2 == 0};
      asked.push_back({prompt, samples, generator.add(request, sampling_params)});
    }
    while (generator.step()) {
    }
    if (load.pages == 8) {
      EXPECT_GT(generator.scheduler().preemptions(), 0);
    }
    for (size_t number = 0; number < asked.size(); ++number) {
      for (int sample = 0; sample < asked[number].samples; ++sample) {
        SCOPED_TRACE(testing::Message()
                     << load.pages << " pages, prompt " << number << ", sample " << sample);
        const bool scored = number % 2 == 0 && sample == 0;
        EXPECT_EQ(generator.output(asked[number].first + sample).prompt_logprobs.size(),
                  scored ? asked[number].prompt.size() - 1 : 0);
        expect_as_whole(model, asked[number].prompt, generator.output(asked[number].first + sample),
                        sampling_params.sampling, (uint64_t{number} << 24) + static_cast<uint64_t>(sample));
      }
    }
  }
}

// A text may come in at any layer of the pass around it.
TEST_P(Families, SayTheSameWithinAPassOfOthers) {
  const Model model(outline_);
  base::Rng rng(8);
  const std::vector<int64_t> crowd = random_tokens(rng, 37), late = random_tokens(rng, 21);
  const SamplingParams sampling_params{.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4},
                                       .alternatives = 2};
  for (const int layer : {1, 4, 12}) {
    const Decoder decoder(model.whole(), /*pages=*/60, /*most_texts=*/4);
    Generator generator(decoder, {.kv_blocks = 60, .max_num_seqs = 4, .newcomer_slots = 1});
    for (int i = 0; i < 4; ++i) generator.add({crowd, 8, 1, /*scored=*/true, /*client=*/1}, sampling_params);
    int64_t other = -1;
    int layers = 0;
    std::vector<int64_t> within;
    while (generator.step([&] {
      if (++layers == layer)
        other = generator.add({late, 9, 1, /*scored=*/true, /*client=*/2}, sampling_params);
      if (other < 0 || !within.empty()) return;
      within = generator.step_within();
      if (!within.empty()) {
        EXPECT_EQ(generator.output(other).tokens.size(), 1U) << "before the others' pass ends";
      }
    })) {
    }
    EXPECT_EQ(within, std::vector<int64_t>{other});
    expect_as_whole(model, late, generator.output(other), sampling_params.sampling, 0);
    for (int64_t text = 0; text < 4; ++text)
      expect_as_whole(model, crowd, generator.output(text), sampling_params.sampling, 0);
    EXPECT_EQ(generator.scheduler().free_kv_blocks(), 60);
  }
}

struct TestRequest {
  inference::Request request;
  SamplingParams sampling_params;
};

std::vector<Output> say_all(const ModelShard& model, const std::vector<TestRequest>& asked) {
  constexpr int64_t kPages = 9, kTexts = 4;
  const Decoder decoder(model, kPages, kTexts);
  Generator generator(decoder, {.kv_blocks = kPages, .max_num_seqs = kTexts, .max_num_batched_tokens = 40});
  for (const auto& [request, params] : asked) generator.add(request, params);
  while (generator.step()) {
  }
  std::vector<Output> output;
  for (int64_t text = 0; text < generator.scheduler().total_sequences(); ++text)
    output.push_back(generator.output(text));
  return output;
}

// The outputs of every rank of one pipeline.
std::vector<std::vector<Output>> say_all_on(const Model& model, const strategy::Scheme& scheme,
                                            const std::vector<TestRequest>& asked) {
  const auto [tp, pp, cp, share, experts] = scheme;
  comm::FakeWorld world(scheme.ranks());
  std::vector<std::vector<Output>> output(static_cast<size_t>(scheme.ranks()));
  std::vector<std::thread> threads;
  const auto rank_of = [tp = tp, cp = cp](int stage, int lane, int t) {
    return (stage * cp + lane) * tp + t;
  };
  for (int rank = 0; rank < scheme.ranks(); ++rank) {
    threads.emplace_back([&, rank, tp = tp, pp = pp, cp = cp] {
      const int stage = rank / tp / cp, lane = rank / tp % cp, t = rank % tp;
      const auto transport = world.transport(rank);
      std::vector<int> tp_ranks, all, stage_ranks, lane_ranks;
      for (int each = 0; each < tp; ++each) tp_ranks.push_back(rank_of(stage, lane, each));
      for (int each = 0; each < pp; ++each) stage_ranks.push_back(rank_of(each, lane, t));
      for (int each = 0; each < cp; ++each) lane_ranks.push_back(rank_of(stage, each, t));
      for (int each = 0; each < scheme.ranks(); ++each) all.push_back(each);
      const auto between_stages = transport->communicator("stages", all);
      const auto between_lanes = transport->communicator("lanes", all);
      const auto tensor_parallel =
          tp > 1 ? transport->communicator(base::text("tp", stage, " ", lane), tp_ranks) : nullptr;
      const Stages stages =
          pp > 1 ? Stages{.group = between_stages.get(), .members = stage_ranks, .own = stage} : Stages{};
      layers::LaneChannel channel(*between_lanes);
      ModelShard part = model.part(tp, t, tensor_parallel.get(), stages,
                                   {scheme.ep, lane - scheme.first_of_ep_group(lane)});
      part.context.lanes = &channel;
      if (cp > 1) part.lanes = {lane_ranks, lane};
      output[static_cast<size_t>(rank)] = say_all(part, asked);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return output;
}

// Draws, scores and preemptions do not depend on how ranks share the model.
TEST_P(Families, SayTheSameOnAnyRanks) {
  const Model model(outline_);
  base::Rng rng(5);
  std::vector<TestRequest> asked;
  for (uint64_t number = 0; number < 5; ++number) {
    asked.push_back(
        {{random_tokens(rng, rng.between(1, 70)), rng.between(1, 30),
          outline_.recurrent.key_heads == 0 && number == 1 ? 3 : 1, number % 2 == 0},
         {.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4}, .number = number, .alternatives = 2}});
  }
  asked.back().sampling_params.stop_condition = [](const Output& output) {
    return output.tokens.size() == 2;
  };
  const std::vector<Output> alone = say_all(model.whole(), asked);
  for (const char* text :
       {"<2,1,1>", "<1,3,1>", "<2,2,1>", "<1,2,1>", "<1,1,2>", "<1,1,3>", "<2,1,2>", "<1,2,2>", "<1,1,8>",
        "<1,1,2,2,2>", "<1,1,4,4,2>", "<1,1,3,3,3>", "<2,1,2,2,2>"}) {
    const strategy::Scheme scheme = strategy::parse_scheme(text);
    if (!model::cut_fault(outline_, scheme.tp, scheme.pp, scheme.ep).empty()) continue;
    SCOPED_TRACE(to_text(scheme));
    for (const std::vector<Output>& output : say_all_on(model, scheme, asked)) {
      ASSERT_EQ(output.size(), alone.size());
      for (size_t i = 0; i < output.size(); ++i) {
        ASSERT_EQ(output[i].tokens, alone[i].tokens);
        EXPECT_EQ(output[i].finish_reason, alone[i].finish_reason);
        ASSERT_EQ(output[i].prompt_logprobs.size(), alone[i].prompt_logprobs.size());
        for (size_t token = 0; token < output[i].tokens.size(); ++token) {
          EXPECT_NEAR(output[i].log_probabilities[token], alone[i].log_probabilities[token], 1e-11);
          EXPECT_EQ(output[i].alternatives[token][0].token, alone[i].alternatives[token][0].token);
        }
        for (size_t row = 0; row < output[i].prompt_logprobs.size(); ++row) {
          EXPECT_NEAR(output[i].prompt_logprobs[row].log_probability,
                      alone[i].prompt_logprobs[row].log_probability, 1e-11);
          EXPECT_EQ(output[i].prompt_logprobs[row].alternatives[0].token,
                    alone[i].prompt_logprobs[row].alternatives[0].token);
        }
      }
    }
  }
}

constexpr int64_t kAdapters = 3;

// Adapters of as many matrices as may have some side by side.
model::Outline with_adapters(model::Outline outline) {
  constexpr int64_t kRank = 2;
  model::Outline all = outline;
  model::adapt(all, {.rank = 1, .alpha = 1, .targets = {"all-linear"}});
  std::vector<std::string> targets = all.lora.targets;
  std::erase(targets, "kv_b_proj");
  if (outline.experts.count > 0) targets.insert(targets.end(), {"experts.gate_up_proj", "experts.down_proj"});
  model::adapt(outline, {.rank = 1, .alpha = 5, .targets = targets});
  outline.lora.rank = kAdapters * kRank;  // may be above a matrix's own, as no adapter's is
  return outline;
}

// Texts of several adapters, and of none, in one engine: each says what a model with its adapter alone says.
TEST_P(Families, SayWhatTheirOwnAdaptersSay) {
  const Model model(with_adapters(outline_), kAdapters);
  base::Rng rng(9);
  std::vector<TestRequest> asked;
  // Like prompts of two adapters: nothing of one's may reach the other.
  const std::vector<int64_t> same = random_tokens(rng, 40);
  for (int number = 0; number < 5; ++number) {
    inference::Request request{number < 3 ? same : random_tokens(rng, rng.between(1, 70)), rng.between(2, 6)};
    request.adapter = number % (kAdapters + 1) - 1;
    asked.push_back({request, {.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4}, .alternatives = 2}});
  }
  std::vector<Model> ones;  // by adapter, without any first
  for (int64_t adapter = -1; adapter < kAdapters; ++adapter) ones.push_back(model.with_one(adapter));
  for (const auto& [tp, pp, cp] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 3, 1}, {1, 1, 2}, {2, 1, 2}}) {
    const strategy::Scheme scheme{.tp = tp, .pp = pp, .cp = cp};
    if (!model::tp_fault(outline_, tp).empty()) continue;
    SCOPED_TRACE(to_text(scheme));
    for (const std::vector<Output>& output : say_all_on(model, scheme, asked)) {
      ASSERT_EQ(output.size(), asked.size());
      for (size_t i = 0; i < output.size(); ++i) {
        const auto& [request, params] = asked[i];
        const Model& own = ones[static_cast<size_t>(request.adapter + 1)];
        expect_as_whole(own, request.prompt, output[i], params.sampling, 0);
      }
    }
  }
}

// The leader gets requests, whose sequences end by its stop conditions or are aborted; the other follows.
TEST(Followers, FollowersSayWhatTheLeaderSays) {
  const Model model(small_shape());
  const inference::SchedulerOptions options{.kv_blocks = 9, .max_num_seqs = 4, .max_num_batched_tokens = 40};
  constexpr int64_t kLeft = 6;  // the sequence that is aborted during generation, at some moment
  const auto lead = [&](const ModelShard& shard, comm::Communicator* members) {
    const Decoder decoder(shard, options.kv_blocks, options.max_num_seqs);
    Generator generator(decoder, options);
    Followers followers(members);
    base::Rng rng(6);
    std::map<int64_t, std::vector<int64_t>> said;  // by text
    std::vector<int64_t> open;
    const auto drop = [&](int64_t text) {
      said[text] = generator.output(text).tokens;
      generator.abort(text);
      followers.abort(text);
      std::erase(open, text);
    };
    for (uint64_t number = 0; number < 40 || !open.empty(); ++number) {
      if (number < 40 && number % 3 == 0) {
        const inference::Request request{random_tokens(rng, rng.between(1, 60)), rng.between(1, 40)};
        const SamplingParams sampling_params{
            .sampling = {.temperature = 0.9, .top_p = 0.9, .seed = 2},
            .number = number,
            .end_tokens = {7},
            .alternatives = 1,
            .stop_condition = [](const Output& so_far) { return so_far.tokens.size() == 9; }};
        open.push_back(generator.add(request, sampling_params));
        followers.add(request, sampling_params);
      }
      if (number == 20) drop(kLeft);
      if (number == 21) followers.wait();
      followers.engine_step();
      generator.step();
      for (const int64_t text : std::vector(open)) {
        if (generator.finished(text)) drop(text);
      }
    }
    followers.end();
    EXPECT_EQ(generator.scheduler().free_kv_blocks(), options.kv_blocks);
    said.erase(kLeft);
    return said;
  };
  const auto alone = lead(model.whole(), nullptr);
  ASSERT_EQ(alone.size(), 13);
  for (const bool stages : {false, true}) {
    SCOPED_TRACE(stages ? "two stages" : "two TP ranks");
    comm::FakeWorld world(2);
    std::map<int64_t, std::vector<int64_t>> said;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto transport = world.transport(rank);
        const auto all = transport->communicator("all", {0, 1}), own = transport->communicator("own", {0, 1});
        const ModelShard part = stages ? model.part(1, 0, nullptr, {own.get(), {0, 1}, rank})
                                       : model.part(2, rank, own.get(), {});
        if (rank == 0) {
          said = lead(part, all.get());
          return;
        }
        const Decoder decoder(part, options.kv_blocks, options.max_num_seqs);
        Generator generator(decoder, options);
        follow(*all, generator);
        EXPECT_EQ(generator.scheduler().free_kv_blocks(), options.kv_blocks);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(said, alone);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Families,
    testing::Values(
        Family{"Llama", [](model::Outline&) {}},
        Family{"NormedHeadsAndBiases",
               [](model::Outline& s) {
                 s.qk_norm = model::QkNorm::kEachHead;
                 s.qkv_bias = true;
                 s.tie_embeddings = true;
               }},
        Family{"Window", [](model::Outline& s) { s.window = 7; }},
        Family{"LatentAttention",
               [](model::Outline& s) {
                 s.latent = {.q_rank = 9, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
                 s.kv_heads = s.heads;
                 s.head_dim = 8;
                 s.rotated = 2;
               }},
        Family{"WindowsThatAlternateWithSinksAndCaps",
               [](model::Outline& s) {
                 s.window = 20;
                 s.block_types = {{.windowed = true}, {}, {.windowed = true}};
                 s.sinks = s.out_bias = true;
                 s.score_cap = 2.0;
                 s.logit_cap = 5.0;
               }},
        Family{"NormsAround",
               [](model::Outline& s) {
                 s.norm_place = model::NormPlace::kAround;
                 s.norm_offset = 1.0;
                 s.activation = model::Activation::kGeluTanh;
               }},
        Family{"Experts",
               [](model::Outline& s) {
                 s.experts = {.count = 6, .per_token = 2, .hidden = 9, .normalised = true};
                 s.block_types = {{}, {.experts = true}, {.experts = true}};
               }},
        Family{"Recurrent",
               [](model::Outline& s) {
                 s.recurrent = {
                     .key_heads = 2, .value_heads = 4, .key_width = 5, .value_width = 3, .convolution = 4};
                 s.block_types = {{.recurrent = true}, {}, {.recurrent = true}};
               }},
        Family{"Mamba2",
               [](model::Outline& s) {
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
               [](model::Outline& s) {
                 s.recurrent = {.key_heads = 3,
                                .value_heads = 3,
                                .key_width = 4,
                                .value_width = 6,
                                .convolution = 2,
                                .rate_scale = 2.0};
                 s.block_types = {{.recurrent = true}, {.recurrent = true}, {.recurrent = true}};
               }},
        Family{"Gla",
               [](model::Outline& s) {
                 s.recurrent = {.recurrence = model::Recurrence::kGla,
                                .key_heads = 2,
                                .value_heads = 2,
                                .key_width = 4,
                                .value_width = 6,
                                .convolution = 1,
                                .decay_rank = 3};
                 s.block_types = {{.recurrent = true}, {.recurrent = true}, {.recurrent = true}};
               }},
        Family{"Lfm2", [](model::Outline& s) { s = model::lfm2_outline(s); }},
        Family{"Cohere2", [](model::Outline& s) { s = model::cohere2_outline(s); }},
        Family{"Ministral3", [](model::Outline& s) { s = model::ministral3_outline(s); }},
        Family{"FalconH1", [](model::Outline& s) { s = model::falcon_h1_outline(s); }},
        Family{"WindowsOfTwoWidths", [](model::Outline& s) { s = model::two_windows_outline(s); }},
        Family{"Gemma4", [](model::Outline& s) { s = model::gemma4_outline(s); }},
        Family{"Gemma4E", [](model::Outline& s) { s = model::gemma4_e_outline(s); }},
        Family{"Phimoe", [](model::Outline& s) { s = model::phimoe_outline(s); }},
        Family{"KimiLinear", [](model::Outline& s) { s = model::kimi_linear_outline(s); }},
        Family{"Nanochat", [](model::Outline& s) { s = model::nanochat_outline(s); }},
        Family{"WithoutAnMlp",
               [](model::Outline& s) {
                 s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                                .key_heads = 1,
                                .value_heads = 4,
                                .key_width = 5,
                                .value_width = 3,
                                .convolution = 4,
                                .convolution_bias = true};
                 s.ffn_hidden = 0;
                 s.block_types = {{.recurrent = true}, {.recurrent = true}, {.recurrent = true}};
               }}),
    [](const auto& info) { return info.param.name; });

Output all_said(const Decoder& decoder, const SamplingParams& sampling_params) {
  Generator generator(decoder, {.kv_blocks = 10});
  generator.add({{5, 6, 7}, 30}, sampling_params);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.scheduler().free_kv_blocks(), 10);
  return generator.output(0);
}

TEST(Generator, EndsWhereAnEndTokenComesOrItIsToldTo) {
  const Model model(small_shape());
  const Decoder decoder(model.whole(), 10, 64);
  const Output free = all_said(decoder, {});
  EXPECT_FALSE(free.finish_reason);
  ASSERT_EQ(free.tokens.size(), 30U);
  const Output ended = all_said(decoder, {.end_tokens = {free.tokens[4]}});
  EXPECT_TRUE(ended.finish_reason);
  EXPECT_LE(ended.tokens.size(), 4U);
  const Output told =
      all_said(decoder, {.stop_condition = [](const Output& output) { return output.tokens.size() == 3; }});
  EXPECT_TRUE(told.finish_reason);
  EXPECT_EQ(told.tokens, std::vector(free.tokens.begin(), free.tokens.begin() + 3));
}

TEST(Generator, ATextThatIsDroppedGivesItsPagesBackAndLeavesTheOthersAlone) {
  const Model model(small_shape());
  const Decoder decoder(model.whole(), 10, 64);
  const Output alone = all_said(decoder, {});
  Generator generator(decoder, {.kv_blocks = 10});
  const int64_t dropped = generator.add({{1, 2, 3, 4}, 90}, {});
  const int64_t kept = generator.add({{5, 6, 7}, 30}, {});
  for (int i = 0; i < 5; ++i) generator.step();
  generator.abort(dropped);
  const int64_t waiting = generator.add({{9}, 5}, {});
  generator.abort(waiting);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.output(kept).tokens, alone.tokens);
  EXPECT_EQ(generator.scheduler().free_kv_blocks(), 10);
}

}  // namespace
}  // namespace sluice::generate
