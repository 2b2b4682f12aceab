#include "config/run_config.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "config/config_file.h"
#include "model/outline.h"

namespace sluice::config {
namespace {

constexpr const char* kSmall = R"(
[model]
layers = 4
hidden = 128
heads = 4
kv_heads = 2
ffn_hidden = 336
vocab = 2048
[data]
train = [["corpora/stdlib/corpus", 1.0]]
)";

std::string fault(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(toml, "run.toml", overrides);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RunConfig, DefaultsAndGivenValues) {
  const RunConfig config = parse_config(kSmall, "run.toml");
  EXPECT_EQ(config.model.given->head_dim(), 32);
  EXPECT_EQ(config.data.train.at(0).first, "corpora/stdlib/corpus");
  EXPECT_EQ(config.data.context_length, 2048);
  EXPECT_EQ(config.optimizer.decay, Decay::kCosine);
  EXPECT_TRUE(config.parallel.strategies.empty());
}

TEST(RunConfig, PrintsWhatItParses) {
  const RunConfig config = parse_config(kSmall, "run.toml",
                                        {"parallel.strategies=[\"<2,1,1> + 2x<1,1,1>\"]", "parallel.select=1",
                                         "memory.offload=0.5", "log.trace_steps=[1,3]"});
  const std::string printed = to_toml(config);
  EXPECT_EQ(to_toml(parse_config(printed, "printed")), printed);
  EXPECT_EQ(parse_config(printed, "printed").parallel.select, (Select{strategy::Selection::kFixed, 1}));
}

TEST(RunConfig, RecomputeIsAWordOrAShare) {
  const auto recompute = [](const std::string& value) {
    return parse_config(kSmall, "run.toml", {"memory.recompute=" + value}).memory.recompute;
  };
  EXPECT_EQ(recompute("auto"), std::nullopt);
  EXPECT_EQ(recompute("none"), 0.0);
  EXPECT_EQ(recompute("full"), 1.0);
  EXPECT_EQ(recompute("0.25"), 0.25);
  EXPECT_EQ(recompute("1"), 1.0);
  for (const char* value : {"auto", "none", "full", "0.25"}) {
    const std::string printed =
        to_toml(parse_config(kSmall, "run.toml", {std::string("memory.recompute=") + value}));
    EXPECT_EQ(to_toml(parse_config(printed, "printed")), printed) << value;
  }
  for (const char* value : {"some", "1.5", "-0.1", "true"}) {
    EXPECT_NE(fault(kSmall, {std::string("memory.recompute=") + value}).find("give auto, none, full or "),
              std::string::npos)
        << fault(kSmall, {std::string("memory.recompute=") + value});
  }
}

TEST(RunConfig, NarrowMastersAreRefusedWhereTheyCannotBe) {
  EXPECT_EQ(parse_config(kSmall, "run.toml").train.master_dtype, MasterType::kWide);
  const std::vector<std::string> narrow{"train.master_dtype=bfloat16"};
  EXPECT_EQ(parse_config(kSmall, "run.toml", narrow).train.master_dtype, MasterType::kBFloat16);
  EXPECT_NE(
      fault(kSmall, {"train.master_dtype=bfloat16", "train.dtype=float64"}).find("master_dtype is bfloat16"),
      std::string::npos);
  RunConfig config =
      parse_config(kSmall, "run.toml", {"train.master_dtype=bfloat16", "link.pull=int8-difference"});
  EXPECT_THROW(wire_codecs(config), base::InputError);
}

TEST(RunConfig, CorporaAreOneAListOrPairs) {
  using Pairs = std::vector<std::pair<std::string, double>>;
  const auto train = [](const std::string& value) {
    return parse_config(kSmall, "run.toml", {"data.train=" + value}).data.train;
  };
  EXPECT_EQ(train("'a folder'"), (Pairs{{"a folder", 1}}));
  EXPECT_EQ(train("['a', 's3://b/c']"), (Pairs{{"a", 1}, {"s3://b/c", 1}}));
  EXPECT_EQ(train("['a', ['b', 3]]"), (Pairs{{"a", 1}, {"b", 3}}));
  EXPECT_NE(fault(kSmall, {"data.train=7"}).find("data.train is 7: give a corpus, a list of them"),
            std::string::npos);
  EXPECT_NE(fault(kSmall, {"data.train=[['a']]"}).find("[corpus, weight] pairs"), std::string::npos);
}

// Answers name the key of another section, or the key that another trainer calls so.
TEST(RunConfig, UnknownKeysAreAnsweredFromAllSections) {
  for (const auto& [key, answer] : {std::pair("train.lr", "optimizer.lr"),
                                    {"train.learning_rate", "optimizer.lr"},
                                    {"data.seq_length", "data.context_length"},
                                    {"train.num_train_epochs", "train.epochs"},
                                    {"train.Max-Steps", "train.steps"},
                                    {"optimizer.clip_grad", "optimizer.clip"},
                                    {"train.keep", "checkpoint.keep"},
                                    {"data.context_lenght", "context_length"}}) {
    const std::string message = fault(kSmall, {std::string(key) + "=1"});
    EXPECT_NE(message.find(std::string("did you mean '") + answer + "'?"), std::string::npos)
        << key << ": " << message;
  }
}

TEST(RunConfig, ExchangesHaveTheNamesOfMegatron) {
  const auto exchange = [](const std::string& name) {
    return parse_config(kSmall, "run.toml", {"parallel.exchange='" + name + "'"}).parallel.exchange;
  };
  EXPECT_EQ(exchange("p2p"), strategy::ExchangeRule::kRing);
  EXPECT_EQ(exchange("a2a"), strategy::ExchangeRule::kHeads);
  EXPECT_EQ(exchange("a2a+p2p"), strategy::ExchangeRule::kNested);
}

TEST(RunConfig, AModelGivenOnTheCommandLineReplacesTheFiles) {
  const RunConfig config = parse_config(kSmall, "run.toml", {"model.hf=some/folder"});
  EXPECT_EQ(config.model.hf, "some/folder");
  EXPECT_FALSE(config.model.given);
  EXPECT_NE(fault(std::string(kSmall) + "[model2]\n").find("unknown section"), std::string::npos);
}

const std::string kPhases = std::string(kSmall) + R"(tokens_per_step = 4096
[[phase]]
step = 10
context_length = 8192
[[phase]]
step = 20
tokens_per_step = 65536
[[phase]]
step = 30
train = [["other", 2.0]]
seed = 7
)";

