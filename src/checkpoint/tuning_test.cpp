// Checkpoints of models that are trained in part, and exports of their adapters.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/conversion.h"
#include "checkpoint/merge.h"
#include "checkpoint/peft_folder.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"
#include "model/coded_weight.h"
#include "model/lora_targets.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

model::Outline frozen(std::vector<std::string> patterns) {
  model::Outline outline = model::exported_outline();
  model::freeze(outline, patterns);
  return outline;
}
model::Outline adapted() {
  model::Outline outline = model::exported_outline();
  model::adapt(outline, {.rank = 2, .alpha = 3, .targets = {"k_proj", "o_proj", "up_proj"}});
  return outline;
}

// A value that depends on the parameter's name, not on its bucket.
float value_of(const model::Parameter& parameter, int64_t element, State state) {
  uint64_t name = static_cast<uint64_t>(state);
  for (const char c : parameter.name) name = name * 131 + static_cast<uint64_t>(c);
  return static_cast<float>(base::random_normal(7, name, static_cast<uint64_t>(element)));
}

// Adds the words of a coded parameter as files have them: in the upper bytes of numbers.
void add_words(const model::Parameter& parameter, State state, std::vector<float>& to) {
  const int64_t word_bytes = parameter.format.word_bytes;
  int64_t element = 0;
  for (const model::CodedGroup& group : model::coded_groups(parameter)) {
    std::vector<float> values;
    for (const int64_t end = element + group.rows * group.columns; element < end; ++element)
      values.push_back(value_of(parameter, element, state));
    std::vector<std::byte> blocks(static_cast<size_t>(group.blocks() * group.block_words * word_bytes));
    model::encode(parameter.format, group, {0, group.blocks()}, values.data(),
                  model::output_maxima(parameter.format, group, values.data()), blocks.data());
    for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(word_bytes)) {
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 4 - word_bytes, &blocks[at],
                  static_cast<size_t>(word_bytes));
      std::memcpy(&to.emplace_back(), &bits, sizeof bits);
    }
  }
}

std::vector<float> values_of(const model::Bucket& bucket, State state) {
  std::vector<float> values;
  for (const model::Parameter& parameter : bucket.parameters) {
    if (bucket.coded) {
      add_words(parameter, state, values);
      continue;
    }
    for (int64_t e = 0; e < parameter.size(); ++e) values.push_back(value_of(parameter, e, state));
  }
  return values;
}

constexpr int64_t kStep = 4;

fs::path save(const fs::path& root, const model::Outline& outline, int64_t step = kStep,
              const Retention& retention = {}) {
  const model::ParameterTable table = model::parameter_table(outline);
  std::vector<std::vector<float>> values;
  values.reserve(3 * table.buckets.size());
  std::vector<OwnerState> states;
  for (const model::Bucket& bucket : table.buckets) {
    const auto of = [&](State state) -> const void* {
      if (state != State::kMaster && !bucket.trained) return nullptr;
      return values.emplace_back(values_of(bucket, state)).data();
    };
    states.push_back({{0, bucket.size}, of(State::kMaster), of(State::kExpAvg), of(State::kExpAvgSq)});
  }
  const fs::path directory = prepare_save(root, step).path();
  Manifest manifest{.step = step, .model = outline};
  manifest.files = {write_rank_file(directory, 0, TensorType::kFloat32, states)};
  const FileRecord shared = shared_record(TensorType::kFloat32, states);
  if (!shared.name.empty()) {
    keep_shared(root, shared, TensorType::kFloat32, states, Trust::kByContent);
    manifest.shared = {shared};
  }
  commit_save(directory, manifest, retention);
  return directory;
}

TEST(TunedCheckpoint, HoldsNoMomentsOfWhatIsFrozen) {
  const TestDirectory root;
  const fs::path whole = save(root / "whole", model::exported_outline());
  const model::Outline outline = frozen({"model.embed_tokens", "*.mlp.*"});
  const fs::path part = save(root / "part", outline);
  const model::ParameterTable table = model::parameter_table(outline);
  const auto data_bytes = [](const fs::path& directory) {
    return SafetensorsFile(directory / "rank-0000.safetensors").data_bytes();
  };
  EXPECT_EQ(data_bytes(whole), 12 * table.size());
  EXPECT_EQ(data_bytes(part), 12 * table.trained_size());
  Checkpoint(part).verify();
  EXPECT_EQ(Checkpoint(part).manifest().model, outline);
}

