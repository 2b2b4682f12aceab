#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "model/hugging_face.h"
#include "model/lora_targets.h"
#include "model/parameter_count.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(Outline outline, const std::vector<std::string>& patterns) {
  try {
    freeze(outline, patterns);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> frozen_names(const Outline& outline) {
  std::vector<std::string> names;
  const ParameterTable table = parameter_table(outline);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      EXPECT_EQ(parameter.trained, bucket.trained);
      if (!bucket.trained) names.push_back(parameter.name);
    }
  }
  return names;
}

TEST(Freeze, TakesNamesOfParametersAndOfModules) {
  Outline outline = test_outline(2);
  freeze(outline, {"model.embed_tokens", "model.layers.0.*layernorm.weight", "model.layers.[1-9].mlp"});
  EXPECT_THAT(frozen_names(outline), ElementsAre("embedding", "layers.0.attention_norm", "layers.0.mlp_norm",
                                                 "layers.1.gate_up", "layers.1.down"));
  EXPECT_TRUE(is_tuned(outline));
  EXPECT_EQ(untuned(outline), test_outline(2));
}

TEST(Freeze, CutsAnOperationIntoABucketThatIsTrainedAndOneThatIsNot) {
  Outline outline = test_outline(2);
  freeze(outline, {"model.layers.1.mlp"});
  const ParameterTable whole = parameter_table(test_outline(2)), table = parameter_table(outline);
  ASSERT_EQ(table.buckets.size(), whole.buckets.size() + 1);
  EXPECT_EQ(table.size(), whole.size());
  EXPECT_EQ(table.size() - table.trained_size(), table.buckets[3].size);
  EXPECT_TRUE(table.buckets[2].trained);
  EXPECT_FALSE(table.buckets[3].trained);
  EXPECT_EQ(table.buckets[2].position, table.buckets[3].position);
  EXPECT_EQ(table.program.at(2).buckets, (std::vector<int>{2, 3}));
  // The place from which initial values are drawn does not depend on freezing.
  EXPECT_EQ(find_parameter(table.buckets[3], "down")->place, find_parameter(whole.layer(1), "down")->place);
}

TEST(Freeze, RefusesWhatItCannotDo) {
  const Outline outline = test_outline(2);
  EXPECT_THAT(
      refusal(outline, {"model.layer.0.mlp.down_proj.weight"}),
      HasSubstr("train.freeze names 'model.layer.0.mlp.down_proj.weight', which no parameter is called: "
                "did you mean 'model.layers.0.mlp.down_proj.weight'?"));
  EXPECT_THAT(refusal(outline, {"model.embed_tokns"}), HasSubstr("did you mean 'model.embed_tokens'?"));
  EXPECT_THAT(refusal(outline, {"lm_hed"}), HasSubstr("did you mean 'lm_head'?"));
  EXPECT_THAT(refusal(outline, {"transformer.h.*"}),
              HasSubstr("they are called model.embed_tokens.weight, "));
  EXPECT_THAT(refusal(outline, {"*.q_proj.weight"}),
              HasSubstr("names model.layers.0.self_attn.q_proj.weight but not "
                        "model.layers.0.self_attn.k_proj.weight, and they are computed as one matrix"));
  EXPECT_THAT(refusal(outline, {"*"}), HasSubstr("leaves nothing to train"));
}

TEST(Adapt, AddsFactorsAndFreezesTheRest) {
  Outline outline = test_outline(2);
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"v_proj", "down_proj"}});
  const ParameterTable table = parameter_table(outline);
  std::vector<std::string> trained, files;
  for (const Parameter& parameter : table.layer(0).parameters) {
    trained.push_back(base::text(parameter.name, " ", parameter.rows, "x", parameter.columns));
    files.push_back(parameter.tensors.front());
  }
  const std::string kv = base::text(outline.kv_width()), hidden = base::text(outline.hidden);
  const std::string ffn = base::text(outline.ffn_hidden);
  EXPECT_THAT(trained, ElementsAre("layers.0.qkv.left2 " + kv + "x2", "layers.0.qkv.right2 2x" + hidden,
                                   "layers.0.down.left0 " + ffn + "x2", "layers.0.down.right0 2x" + hidden));
  EXPECT_THAT(files, ElementsAre("self_attn.v_proj.lora_B.weight", "self_attn.v_proj.lora_A.weight",
                                 "mlp.down_proj.lora_A.weight", "mlp.down_proj.lora_B.weight"));
  const int64_t adapters = 2 * (outline.kv_width() + outline.ffn_hidden + 2 * outline.hidden);
  EXPECT_EQ(table.trained_size(), outline.layers * adapters);
  EXPECT_EQ(parameter_count(outline), parameter_count(test_outline(2)) + outline.layers * adapters);
  EXPECT_EQ(untuned(outline), test_outline(2));
  const TokenWork work = table.program.kind_at(1).work();
  EXPECT_EQ(work.trained, adapters);
  EXPECT_EQ(work.products - adapters, Program(test_outline(2)).kind_at(1).work().products);
}