TEST(RunConfig, PhasesKeepWhatTheyDoNotChange) {
  const RunConfig config = parse_config(kPhases, "run.toml");
  ASSERT_EQ(config.phases.size(), 3);
  EXPECT_EQ(config.phases[0].step, 10);
  EXPECT_EQ(config.phases[0].data.context_length, 8192);
  EXPECT_EQ(config.phases[0].data.tokens_per_step, 4096);
  EXPECT_EQ(config.phases[0].data.seed, 2);  // not the order that just came
  EXPECT_EQ(config.phases[1].data.seed, 2);  // goes on
  EXPECT_TRUE(goes_on(config.phases[0].data, config.phases[1].data));
  EXPECT_EQ(config.phases[2].data.train.at(0).first, "other");
  EXPECT_EQ(config.phases[2].data.seed, 7);
  EXPECT_EQ(longest_context(config), 8192);
  const std::string printed = to_toml(config);
  EXPECT_EQ(to_toml(parse_config(printed, "printed")), printed);
}

TEST(RunConfig, PhasesOutOfOrderOrOfOtherKeysAreRefused) {
  EXPECT_NE(fault(kPhases + "[[phase]]\nstep = 30\n").find("phase.step is 30: give a whole number from 31"),
            std::string::npos)
      << fault(kPhases + "[[phase]]\nstep = 30\n");
  EXPECT_NE(fault(kPhases + "[[phase]]\nseed = 3\n").find("phase.step is missing"), std::string::npos);
  EXPECT_NE(fault(kPhases + "[[phase]]\nstep = 40\nlr = 3\n").find("unknown key 'phase.lr'"),
            std::string::npos);
  EXPECT_NE(fault(std::string(kSmall) + "[phase]\nstep = 40\n").find("two brackets"), std::string::npos);
}

TEST(RunConfig, ValidationSetsHaveNames) {
  const RunConfig config =
      parse_config(kSmall, "run.toml", {R"(data.validation={wiki=["a","b"],code="c"})", "model.seed=9"});
  ASSERT_EQ(config.data.validation.size(), 2);
  EXPECT_EQ(config.data.validation[0].name, "code");
  EXPECT_EQ(config.data.validation[1].prefixes.at(1), "b");
  EXPECT_EQ(config.model.seed, 9);
  const std::string printed = to_toml(config);
  EXPECT_EQ(to_toml(parse_config(printed, "printed")), printed);
  const RunConfig unnamed = parse_config(kSmall, "run.toml", {R"(data.validation="c")"});
  EXPECT_EQ(unnamed.data.validation.at(0).name, "");
  EXPECT_NE(fault(kSmall, {"data.validation={wiki=[]}"}).find("corpora for each name"), std::string::npos);
}