// Numbers come back within half a step of NF4's, with equal bits whichever elements are read.
TEST(TunedCheckpoint, ExpandsACodedBaseWhereItIsReadAsNumbers) {
  for (const int64_t word_bytes : {4, 2}) {
    const TestDirectory root;
    model::Outline outline = adapted();
    model::quantize_base(outline, {base::WeightFormat::kNf4, word_bytes});
    Checkpoint checkpoint(save(root.path(), outline));
    checkpoint.verify();
    EXPECT_EQ(checkpoint.manifest().model, outline);
    checkpoint.require_model(outline, TensorType::kFloat32);
    const ParameterSource source = float_masters(checkpoint);
    int64_t expanded = 0;
    for (const model::Bucket& bucket : checkpoint.plain_table().buckets) {
      std::vector<float> whole(static_cast<size_t>(bucket.size)), part(static_cast<size_t>(bucket.size));
      source(bucket.index, {0, bucket.size}, whole.data());
      for (int64_t begin = 0; begin < bucket.size; begin += 37) {
        const base::Interval some{begin, std::min(bucket.size, begin + 37)};
        source(bucket.index, some, part.data() + begin);
      }
      EXPECT_EQ(part, whole);
      const std::vector<float> drawn = values_of(bucket, State::kMaster);
      for (size_t i = 0; i < drawn.size(); ++i) {
        EXPECT_NEAR(whole[i], drawn[i], 0.7);
        expanded += whole[i] != drawn[i] ? 1 : 0;
      }
    }
    EXPECT_GT(expanded, 0);
    outline.base.word_bytes = 8;
    EXPECT_THAT(
        message_of<base::InputError>([&] { checkpoint.require_model(outline, TensorType::kFloat32); }),
        HasSubstr("in words of 8 bytes"));
    outline.base = {};
    checkpoint.require_model(outline, TensorType::kFloat32);
  }
}

std::vector<fs::path> shared_files(const fs::path& root) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / kSharedDirectory))
    files.push_back(entry.path());
  return files;
}

TEST(TunedCheckpoint, WritesWhatIsFrozenOnce) {
  const TestDirectory root;
  const model::Outline outline = frozen({"model.embed_tokens", "*.mlp.*"});
  const model::ParameterTable table = model::parameter_table(outline);
  save(root.path(), outline, 1, {.count = 2});
  ASSERT_EQ(shared_files(root.path()).size(), 1U);
  const fs::path shared = shared_files(root.path()).front();
  EXPECT_EQ(SafetensorsFile(shared).data_bytes(), 4 * (table.size() - table.trained_size()));
  const auto written = fs::last_write_time(shared);
  const fs::path second = save(root.path(), outline, 2, {.count = 2});
  EXPECT_EQ(shared_files(root.path()), std::vector{shared});
  EXPECT_EQ(fs::last_write_time(shared), written);
  Checkpoint(second).verify();

  fs::remove(shared);
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] { Checkpoint(second).verify(); }), HasSubstr("is missing"));
}

TEST(TunedCheckpoint, WritesADamagedSharedFileAgain) {
  const TestDirectory root;
  const model::Outline outline = frozen({"*.mlp.*"});
  const fs::path first = save(root.path(), outline, 1, {.count = 2});
  const fs::path shared = shared_files(root.path()).front();
  {
    std::fstream file(shared, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end).put('X');
  }
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] { Checkpoint(first).verify(); }), HasSubstr("has checksum"));
  Checkpoint(save(root.path(), outline, 2, {.count = 2})).verify();
  Checkpoint(first).verify();
}