// DoRA: a magnitude for each output, which TP cuts as outputs.
TEST(Adapt, MagnitudesHaveTheOutputsOfTheirMatrices) {
  Outline outline = test_outline(2);
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"v_proj", "down_proj"}, .dora = true});
  const ParameterTable table = parameter_table(outline);
  std::map<std::string, const Parameter*> by_file;
  for (const Parameter& parameter : table.layer(0).parameters)
    by_file[parameter.tensors.front()] = &parameter;
  ASSERT_EQ(by_file.size(), 6U);
  const Parameter& v = *by_file.at("self_attn.v_proj.lora_magnitude_vector");
  EXPECT_EQ(std::pair(v.rows, v.columns), std::pair(outline.kv_width(), int64_t{1}));
  EXPECT_EQ(v.name, "layers.0.qkv.magnitude2");
  EXPECT_EQ(v.groups, by_file.at("self_attn.v_proj.lora_B.weight")->groups);
  EXPECT_TRUE(v.one_dimensional() && v.trained && !v.is_published());
  const Parameter& down = *by_file.at("mlp.down_proj.lora_magnitude_vector");
  EXPECT_EQ(std::pair(down.rows, down.columns), std::pair(outline.hidden, int64_t{1}));
  EXPECT_TRUE(down.replicated);
  EXPECT_EQ(hugging_face_tensors(table.layer(0), down).front().shape, std::vector<int64_t>{outline.hidden});
  EXPECT_EQ(untuned(outline), test_outline(2));
  Outline read = test_outline(2);
  read_tuning(tuning_to_json(outline), "manifest", read);
  EXPECT_EQ(read, outline);
  // The product whose result the magnitudes' gradient needs.
  const int64_t matrices = outline.hidden * (outline.kv_width() + outline.ffn_hidden);
  const int64_t adapters = 2 * (outline.kv_width() + outline.ffn_hidden + 2 * outline.hidden);
  EXPECT_EQ(table.program.kind_at(1).work().trained, matrices + adapters);
  freeze(outline, {"*.v_proj.lora_magnitude_vector"});
  EXPECT_EQ(Program(outline).kind_at(1).work().trained, outline.hidden * outline.ffn_hidden + adapters);
}

TEST(Adapt, KnowsAllLinearModulesAndRefusesOthers) {
  Outline outline = test_outline(2);
  adapt(outline, {.rank = 1, .alpha = 1, .targets = {"all-linear"}});
  EXPECT_THAT(outline.lora.targets,
              ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"));
  Outline other = test_outline(2);
  EXPECT_THROW(adapt(other, {.rank = 1, .alpha = 1, .targets = {"q_prj"}}), base::InputError);
}

// transformers' classes stack experts in one parameter, which PEFT's all-linear doesn't name either.
TEST(Adapt, TargetsMayHaveARankAndAnAlphaOfTheirOwn) {
  Outline outline = test_outline(2);
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"all-linear", "v_proj:3:1.5", "o_proj"}});
  std::map<std::string, std::pair<int64_t, double>> by_module;
  const ParameterTable table = parameter_table(outline);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      if (parameter.factor != Factor::kLeft) continue;
      const std::string path = parameter.tensors.front().substr(0, parameter.tensors.front().find(".lora_"));
      by_module[path.substr(path.rfind('.') + 1)] = {parameter.columns,
                                                     adapter_factor(outline.lora, parameter)};
    }
  }
  EXPECT_EQ(by_module.at("v_proj"), (std::pair<int64_t, double>{3, 0.5}));
  EXPECT_EQ(by_module.at("o_proj"), (std::pair<int64_t, double>{2, 2.0}));
  EXPECT_EQ(by_module.at("q_proj"), (std::pair<int64_t, double>{2, 2.0}));
  EXPECT_EQ(std::ranges::count(outline.lora.targets, "v_proj"), 0);
  Outline read = test_outline(2);
  read_tuning(tuning_to_json(outline), "manifest", read);
  EXPECT_EQ(read, outline);
  const auto fault = [](std::vector<std::string> targets) {
    Outline other = test_outline(2);
    try {
      adapt(other, {.rank = 2, .alpha = 4, .targets = std::move(targets)});
    } catch (const base::InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* entry :
       {"q_proj:", "q_proj:3", "q_proj:0:2", "q_proj:3:-1", "q_proj:3:x", ":3:4", "q_proj:3:4:5"})
    EXPECT_NE(fault({entry}).find(base::text("lora.targets has '", entry, "'")), std::string::npos) << entry;
  EXPECT_NE(fault({"q_proj", "q_proj:3:4"}).find("names 'q_proj' twice"), std::string::npos);
  EXPECT_NE(fault({"q_prj:3:4"}).find("names 'q_prj'"), std::string::npos);
  EXPECT_NE(fault({"q_proj:9999:4"}).find("above the rank"), std::string::npos);
}