TEST(RunConfig, SaysWhatIsTrainedAndHow) {
  const std::string tuned = std::string("[train]\nfreeze = \"model.embed_tokens\"\n") +
                            "[[optimizer.groups]]\nparameters = [\"*.bias\", \"*norm*\"]\nlr = 1e-3\n"
                            "[[optimizer.groups]]\nparameters = \"lm_head\"\nlr = 0\nweight_decay = 0.5\n"
                            "[lora]\nrank = 4\nalpha = 8.0\ntargets = [\"q_proj\"]\n";
  const RunConfig config = parse_config(tuned + kSmall, "run.toml");
  EXPECT_EQ(config.train.freeze, std::vector<std::string>{"model.embed_tokens"});
  ASSERT_EQ(config.optimizer.groups.size(), 2U);
  EXPECT_EQ(config.optimizer.groups[0], (GroupConfig{{"*.bias", "*norm*"}, 1e-3, std::nullopt}));
  EXPECT_EQ(config.optimizer.groups[1], (GroupConfig{{"lm_head"}, 0.0, 0.5}));
  EXPECT_EQ(config.lora.rank, 4);
  const RunConfig patterns = parse_config(tuned + kSmall, "run.toml",
                                          {"lora.targets=[\"q_proj\",\"v_proj\",\"o_proj\"]",
                                           "lora.rank_pattern={v_proj=2}", "lora.alpha_pattern={o_proj=6}"});
  EXPECT_EQ(patterns.lora.targets, (std::vector<std::string>{"q_proj", "v_proj:2:8.0", "o_proj:4:6.0"}));
  EXPECT_EQ(to_toml(parse_config(to_toml(patterns), "printed")), to_toml(patterns));
  const RunConfig stabilised = parse_config(
      tuned + kSmall, "run.toml", {"lora.targets=[\"q_proj\",\"v_proj:9:2\"]", "lora.use_rslora=true"});
  EXPECT_EQ(stabilised.lora.alpha, 16.0);
  EXPECT_EQ(stabilised.lora.targets, (std::vector<std::string>{"q_proj", "v_proj:9:6.0"}));
  EXPECT_EQ(to_toml(parse_config(to_toml(stabilised), "printed")), to_toml(stabilised));
  EXPECT_NE(fault(tuned + kSmall, {"lora.rank_pattern={k_proj=2}"})
                .find("lora.rank_pattern names 'k_proj', which lora.targets does not: it has q_proj"),
            std::string::npos);
  EXPECT_NE(fault(tuned + kSmall, {"lora.rank_pattern={q_proj=0}"}).find("lora.rank_pattern.q_proj is 0"),
            std::string::npos);
  EXPECT_NE(fault(tuned + kSmall, {"lora.alpha_pattern=3"}).find("a table of numbers"), std::string::npos);
  const std::string printed = to_toml(config);
  EXPECT_EQ(to_toml(parse_config(printed, "printed")), printed);
  EXPECT_EQ(parse_config(printed, "printed").optimizer.groups, config.optimizer.groups);
  const auto with = [](const std::string& lines) { return fault(lines + kSmall); };
  EXPECT_EQ(with("[optimizer]\ngroups = 3"),
            "[config] run.toml:2: optimizer.groups is 3: give tables, written [[optimizer.groups]]");
  EXPECT_EQ(with("[[optimizer.groups]]\nlr = 1"),
            "[config] run.toml: optimizer.groups.parameters is missing: give patterns of names, as "
            "\"model.embed_tokens.*\"");
  EXPECT_EQ(with("[[optimizer.groups]]\nparameters = \"x\""),
            "[config] run.toml: optimizer.groups.lr is missing: give the group's learning rate");
}