TEST(TunedCheckpoint, SharedFilesGoWithTheLastThatRefersToThem) {
  const TestDirectory root;
  const model::Outline before = frozen({"*.mlp.*"});
  const model::Outline behind = frozen({"model.embed_tokens"});
  save(root.path(), before, 1, {.count = 2});
  save(root.path(), behind, 2, {.count = 2});
  EXPECT_EQ(shared_files(root.path()).size(), 2U);
  fs::rename(root / "step-1", root / "kept-for-good");  // by its user, under a name of his
  save(root.path(), behind, 3, {.count = 1});
  EXPECT_EQ(shared_files(root.path()).size(), 2U);
  Checkpoint(root / "kept-for-good").verify();
  fs::remove_all(root / "kept-for-good");
  save(root.path(), behind, 4, {.count = 1});
  EXPECT_EQ(shared_files(root.path()).size(), 1U);
  Checkpoint(root / "step-4").verify();
}

// Masters are equal. Moments are read if both models have them; otherwise they are left untouched.
TEST(TunedCheckpoint, IsReadByAModelThatIsFrozenOtherwise) {
  const TestDirectory root;
  const model::Outline saved = frozen({"model.embed_tokens", "model.layers.0.mlp"});
  Checkpoint checkpoint(save(root.path(), saved));
  const model::Outline run = frozen({"model.layers.1", "lm_head"});
  checkpoint.require_model(run, TensorType::kFloat32);
  const model::ParameterTable table = model::parameter_table(run);
  std::vector<base::Interval> owned;
  for (const model::Bucket& bucket : table.buckets) owned.push_back({0, bucket.size});
  checkpoint.verify(table, owned);
  const auto was_trained = [](const model::Parameter& parameter) {
    return parameter.name != "embedding" && parameter.name != "layers.0.gate_up" &&
           parameter.name != "layers.0.down";
  };
  for (const model::Bucket& bucket : table.buckets) {
    for (const State state : {State::kMaster, State::kExpAvg}) {
      if (state != State::kMaster && !bucket.trained) continue;
      const base::Interval middle{bucket.size / 5, bucket.size - bucket.size / 7};
      std::vector<float> read(static_cast<size_t>(middle.size()), -9.0F);
      checkpoint.read(bucket, middle, state, read.data());
      for (const model::Parameter& parameter : bucket.parameters) {
        for (int64_t e = 0; e < parameter.size(); ++e) {
          const int64_t at = parameter.offset + e;
          if (at < middle.begin || at >= middle.end) continue;
          const bool there = state == State::kMaster || was_trained(parameter);
          ASSERT_EQ(read[static_cast<size_t>(at - middle.begin)],
                    there ? value_of(parameter, e, state) : -9.0F)
              << parameter.name;
        }
      }
    }
  }
}

TEST(TunedCheckpoint, AdaptersMayComeButNotGo) {
  const TestDirectory root;
  const Checkpoint plain(save(root / "plain", model::exported_outline()));
  plain.require_model(adapted(), TensorType::kFloat32);
  const Checkpoint with(save(root / "with", adapted()));
  EXPECT_EQ(with.manifest().model, adapted());
  with.require_model(adapted(), TensorType::kFloat32);
  const auto fault = [&](const model::Outline& outline) {
    return message_of<base::InputError>([&] { with.require_model(outline, TensorType::kFloat32); });
  };
  EXPECT_THAT(fault(model::exported_outline()),
              HasSubstr("has adapters of rank 2 and alpha 3 at k_proj, o_proj, up_proj "
                        "but the run no adapters: resume with the [lora] it was made"));
  model::Outline other = model::exported_outline();
  model::adapt(other, {.rank = 4, .alpha = 3, .targets = {"k_proj", "o_proj", "up_proj"}});
  EXPECT_THAT(fault(other), HasSubstr("but the run adapters of rank 4"));
}

// The whole of one parameter of the model that a checkpoint holds.
std::vector<double> saved(const model::ParameterTable& table, const std::string& name) {
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.name != name) continue;
      std::vector<double> values;
      for (int64_t e = 0; e < parameter.size(); ++e) values.push_back(value_of(parameter, e, State::kMaster));
      return values;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

