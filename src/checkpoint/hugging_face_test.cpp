#include "checkpoint/hugging_face.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/conversion.h"
#include "checkpoint/find.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"
#include "model/test_outline.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

float value_of(int bucket, int64_t element) {
  return static_cast<float>(
      base::random_normal(5, static_cast<uint64_t>(bucket), static_cast<uint64_t>(element)));
}

void fill_by_bucket(int bucket, base::Interval interval, float* values) {
  for (int64_t e = interval.begin; e < interval.end; ++e) values[e - interval.begin] = value_of(bucket, e);
}

float rounded(float value) {
  const uint16_t bits = to_bfloat16(value);
  float result = 0;
  to_floats(reinterpret_cast<const std::byte*>(&bits), TensorType::kBFloat16, 1, &result);
  return result;
}

using Tensors = std::vector<std::pair<TensorInfo, std::vector<float>>>;

// The F32 tensors of a file, to be changed and written back.
Tensors tensors_of(const fs::path& path) {
  Tensors tensors;
  const SafetensorsFile file(path);
  for (const TensorInfo& info : file.tensors()) {
    tensors.emplace_back(info, std::vector<float>(static_cast<size_t>(info.elements())));
    to_floats(file.data(info), info.type, info.elements(), tensors.back().second.data());
  }
  return tensors;
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [info, values] : tensors) infos.push_back(info);
  SafetensorsWriter writer(path, infos);
  for (const auto& [info, values] : tensors)
    writer.write(values.data(), info.elements() * size_of(info.type));
  writer.finish();
}

std::string import_fault(const fs::path& folder) {
  return message_of<base::InputError>([&] { HuggingFaceModel{folder}; });
}

TEST(HuggingFace, ImportOfExportIsBitwiseEqual) {
  const TestDirectory directory;
  for (const bool tied : {false, true}) {
    const model::ParameterTable table = model::parameter_table(model::exported_outline(tied));
    const fs::path folder = directory / (tied ? "tied" : "untied");
    export_hugging_face(folder, table, fill_by_bucket);
    const HuggingFaceModel model(folder);
    EXPECT_EQ(model.model(), table.model);
    EXPECT_EQ(model.type(), TensorType::kFloat32);
    for (const model::Bucket& bucket : table.buckets) {
      std::vector<float> values(static_cast<size_t>(bucket.size));
      model.read(bucket.index, {0, bucket.size}, values.data());
      for (int64_t e = 0; e < bucket.size; ++e) {
        ASSERT_EQ(values[static_cast<size_t>(e)], value_of(bucket.index, e)) << "element " << e;
      }
    }
  }
}

TEST(HuggingFace, AnyIntervalReadsAsPartOfTheWhole) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  export_hugging_face(directory / "m", table, fill_by_bucket, {.max_shard_bytes = 4000});
  const HuggingFaceModel model(directory / "m");
  base::Rng rng(3);
  for (int trial = 0; trial < 300; ++trial) {
    const model::Bucket& bucket = table.buckets[rng.below(table.buckets.size())];
    const int64_t begin = rng.between(0, bucket.size - 1);
    const base::Interval interval{begin, rng.between(begin, bucket.size)};
    std::vector<float> values(static_cast<size_t>(interval.size()));
    model.read(bucket.index, interval, values.data());
    for (int64_t e = interval.begin; e < interval.end; ++e) {
      ASSERT_EQ(values[static_cast<size_t>(e - begin)], value_of(bucket.index, e));
    }
  }
}

// The mapping itself: q, k and v stand as they are, o and down transposed.
TEST(HuggingFace, FilesHoldOutputByInputMatrices) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  export_hugging_face(directory / "m", table, fill_by_bucket);
  const SafetensorsFile file(directory / "m/model.safetensors");
  const model::Bucket& layer = table.layer(1);
  const auto at = [&](const char* name, int64_t row, int64_t column) {
    const TensorInfo& info = *file.find(std::string("model.layers.1.") + name);
    float value = 0;
    std::memcpy(&value, file.data(info) + (row * info.shape[1] + column) * 4, 4);
    return value;
  };
  const auto stored = [&](std::string_view role, int64_t row, int64_t column) {
    for (const model::Parameter& parameter : layer.parameters) {
      if (parameter.role == role) {
        return value_of(layer.index, parameter.offset + row * parameter.columns + column);
      }
    }
    return 0.0F;
  };
  EXPECT_EQ(file.find("model.layers.1.self_attn.k_proj.weight")->shape, (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(file.find("model.layers.1.self_attn.o_proj.weight")->shape, (std::vector<int64_t>{12, 16}));
  EXPECT_EQ(file.find("model.layers.1.mlp.down_proj.weight")->shape, (std::vector<int64_t>{12, 20}));
  EXPECT_EQ(file.find("model.norm.weight")->shape, (std::vector<int64_t>{12}));
  EXPECT_EQ(at("self_attn.q_proj.weight", 3, 5), stored("qkv", 3, 5));
  EXPECT_EQ(at("self_attn.k_proj.weight", 3, 5), stored("qkv", 16 + 3, 5));
  EXPECT_EQ(at("self_attn.o_proj.weight", 3, 5), stored("attention_out", 5, 3));
  EXPECT_EQ(at("mlp.up_proj.weight", 3, 5), stored("gate_up", 20 + 3, 5));
  EXPECT_EQ(at("mlp.down_proj.weight", 3, 5), stored("down", 5, 3));
}

TEST(HuggingFace, ShardsAreBoundedAndIndexed) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  export_hugging_face(directory / "m", table, fill_by_bucket, {.max_shard_bytes = 4000});
  const base::Json index = base::read_json(directory / "m/model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size"), table.size() * 4);
  EXPECT_FALSE(fs::exists(directory / "m/model.safetensors"));
  size_t tensors = 0;
  for (const auto& entry : fs::directory_iterator(directory / "m")) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    EXPECT_LE(file.tensors().back().end_byte, 4000);
    for (const TensorInfo& tensor : file.tensors()) {
      EXPECT_EQ(index.at("weight_map").at(tensor.name), entry.path().filename().string());
      ++tensors;
    }
  }
  EXPECT_EQ(index.at("weight_map").size(), tensors);
}