// Other adapters stand in the trained one's place, so there has to be one, and evaluations that try them.
TEST(Config, EvaluationsMayTryOtherAdapters) {
  const auto refusal = [](const std::vector<std::string>& changes) -> std::string {
    std::vector<std::string> all{"lora.rank=2", "train.eval_every=1",
                                 "train.eval_adapters=[\"é=b\",\"c=d\"]"};
    all.insert(all.end(), changes.begin(), changes.end());
    try {
      RunConfig config = parse_config(std::string(kSmall), "run.toml", all);
      resolve_model(config);
      EXPECT_EQ(config.train.eval_adapters.size(), 2U);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}), "");
  for (const auto& [change, told] :
       {std::pair("lora.rank=0", "but lora.rank is 0: set it"),
        {"train.eval_every=0", "but train.eval_every is 0, so nothing is evaluated"},
        {"lora.dora=true", "but lora.dora is true: leave the folders out"},
        {"train.eval_adapters=[\"b\"]", "has 'b': give NAME=FOLDER"},
        {"train.eval_adapters=[\"a=\"]", "has 'a=': give NAME=FOLDER"},
        {"train.eval_adapters=[\"a=b\",\"a=c\"]", "names 'a' twice"}})
    EXPECT_NE(refusal({change}).find(told), std::string::npos) << change << ": " << refusal({change});
}

TEST(RunConfig, ResolvedModelsKnowWhatIsTrained) {
  RunConfig config = parse_config(kSmall, "run.toml", {"train.freeze=['model.embed_tokens']"});
  resolve_model(config);
  EXPECT_NE(config.model.resolved->outline().frozen_embedding, 0U);
  resolve_model(config);  // again, to the same
  EXPECT_NE(config.model.resolved->outline().frozen_embedding, 0U);
  config.optimizer.groups = {{{"model.lyers.0"}, 1e-3, std::nullopt}};
  try {
    resolve_model(config);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("optimizer.groups names 'model.lyers.0', which no parameter"));
  }
}

TEST(RunConfig, OverridesTakeTomlValuesAndBareWords) {
  const RunConfig config =
      parse_config(kSmall, "run.toml", {"train.steps=7", "train.dtype=float64", "log.dir=runs/x"});
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.dtype, ComputeType::kFloat64);
  EXPECT_EQ(config.log.dir, "runs/x");
}

TEST(RunConfig, GradientsTravelAsOneWordOrTwoSay) {
  using strategy::Codec;
  const auto codecs = [](std::vector<std::string> overrides) {
    return wire_codecs(parse_config(kSmall, "run.toml", overrides)).push;
  };
  EXPECT_EQ(codecs({}), (strategy::LevelCodecs{Codec::kNone, Codec::kNone}));
  EXPECT_EQ(codecs({"train.dtype=bfloat16"}), (strategy::LevelCodecs{Codec::kBFloat16, Codec::kBFloat16}));
  EXPECT_EQ(codecs({"train.dtype=bfloat16", "link.push=float32"}),
            (strategy::LevelCodecs{Codec::kNone, Codec::kNone}));
  EXPECT_EQ(codecs({"link.push=int4"}), (strategy::LevelCodecs{Codec::kInt4, Codec::kInt4}));
  EXPECT_EQ(codecs({"link.push=['int8', 'int4']"}), (strategy::LevelCodecs{Codec::kInt8, Codec::kInt4}));
  const auto sums = [](std::vector<std::string> overrides) {
    return wire_codecs(parse_config(kSmall, "run.toml", overrides)).sums;
  };
  EXPECT_EQ(sums({"train.dtype=bfloat16"}), (strategy::LevelCodecs{Codec::kNone, Codec::kNone}));
  EXPECT_EQ(sums({"train.reduce_dtype=bfloat16"}),
            (strategy::LevelCodecs{Codec::kBFloat16, Codec::kBFloat16}));
  EXPECT_EQ(sums({"train.reduce_dtype=bfloat16", "link.push=['auto', 'int4']"}),
            (strategy::LevelCodecs{Codec::kBFloat16, Codec::kInt4}));
  for (const char* bad :
       {"link.push=int3", "link.push=['int8', 'int4', 'int4']", "link.push=[]", "link.push=4"})
    EXPECT_NE(fault(kSmall, {bad}).find("link.push is"), std::string::npos) << fault(kSmall, {bad});
}