struct Factors {
  double attention = 1.5, out = 1.5, up = 1.5;
};

void expect_merged(const model::Outline& outline, const Factors& factors = {}) {
  const TestDirectory root;
  Checkpoint checkpoint(save(root / "run", outline));
  export_checkpoint(checkpoint, root / "model");
  const HuggingFaceModel model(root / "model");
  EXPECT_EQ(model.model(), model::exported_outline());
  const model::ParameterTable tuned = model::parameter_table(outline);
  const model::Bucket& layer = model.table().layer(1);
  std::vector<float> values(static_cast<size_t>(layer.size));
  model.read(layer.index, {0, layer.size}, values.data());
  for (const auto& [role, adapter, first_row, rows, factor] : {std::tuple("qkv", 1, 16, 8, factors.attention),
                                                               {"attention_out", 0, 0, 16, factors.out},
                                                               {"gate_up", 1, 20, 20, factors.up},
                                                               {"down", -1, 0, 0, 0.0}}) {
    const model::Parameter& parameter = *model::find_parameter(layer, role);
    std::vector<double> expected = saved(tuned, base::text("layers.1.", role));
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      const auto left = saved(tuned, base::text("layers.1.", role, ".left", adapter));
      const auto right = saved(tuned, base::text("layers.1.", role, ".right", adapter));
      const int64_t rank = std::ssize(right) / 12;
      for (int64_t column = 0; column < 12; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += left[static_cast<size_t>((row - first_row) * rank + k)] *
                 right[static_cast<size_t>(k * 12 + column)];
        expected[static_cast<size_t>(row * 12 + column)] += factor * sum;
      }
    }
    for (size_t e = 0; e < expected.size(); ++e)
      ASSERT_NEAR(values[static_cast<size_t>(parameter.offset) + e], expected[e], 1e-5) << role << " " << e;
  }
}

TEST(TunedCheckpoint, ExportMergesAdapters) { expect_merged(adapted()); }

// The two factors of a matrix then lie in a trained and a frozen bucket.
TEST(TunedCheckpoint, ExportMergesAdaptersOfWhichOneFactorIsFrozen) {
  for (const char* factor : {"*.lora_A*", "*.lora_B*", "*.k_proj.lora_A*"}) {
    SCOPED_TRACE(factor);
    model::Outline outline = adapted();
    model::freeze(outline, {factor});
    expect_merged(outline);
  }
}

ParameterSource values_in(const model::ParameterTable& table) {
  return [&table](int bucket, base::Interval interval, float* values) {
    const std::vector<float> all = values_of(table.buckets[static_cast<size_t>(bucket)], State::kMaster);
    std::copy_n(all.begin() + interval.begin, interval.size(), values);
  };
}

model::Outline decomposed() {
  model::Outline outline = model::exported_outline();
  model::adapt(outline, {.rank = 2, .alpha = 3, .targets = {"k_proj", "o_proj", "up_proj"}, .dora = true});
  return outline;
}