TEST(Adapt, AllLinearLeavesExpertsAsTheyAre) {
  Outline outline = test_outline(2);
  outline.experts = {.count = 4, .per_token = 2, .hidden = 16};
  outline.block_types = {{}, {.experts = true}};
  const int64_t before = parameter_count(outline);
  Outline adapted = outline;
  adapt(adapted, {.rank = 2, .alpha = 4, .targets = {"all-linear"}});
  EXPECT_GT(parameter_count(adapted), before);
  const ParameterTable table = parameter_table(adapted);
  for (const Parameter& parameter : table.layer(1).parameters)
    EXPECT_TRUE(parameter.factor == Factor::kNone || !parameter.role.starts_with("experts"))
        << parameter.name;
  outline.block_types.clear();
  try {
    adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj", "up_proj"}});
    ADD_FAILURE() << "adapters of experts";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("'up_proj', which are matrices of experts: name the parameters that stack them, "
                          "mlp.experts.gate_up_proj, mlp.experts.down_proj"));
  }
}

Outline experts_beside_an_mlp() {
  Outline outline = test_outline(2);
  outline.experts = {.count = 4, .per_token = 2, .hidden = 6};
  outline.block_types = {{}, {.experts = true}};
  return outline;
}

// Each expert has its own factors, which are held with the expert.
TEST(Adapt, ExpertsAreNamedByTheParametersThatStackThem) {
  Outline outline = experts_beside_an_mlp();
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"experts.gate_up_proj", "mlp.experts.down_proj"}});
  const ParameterTable table = parameter_table(outline);
  const Bucket& bucket = table.layer(1);
  EXPECT_TRUE(bucket.trained && bucket.of_experts);
  std::map<std::string, HuggingFaceTensor> files;
  for (const Parameter& parameter : bucket.parameters) {
    EXPECT_EQ(parameter.experts, 4) << parameter.name;
    const auto tensors = hugging_face_tensors(bucket, parameter);
    ASSERT_EQ(tensors.size(), 1U);
    files[tensors.front().name] = tensors.front();
  }
  const std::string experts = "model.layers.1.mlp.experts.";
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files.at(experts + "gate_up_proj.lora_A.weight").shape,
            (std::vector<int64_t>{8, outline.hidden}));
  EXPECT_EQ(files.at(experts + "gate_up_proj.lora_B.weight").shape, (std::vector<int64_t>{12, 8}));
  EXPECT_EQ(files.at(experts + "down_proj.lora_A.weight").shape, (std::vector<int64_t>{8, 6}));
  EXPECT_EQ(files.at(experts + "down_proj.lora_B.weight").shape, (std::vector<int64_t>{outline.hidden, 8}));
}

// Order of elements in PEFT's files: a is [expert, rank, in], b is [out, rank, expert].
TEST(Adapt, FactorsOfExpertsStandInFilesAsPeftStacksThem) {
  Outline outline = experts_beside_an_mlp();
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"experts.gate_up_proj", "experts.down_proj"}});
  const ParameterTable table = parameter_table(outline);
  for (const Parameter& parameter : table.layer(1).parameters) {
    const HuggingFaceTensor tensor = hugging_face_tensors(table.layer(1), parameter).front();
    const bool a = parameter.start == Start::kAdapter, left = parameter.factor == Factor::kLeft;
    const int64_t height = parameter.rows / 4;  // one expert's rows
    for (int64_t row = 0; row < parameter.rows; ++row) {
      for (int64_t column = 0; column < parameter.columns; ++column) {
        const int64_t expert = row / height, within = row % height;
        const int64_t rank = left ? column : within, wide = left ? within : column;
        const int64_t width = left ? height : parameter.columns;
        const int64_t expected = a ? (expert * 2 + rank) * width + wide : (wide * 2 + rank) * 4 + expert;
        ASSERT_EQ(tensor.order.first_of(row) + column * tensor.order.column_stride, expected)
            << parameter.name << " " << row << " " << column;
      }
    }
  }
}

// The MLP's down_proj is not an expert's.
TEST(Adapt, ModulesOfOtherLayersAreNotExperts) {
  Outline outline = experts_beside_an_mlp();
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"down_proj"}});
  int64_t trained = 0;
  for (const Bucket& bucket : parameter_table(outline).buckets) {
    if (!bucket.trained) continue;
    ++trained;
    EXPECT_EQ(bucket.layer, 0);
  }
  EXPECT_EQ(trained, 1);
}