TEST(RunConfig, ParametersTravelAsTheirLevelsCan) {
  const auto codecs = [](std::vector<std::string> overrides) {
    return wire_codecs(parse_config(kSmall, "run.toml", overrides));
  };
  EXPECT_EQ(codecs({"link.pull=int4-difference"}).pull, strategy::PullCodec::kInt4Difference);
  EXPECT_EQ(codecs({"link.gather=int8"}).gather, strategy::Codec::kInt8);
  EXPECT_EQ(codecs({"link.pull=float32", "link.gather=float32", "train.dtype=float32"}),
            strategy::WireCodecs());
  for (const std::string key : {"pull", "gather"}) {
    for (const std::string dtype : {"bfloat16", "float64"}) {
      try {
        codecs({"link." + key + "=float32", "train.dtype=" + dtype});
        ADD_FAILURE() << key << " as float32 is no word for " << dtype;
      } catch (const base::InputError& error) {
        EXPECT_NE(std::string(error.what()).find("link." + key + " is float32"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find(dtype), std::string::npos);
      }
    }
  }
  EXPECT_NE(fault(kSmall, {"link.pull=int4"}).find("int4-difference"), std::string::npos);
  EXPECT_NE(fault(kSmall, {"link.gather=int4-difference"}).find("link.gather is"), std::string::npos);
}

TEST(RunConfig, UnknownKeyNamesTheNearest) {
  const std::string message = fault(kSmall, {"data.context_lenght=64"});
  EXPECT_NE(message.find("unknown key 'data.context_lenght'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'context_length'"), std::string::npos) << message;
  EXPECT_NE(fault(kSmall, {"modle.layers=3"}).find("did you mean 'model'"), std::string::npos);
}

TEST(RunConfig, RefusesWhatIsOutOfRange) {
  EXPECT_NE(fault(kSmall, {"data.context_length=1"}).find("data.context_length is 1"), std::string::npos);
  EXPECT_NE(fault(kSmall, {"train.dtype=int8"}).find("float32, bfloat16, float64"), std::string::npos);
  EXPECT_NE(fault(kSmall, {"train.steps=many"})
                .find("--set: train.steps is \"many\": give a whole number from 1 to"),
            std::string::npos);
  EXPECT_NE(fault("[model]\nhf = 'somewhere'\nlayers = 3\n").find("keep one"), std::string::npos);
  EXPECT_NE(fault("[model]\nlayers = = 3").find("run.toml:2"), std::string::npos);
  EXPECT_NE(fault("").find("model.layers is missing"), std::string::npos);
}

TEST(RunConfig, FaultsNamePlaceValueAndWayOut) {
  const auto with = [](const std::string& lines) { return fault(lines + kSmall); };
  EXPECT_EQ(with("[train]\nsteps = \"x\""),
            "[config] run.toml:2: train.steps is \"x\": give a whole number from 1 to 1099511627776");
  EXPECT_EQ(
      fault(kSmall, {"elastic.snapshot_every=9223372036854775807"}),
      "[config] --set: elastic.snapshot_every is 9223372036854775807: give auto or a whole number from 1 to "
      "1099511627776");
  EXPECT_EQ(
      with("[log]\ntrace_steps = [2199023255552]"),
      "[config] run.toml:2: log.trace_steps is [2199023255552]: give a list of steps, each a whole number "
      "from 0 to 1099511627776");
  EXPECT_EQ(with("[log]\ntensorboard = 1"), "[config] run.toml:2: log.tensorboard is 1: give true or false");
  EXPECT_EQ(with("[optimizer]\nlr = nan"),
            "[config] run.toml:2: optimizer.lr is nan: give a number from 0 to 1000");
  EXPECT_EQ(fault(kSmall, {"model.layers=10000000"}),
            "[config] --set: model.layers is 10000000: give a whole number from 1 to 4096");
  EXPECT_NE(
      fault(kSmall, {"model.hidden=1048576", "model.heads=1", "model.kv_heads=1", "model.ffn_hidden=16777216",
                     "model.layers=4096"})
          .find("[config] run.toml: model: head_dim (hidden 1048576 / heads 1) is 1048576: give a whole"),
      std::string::npos);
}

TEST(RunConfig, DeepKeysAreRefused) {
  std::string header = "[a";
  for (int i = 0; i < 50'000; ++i) header += ".a";
  EXPECT_NE(fault(header + "]").find("[config] run.toml:1: a key has more than 16 parts"), std::string::npos);
  EXPECT_NE(fault(kSmall, {"model." + header.substr(1) + "=1"}).find("unknown key"), std::string::npos);
  EXPECT_NE(fault(kSmall, {"train.steps=1\nx = 2"}).find("more than one line"), std::string::npos);
}

}  // namespace
}  // namespace sluice::config