// Each output's weights have its magnitude for their length, and the direction of the sum.
TEST(TunedCheckpoint, ExportMergesMagnitudes) {
  const model::ParameterTable tuned = model::parameter_table(decomposed());
  const model::ParameterTable plain = model::parameter_table(model::untuned(decomposed()));
  model::Outline lora = model::exported_outline();
  model::adapt(lora, {.rank = 2, .alpha = 3, .targets = {"k_proj", "o_proj", "up_proj"}});
  const model::ParameterTable sums = model::parameter_table(lora);
  const ParameterSource read = merged(plain, tuned, values_in(tuned)),
                        sum = merged(plain, sums, values_in(sums));
  const model::Bucket& layer = plain.layer(1);
  const auto all = [&](const ParameterSource& from, const model::Parameter& parameter) {
    std::vector<float> values(static_cast<size_t>(parameter.size()));
    // In two parts, which need the norms of the whole.
    const int64_t begin = parameter.offset, middle = begin + parameter.size() / 3;
    from(layer.index, {middle, begin + parameter.size()}, values.data() + (middle - begin));
    from(layer.index, {begin, middle}, values.data());
    return values;
  };
  for (const auto& [role, adapter, first_row, rows] :
       {std::tuple("qkv", 1, 16, 8), {"attention_out", 0, 0, 16}, {"gate_up", 1, 20, 20}}) {
    const model::Parameter& parameter = *model::find_parameter(layer, role);
    const std::vector<float> found = all(read, parameter);
    std::vector<float> expected = all(sum, parameter);
    const auto magnitude = saved(tuned, base::text("layers.1.", role, ".magnitude", adapter));
    const bool last = parameter.outputs_last;
    for (int64_t output = 0; output < (last ? 12 : rows); ++output) {
      std::vector<float*> own;
      for (int64_t i = 0; i < (last ? rows : 12); ++i)
        own.push_back(&expected[static_cast<size_t>(last ? (first_row + i) * 12 + output
                                                         : (first_row + output) * 12 + i)]);
      double square = 0;
      for (const float* value : own) square += double{*value} * *value;
      for (float* value : own)
        *value = static_cast<float>(*value * magnitude[static_cast<size_t>(output)] / std::sqrt(square));
    }
    for (size_t e = 0; e < expected.size(); ++e) ASSERT_NEAR(found[e], expected[e], 1e-5) << role << " " << e;
  }
}