TEST(Adapt, RefusesARankAboveTheMatrix) {
  Outline outline = experts_beside_an_mlp();
  try {
    adapt(outline, {.rank = 7, .alpha = 4, .targets = {"experts.down_proj"}});
    ADD_FAILURE() << "a rank above the matrix";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lora.rank is 7, above the rank of mlp.experts.down_proj"));
    EXPECT_THAT(error.what(), HasSubstr("set it to at most 6"));
  }
}

TEST(Adapt, ExpertsHaveNoMagnitudes) {
  Outline outline = experts_beside_an_mlp();
  try {
    adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj", "experts.down_proj"}, .dora = true});
    ADD_FAILURE() << "magnitudes of experts";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("lora.targets names 'experts.down_proj', which stacks the matrices of "
                          "experts: leave the target out"));
  }
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj"}, .dora = true});
}

// A refusal names ways out and only a few names, for any number of experts.
TEST(Tuning, RefusalsNameSomething) {
  const auto message = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  Outline outline = test_outline(2);
  outline.experts = {.count = 64, .per_token = 2, .hidden = 16};
  outline.block_types.clear();
  const std::string frozen =
      message([&] { freeze(outline, {"model.layers.0.mlp.experts.3.gate_proj.weight"}); });
  EXPECT_THAT(frozen, HasSubstr("model.layers.0.mlp.experts.3.gate_proj.weight"));
  EXPECT_THAT(frozen, HasSubstr("tensors, as 'model.layers.0.mlp.experts' does"));
  EXPECT_LT(frozen.size(), 500);
  for (const std::vector<std::string>& targets : {std::vector<std::string>{"up_proj"}, {"y_proj"}, {}}) {
    const std::string refused = message([&] { adapt(outline, {.rank = 2, .alpha = 4, .targets = targets}); });
    EXPECT_THAT(refused, HasSubstr(targets == std::vector<std::string>{"up_proj"} ? "experts.gate_up_proj"
                                                                                  : "q_proj"));
    EXPECT_FALSE(refused.ends_with(" ")) << refused;
  }
}

TEST(Tuning, ReadsBackFromJson) {
  Outline outline = test_outline(2);
  EXPECT_TRUE(tuning_to_json(outline).is_null());
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj"}});
  freeze(outline, {"model.layers.0.self_attn.q_proj"});
  Outline read = test_outline(2);
  read_tuning(tuning_to_json(outline), "file", read);
  EXPECT_EQ(read, outline);
}

// gpt-oss' files name a stack of experts like the module that holds its adapters.
TEST(Tuning, AdaptersOfStacksAreStillTrainedWhenReadBack) {
  Outline plain = test_outline(2);
  plain.family = "gpt_oss";
  plain.experts = {.count = 4, .per_token = 2, .hidden = 6};
  Outline outline = plain;
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"experts.down_proj"}});
  read_tuning(tuning_to_json(outline), "file", plain);
  EXPECT_EQ(plain, outline);
}

TEST(Tuning, WhatIsRememberedIsInCheckpointsAlone) {
  Outline outline = test_outline(2);
  outline.experts = {.count = 4, .per_token = 2, .hidden = 8};
  const Outline plain = outline;
  remember_loads(outline);
  freeze(outline, {"*.embed_tokens"});
  EXPECT_EQ(untuned(outline), plain);
  Outline again = plain;
  read_tuning(tuning_to_json(outline), "test", again);
  EXPECT_EQ(again, outline);
  for (const Bucket& bucket : parameter_table(outline).buckets) {
    if (const Parameter* loads = find_parameter(bucket, "router_loads")) {
      EXPECT_TRUE(loads->trained);
      EXPECT_FALSE(loads->is_published());
    }
  }
}

TEST(ParameterGroupRuns, AreOfTheFirstGroupThatMatches) {
  Outline outline = test_outline(2);
  freeze(outline, {"model.embed_tokens"});
  const ParameterGroupRuns runs =
      parameter_group_runs(parameter_table(outline), {{"*.k_proj.weight"}, {"model.layers.0.self_attn"}});
  EXPECT_TRUE(runs[0].empty());
  std::vector<int> groups;
  for (const ParameterGroupRun& run : runs[1]) groups.push_back(run.group);
  EXPECT_THAT(groups,
              ElementsAre(-1, 1, 0, 1, 1, -1, -1, -1, -1));  // norm, q, k, v, out, norm, gate, up, down
  EXPECT_TRUE(runs[1].front().one_dimensional);
}

}  // namespace
}  // namespace sluice::model