TEST(HuggingFace, BFloat16ExportRoundsOnce) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(true));
  export_hugging_face(directory / "m", table, fill_by_bucket, {.type = TensorType::kBFloat16});
  const HuggingFaceModel model(directory / "m");
  EXPECT_EQ(model.type(), TensorType::kBFloat16);
  EXPECT_EQ(model.config().at("torch_dtype"), "bfloat16");
  std::vector<float> values(static_cast<size_t>(table.layer(0).size));
  model.read(1, {0, table.layer(0).size}, values.data());
  for (size_t e = 0; e < values.size(); ++e) {
    ASSERT_EQ(values[e], rounded(value_of(1, static_cast<int64_t>(e))));
  }
}

TEST(HuggingFace, WrongTensorsAreNamed) {
  const TestDirectory directory;
  const fs::path file = directory / "m/model.safetensors";
  export_hugging_face(directory / "m", model::parameter_table(model::exported_outline(false)),
                      fill_by_bucket);
  const Tensors good = tensors_of(file);
  const auto fault = [&](auto change) {
    Tensors tensors = good;
    change(tensors);
    write_tensors(file, tensors);
    return import_fault(directory / "m");
  };
  EXPECT_EQ(fault([](Tensors&) {}), "");
  EXPECT_THAT(fault([](Tensors& t) { t.pop_back(); }), HasSubstr("'lm_head.weight' is missing"));
  EXPECT_THAT(fault([](Tensors& t) {
                t[0].first.shape = {12, 33};
              }),
              AllOf(HasSubstr("'model.embed_tokens.weight' has shape [12, 33]"), HasSubstr("[33, 12]")));
  EXPECT_THAT(
      fault([](Tensors& t) {
        t.push_back({{.name = "model.layers.0.self_attn.q_proj.bias", .shape = {4}}, std::vector<float>(4)});
      }),
      HasSubstr("q_proj.bias' is not part of this model"));
  EXPECT_THAT(fault([](Tensors& t) {
                t[1].first.type = TensorType::kFloat64;
                t[1].second.resize(2 * t[1].second.size());
              }),
              HasSubstr("is F64, expected F32, BF16, F16"));
}

TEST(HuggingFace, WeightsThatAreNotFiniteAreNamedWhenTheyAreRead) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  export_hugging_face(directory / "m", table, fill_by_bucket);
  const fs::path file = directory / "m/model.safetensors";
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Tensors tensors = tensors_of(file);
    for (auto& [info, values] : tensors) {
      if (info.name == "model.layers.1.mlp.down_proj.weight") values[7] = bad;
    }
    write_tensors(file, tensors);
    const HuggingFaceModel model(directory / "m");
    EXPECT_THAT(message_of<base::InputError>([&] { import_checkpoint(model, directory / "checkpoints"); }),
                AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight' holds"), HasSubstr("fetch or save")));
    EXPECT_FALSE(latest(directory / "checkpoints"));
  }
}

TEST(HuggingFace, IncompleteFoldersAreNamed) {
  const TestDirectory directory;
  EXPECT_THAT(import_fault(directory.path()), HasSubstr("has no config.json"));
  export_hugging_face(directory / "m", model::parameter_table(model::exported_outline(false)), fill_by_bucket,
                      {.max_shard_bytes = 4000});
  EXPECT_TRUE(has_hugging_face_weights(directory / "m"));
  const base::Json index = base::read_json(directory / "m/model.safetensors.index.json");
  fs::remove(directory / "m" / index.at("weight_map").at("model.norm.weight").get<std::string>());
  EXPECT_THAT(import_fault(directory / "m"), HasSubstr("cannot read"));
  fs::remove(directory / "m/model.safetensors.index.json");
  EXPECT_FALSE(has_hugging_face_weights(directory / "m"));
  EXPECT_THAT(import_fault(directory / "m"), HasSubstr("has neither model.safetensors nor"));
  base::write_file_atomically(directory / "m/model.safetensors.index.json",
                              R"({"weight_map":{"a":"../../etc/passwd"}})");
  EXPECT_THAT(import_fault(directory / "m"), HasSubstr("which is no file name"));
}

TEST(HuggingFace, ExportIsWholeOrAbsent) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  const auto failing = [](int bucket, base::Interval interval, float* values) {
    if (bucket == 2) throw base::RunError("lost");
    fill_by_bucket(bucket, interval, values);
  };
  EXPECT_THROW(export_hugging_face(directory / "m", table, failing), base::RunError);
  EXPECT_TRUE(fs::is_empty(directory.path()));
  fs::create_directories(directory / "m");
  export_hugging_face(directory / "m", table, fill_by_bucket);  // an empty folder will do
  EXPECT_THAT(
      message_of<base::InputError>([&] { export_hugging_face(directory / "m", table, fill_by_bucket); }),
      HasSubstr("exists already"));
}

}  // namespace
}  // namespace sluice::checkpoint