TEST(TunedCheckpoint, MagnitudesAreNamedAsPeftDoes) {
  const TestDirectory root;
  Checkpoint checkpoint(save(root / "run", decomposed()));
  export_adapters(checkpoint, root / "adapter", "org/base");
  const SafetensorsFile file(root / "adapter/adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 3 * 3 * 2U);
  const std::string layer = "base_model.model.model.layers.1.";
  EXPECT_EQ(file.find(layer + "self_attn.k_proj.lora_magnitude_vector")->shape, std::vector<int64_t>{8});
  EXPECT_EQ(file.find(layer + "self_attn.o_proj.lora_magnitude_vector")->shape, std::vector<int64_t>{12});
  EXPECT_EQ(base::read_json(root / "adapter/adapter_config.json").at("use_dora"), true);
  // A checkpoint without adapters has no norms to begin with.
  const Checkpoint plain(save(root / "plain", model::exported_outline()));
  EXPECT_THAT(message_of<base::InputError>([&] { plain.require_model(decomposed(), TensorType::kFloat32); }),
              HasSubstr("has no adapters but the run DoRA's"));
  EXPECT_THAT(
      message_of<base::InputError>([&] { checkpoint.require_model(adapted(), TensorType::kFloat32); }),
      HasSubstr("has DoRA's adapters of rank 2"));
}

// Values for the factors of a run: another rank and alpha, fewer matrices.
TEST(InPlaceOf, GivesARunsAdaptersTheValuesOfAFolder) {
  const TestDirectory root;
  model::Outline other = model::exported_outline(), own = other;
  model::adapt(other, {.rank = 2, .alpha = 3, .targets = {"k_proj", "o_proj"}});
  model::adapt(own, {.rank = 3, .alpha = 12, .targets = {"k_proj", "o_proj", "up_proj"}});
  const model::ParameterTable theirs = model::parameter_table(other), table = model::parameter_table(own);
  export_adapters(root / "other", theirs, values_in(theirs), "base");
  const ParameterSource read = in_place_of(table, {}, root / "other");
  const model::ParameterTable plain = model::parameter_table(model::exported_outline());
  const auto base = values_in(table);
  const ParameterSource whole = [&](int bucket, base::Interval interval, float* values) {
    base(bucket, interval, values);
    if (table.buckets[static_cast<size_t>(bucket)].trained) read(bucket, interval, values);
  };
  const ParameterSource found = merged(plain, table, whole),
                        expected = merged(plain, theirs, values_in(theirs));
  for (const model::Bucket& bucket : plain.buckets) {
    std::vector<float> ours(static_cast<size_t>(bucket.size)), merged_folder(ours.size());
    found(bucket.index, {0, bucket.size}, ours.data());
    expected(bucket.index, {0, bucket.size}, merged_folder.data());
    for (size_t e = 0; e < ours.size(); ++e) ASSERT_NEAR(ours[e], merged_folder[e], 1e-5) << e;
  }
  const auto fault = [&](model::Lora lora, std::vector<std::string> frozen = {}) {
    model::Outline outline = model::exported_outline();
    model::adapt(outline, lora);
    model::freeze(outline, frozen);
    const model::ParameterTable tuned = model::parameter_table(outline);
    return message_of<base::InputError>([&] { in_place_of(tuned, {}, root / "other"); });
  };
  EXPECT_THAT(fault({.rank = 1, .alpha = 1, .targets = {"k_proj", "o_proj"}}),
              HasSubstr("has rank 2, above the run's 1: set lora.rank to at least 2"));
  EXPECT_THAT(fault({.rank = 2, .alpha = 1, .targets = {"k_proj"}}),
              HasSubstr("adapts a matrix that lora.targets leaves out: add it"));
  EXPECT_THAT(fault({.rank = 2, .alpha = 1, .targets = {"k_proj", "o_proj"}}, {"*.o_proj.lora_A.weight"}),
              HasSubstr("is frozen in this run: leave it out of train.freeze"));
}

TEST(TunedCheckpoint, AdaptersAloneAreNamedAsPeftDoes) {
  const TestDirectory root;
  Checkpoint checkpoint(save(root / "run", adapted()));
  export_adapters(checkpoint, root / "adapter", "org/base");
  const SafetensorsFile file(root / "adapter/adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 2 * 3 * 2U);
  const std::string layer = "base_model.model.model.layers.1.";
  EXPECT_EQ(file.find(layer + "self_attn.k_proj.lora_A.weight")->shape, (std::vector<int64_t>{2, 12}));
  EXPECT_EQ(file.find(layer + "self_attn.k_proj.lora_B.weight")->shape, (std::vector<int64_t>{8, 2}));
  EXPECT_EQ(file.find(layer + "self_attn.o_proj.lora_A.weight")->shape, (std::vector<int64_t>{2, 16}));
  EXPECT_EQ(file.find(layer + "self_attn.o_proj.lora_B.weight")->shape, (std::vector<int64_t>{12, 2}));
  const base::Json config = base::read_json(root / "adapter/adapter_config.json");
  EXPECT_EQ(config.at("r"), 2);
  EXPECT_EQ(config.at("base_model_name_or_path"), "org/base");
  Checkpoint plain(save(root / "plain", model::exported_outline()));
  EXPECT_THAT(message_of<base::InputError>([&] { export_adapters(plain, root / "none", ""); }),
              HasSubstr("has no adapters to write"));
}

TEST(TunedCheckpoint, AdaptersOfTheirOwnRanksAreExportedWithPeftsPatterns) {
  const TestDirectory root;
  model::Outline outline = model::exported_outline();
  model::adapt(outline, {.rank = 2, .alpha = 3, .targets = {"k_proj:1:0.75", "o_proj", "up_proj:4:6"}});
  expect_merged(outline, {.attention = 0.75, .out = 1.5, .up = 1.5});
  Checkpoint checkpoint(save(root / "run", outline));
  export_adapters(checkpoint, root / "adapter", "org/base");
  const base::Json config = base::read_json(root / "adapter/adapter_config.json");
  EXPECT_EQ(config.at("r"), 2);
  EXPECT_EQ(config.at("rank_pattern"), (base::Json{{"k_proj", 1}, {"up_proj", 4}}));
  EXPECT_EQ(config.at("alpha_pattern"), (base::Json{{"k_proj", 0.75}, {"up_proj", 6.0}}));
  EXPECT_EQ(config.at("target_modules"), base::Json({"k_proj", "o_proj", "up_proj"}));
}

// The first layer has an MLP, the second one experts.
model::Outline with_experts(std::vector<std::string> targets) {
  model::Outline outline = model::exported_outline();
  outline.experts = {.count = 3, .per_token = 2, .hidden = 6, .shared_hidden = 5};
  outline.block_types = {{}, {.experts = true}};
  model::adapt(outline, {.rank = 2, .alpha = 3, .targets = std::move(targets)});
  return outline;
}

// Merged matrices are equal whichever elements are read.
TEST(Merged, AddsToEachExpertTheProductOfItsOwnFactors) {
  const model::Outline outline = with_experts({"experts.gate_up_proj", "experts.down_proj"});
  const model::ParameterTable tuned = model::parameter_table(outline);
  const model::ParameterTable plain = model::parameter_table(model::untuned(outline));
  const ParameterSource read = merged(plain, tuned, values_in(tuned));
  for (const model::Bucket& bucket : plain.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.experts == 0) continue;
      std::vector<double> expected = saved(tuned, parameter.name);
      const auto left = saved(tuned, parameter.name + ".left0"),
                 right = saved(tuned, parameter.name + ".right0");
      const int64_t height = parameter.rows / 3, columns = parameter.columns;
      for (int64_t row = 0; row < parameter.rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          for (int64_t k = 0; k < 2; ++k)
            expected[static_cast<size_t>(row * columns + column)] +=
                1.5 * left[static_cast<size_t>(row * 2 + k)] *
                right[static_cast<size_t>((row / height * 2 + k) * columns + column)];
        }
      }
      const base::Interval all{parameter.offset, parameter.offset + parameter.size()};
      const base::Interval middle{all.begin + parameter.size() / 2 + 3, all.end - 5};
      for (const base::Interval part : {all, middle}) {
        std::vector<float> values(static_cast<size_t>(part.size()));
        read(bucket.index, part, values.data());
        for (int64_t e = 0; e < part.size(); ++e)
          ASSERT_NEAR(values[static_cast<size_t>(e)],
                      expected[static_cast<size_t>(part.begin - all.begin + e)], 1e-5)
              << parameter.name << " " << e;
      }
    }
  }
}

// PEFT wraps a module once for each parameter. It takes an MLP's up_proj for the experts' unless the
// configuration names a parameter.
TEST(ExportedAdapters, OfExpertsHaveTheNamesThatPeftGivesThem) {
  const TestDirectory root;
  const auto exported = [&](const char* name, std::vector<std::string> targets) {
    const model::ParameterTable table = model::parameter_table(with_experts(std::move(targets)));
    export_adapters(root / name, table, values_in(table), "base");
    std::set<std::string> names;
    const SafetensorsFile file(root / name / "adapter_model.safetensors");
    for (const TensorInfo& tensor : file.tensors())
      names.insert(tensor.name.substr(tensor.name.find("layers.")));
    return std::pair(names, base::read_json(root / name / "adapter_config.json"));
  };
  const auto [both, config] =
      exported("both", {"q_proj", "up_proj", "experts.gate_up_proj", "experts.down_proj"});
  for (const char* name : {"1.mlp.experts.base_layer.lora_A", "1.mlp.experts.base_layer.lora_B",
                           "1.mlp.experts.lora_A", "1.mlp.experts.lora_B", "0.mlp.up_proj.lora_A",
                           "1.mlp.shared_expert.up_proj.lora_B", "1.self_attn.q_proj.lora_A"})
    EXPECT_TRUE(both.contains(base::text("layers.", name, ".weight"))) << name;
  EXPECT_EQ(config.at("target_modules"), base::Json({"q_proj"}));
  EXPECT_EQ(config.at("target_parameters"),
            base::Json({"mlp.experts.down_proj", "mlp.experts.gate_up_proj",
                        "mlp.shared_expert.up_proj.weight", "mlp.up_proj.weight"}));
  const auto [one, alone] = exported("one", {"experts.gate_up_proj"});
  EXPECT_EQ(one, (std::set<std::string>{"layers.1.mlp.experts.lora_A.weight",
                                        "layers.1.mlp.experts.lora_B.weight"}));
  EXPECT_EQ(alone.at("target_modules"), base::Json::array());
}

// An exported adapter's factor of a matrix; b is multiplied by the product's factor.
std::vector<double> scaled_factor(const model::ParameterTable& table, const model::Parameter& like) {
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.name != like.name) continue;
      std::vector<double> values = saved(table, parameter.name);
      const bool b = parameter.start != model::Start::kAdapter;
      for (double& value : values) value *= b ? model::adapter_factor(table.model.lora(), parameter) : 1;
      return values;
    }
  }
  return {};  // the adapter leaves the matrix alone
}

// Expects columns [begin, begin + rank) of left factors, or rows of right ones, to be an adapter's, then
// zeros.
void expect_own_columns(const model::Parameter& parameter, const std::vector<float>& values,
                        const model::ParameterTable& own, int64_t begin, int64_t most) {
  const std::vector<double> expected = scaled_factor(own, parameter);
  const bool left = parameter.factor == model::Factor::kLeft;
  const int64_t experts = std::max<int64_t>(1, parameter.experts);
  const int64_t length = left ? parameter.rows : parameter.columns * experts;  // a column's, or a row's
  const int64_t rank = std::ssize(expected) / length;
  const int64_t all = (left ? parameter.columns : parameter.rows / experts);
  for (int64_t e = 0; e < parameter.size(); ++e) {
    const int64_t row = e / parameter.columns, column = e % parameter.columns;
    const int64_t k = (left ? column : row % all) - begin;
    if (k < 0 || k >= most) continue;
    const int64_t at = left ? row * rank + k : (row / all * rank + k) * parameter.columns + column;
    ASSERT_NEAR(values[static_cast<size_t>(e)], k < rank ? expected[static_cast<size_t>(at)] : 0, 1e-6)
        << parameter.name << " " << e;
  }
}

TEST(SideBySide, EachAdapterHasColumnsOfItsOwn) {
  const TestDirectory root;
  const model::Outline base = model::untuned(with_experts({"q_proj"})).outline();
  const auto tuned = [&](int64_t rank, std::vector<std::string> targets) {
    model::Outline outline = base;
    model::adapt(outline, {.rank = rank, .alpha = 3, .targets = std::move(targets)});
    return model::parameter_table(outline);
  };
  const std::vector<model::ParameterTable> own = {
      tuned(2, {"k_proj:1:0.75", "o_proj", "up_proj", "experts.gate_up_proj:3:2"}),
      tuned(3, {"o_proj:2:5", "down_proj:1:4", "experts.down_proj"}),
      tuned(1, {"experts.gate_up_proj", "experts.down_proj:4:1"})};
  std::vector<fs::path> folders;
  for (const model::ParameterTable& table : own) {
    folders.push_back(root / base::text(folders.size()));
    export_adapters(folders.back(), table, values_in(table), "base");
  }
  const SideBySide all = side_by_side(
      base, {}, [](const model::Bucket&, base::Interval, float*) {}, folders);
  constexpr int64_t kMost = 4;
  EXPECT_EQ(all.model.lora().rank, kMost * std::ssize(own));
  const model::ParameterTable table = model::parameter_table(all.model);
  int factors = 0;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.factor == model::Factor::kNone) continue;
      ++factors;
      std::vector<float> values(static_cast<size_t>(parameter.size()));
      all.read(bucket.index, {parameter.offset, parameter.offset + parameter.size()}, values.data());
      for (size_t i = 0; i < own.size(); ++i)
        expect_own_columns(parameter, values, own[i], static_cast<int64_t>(i) * kMost, kMost);
    }
  }
  EXPECT_GT(factors, 12);
}

TEST(TunedCheckpoint, OptimiserStatesOfAPartAreNotExported) {
  const TestDirectory root;
  Checkpoint checkpoint(save(root / "run", frozen({"model.embed_tokens"})));
  EXPECT_THAT(message_of<base::InputError>(
                  [&] { export_checkpoint(checkpoint, root / "model", {}, Contents::kTraining); }),
              HasSubstr("take the checkpoint itself along"));
  EXPECT_FALSE(fs::exists(root / "model"));
}

}  // namespace
}  // namespace sluice::checkpoint
