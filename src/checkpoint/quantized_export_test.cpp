// Folders in bitsandbytes' formats: written, and read back to the bit.
#include "checkpoint/quantized_export.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/nf4.h"
#include "checkpoint/test_directory.h"
#include "model/test_outline.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

constexpr Quantization kAll[] = {Quantization::kNf4, Quantization::kNf4Double, Quantization::kInt8};

// Magnitudes differ from row to row, and one row is zero.
ParameterSource values_by_row(const model::ParameterTable& table) {
  return [&table](int bucket, base::Interval interval, float* values) {
    const model::Bucket& from = table.buckets[static_cast<size_t>(bucket)];
    for (int64_t at = interval.begin; at < interval.end; ++at) {
      const double draw =
          base::random_normal(3, static_cast<uint64_t>(from.index), static_cast<uint64_t>(at));
      const bool zero = (at / 12) % 7 == 3;
      values[at - interval.begin] =
          zero ? 0.0F : static_cast<float>(draw * std::pow(1.3, static_cast<double>(at / 12 % 9)));
    }
  };
}

std::vector<float> all_of(const model::ParameterTable& table, const ParameterSource& source) {
  std::vector<float> all;
  for (const model::Bucket& bucket : table.buckets) {
    std::vector<float> values(static_cast<size_t>(bucket.size));
    // In two parts that end within a matrix.
    source(bucket.index, {0, bucket.size / 3}, values.data());
    source(bucket.index, {bucket.size / 3, bucket.size}, values.data() + bucket.size / 3);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

ExportOptions options_of(Quantization quantization) {
  return {.type = TensorType::kBFloat16, .quantization = quantization};
}

TEST(QuantizedExport, IsReadAsItWasWrittenToTheBit) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(model::exported_outline());
  const std::vector<float> plain = all_of(table, values_by_row(table));
  for (const Quantization quantization : kAll) {
    SCOPED_TRACE(static_cast<int>(quantization));
    const fs::path folder = root / base::text("model-", static_cast<int>(quantization));
    const ExportOptions options = options_of(quantization);
    export_hugging_face(folder, table, values_by_row(table), options);
    const HuggingFaceModel model(folder);
    EXPECT_EQ(model.model(), table.model);
    EXPECT_TRUE(model.weights().quantised());
    const std::vector<float> expected = all_of(table, as_written(table, values_by_row(table), options));
    const std::vector<float> found = all_of(table, [&](int bucket, base::Interval interval, float* values) {
      model.read(bucket, interval, values);
    });
    EXPECT_EQ(found, expected);
    double error = 0, square = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      error += (found[i] - plain[i]) * double{found[i] - plain[i]};
      square += double{plain[i]} * plain[i];
    }
    EXPECT_LT(std::sqrt(error / square), quantization == Quantization::kInt8 ? 0.02 : 0.12);
    EXPECT_GT(error, 0);
  }
}

// The tensors and keys that bitsandbytes and transformers look for.
TEST(QuantizedExport, HasTheTensorsAndKeysOfBitsandbytes) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(model::exported_outline(false));
  export_hugging_face(root / "model", table, values_by_row(table), options_of(Quantization::kNf4Double));
  const SafetensorsFile file(root / "model/model.safetensors");
  const std::string name = "model.layers.1.mlp.gate_proj.weight";  // [20, 12]
  const std::map<std::string, std::pair<std::string, std::vector<int64_t>>> expected = {
      {"", {"U8", {120, 1}}},
      {".absmax", {"U8", {4}}},
      {".quant_map", {"F32", {16}}},
      {".nested_absmax", {"F32", {1}}},
      {".nested_quant_map", {"F32", {256}}}};
  for (const auto& [end, tensor] : expected) {
    const TensorInfo* const found = file.find(name + end);
    ASSERT_NE(found, nullptr) << end;
    EXPECT_EQ(std::pair(found->format_type, found->shape), tensor) << end;
  }
  const TensorInfo* const described = file.find(name + Nf4Matrix::kState);
  ASSERT_NE(described, nullptr);
  const base::Json state = base::parse_json(
      {reinterpret_cast<const char*>(file.data(*described)), static_cast<size_t>(described->bytes())},
      "state");
  EXPECT_EQ(state.at("quant_type"), "nf4");
  EXPECT_EQ(state.at("blocksize"), 64);
  EXPECT_EQ(state.at("dtype"), "bfloat16");
  EXPECT_EQ(state.at("shape"), (std::vector<int64_t>{20, 12}));
  EXPECT_EQ(state.at("nested_blocksize"), 256);
  EXPECT_GT(state.at("nested_offset"), 0);
  std::vector<float> map(256);
  std::memcpy(map.data(), file.data(*file.find(name + ".nested_quant_map")), 1024);
  EXPECT_TRUE(std::ranges::is_sorted(map));
  // The ends and some values between them of bitsandbytes' create_dynamic_map().
  EXPECT_FLOAT_EQ(map.front(), -0.992968738079071F);
  EXPECT_FLOAT_EQ(map[127], 0.0F);
  EXPECT_FLOAT_EQ(map[128], 5.5e-7F);
  EXPECT_FLOAT_EQ(map.back(), 1.0F);
  const base::Json config = base::read_json(root / "model/config.json").at("quantization_config");
  EXPECT_EQ(config.at("quant_method"), "bitsandbytes");
  EXPECT_EQ(config.at("load_in_4bit"), true);
  EXPECT_EQ(config.at("bnb_4bit_use_double_quant"), true);
  EXPECT_THAT(config.at("llm_int8_skip_modules"), Contains("lm_head"));
  EXPECT_EQ(file.find("lm_head.weight")->format_type, "BF16");
  EXPECT_EQ(file.find("model.layers.0.input_layernorm.weight")->format_type, "BF16");
}

TEST(QuantizedExport, OfExpertsIsRefused) {
  const TestDirectory root;
  model::Outline outline = model::exported_outline();
  outline.experts = {.count = 3, .per_token = 2, .hidden = 6};
  const model::ParameterTable table = model::parameter_table(outline);
  EXPECT_THAT(message_of<base::InputError>([&] {
                export_hugging_face(root / "model", table, values_by_row(table),
                                    options_of(Quantization::kNf4));
              }),
              HasSubstr("has experts, whose matrices bitsandbytes does not quantise"));
  EXPECT_FALSE(fs::exists(root / "model"));
  EXPECT_THAT(message_of<base::InputError>([] { quantization_of("nf5"); }), HasSubstr("'nf5': give nf4"));
}

struct Bytes {
  TensorInfo info;
  std::string bytes;
};

// Codes whose shape, maxima or description do not belong to the matrix are named.
TEST(QuantizedExport, CodesOfAWrongShapeAreNamed) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(model::exported_outline());
  const fs::path path = root / "model/model.safetensors";
  export_hugging_face(root / "model", table, values_by_row(table), options_of(Quantization::kNf4));
  std::vector<Bytes> tensors;
  {
    const SafetensorsFile file(path);
    for (const TensorInfo& info : file.tensors())
      tensors.push_back({info,
                         {reinterpret_cast<const char*>(file.data(info)),
                          static_cast<size_t>(info.end_byte - info.begin_byte)}});
  }
  const std::string name = "model.layers.1.self_attn.o_proj.weight";  // [12, 16]
  const auto fault = [&](const std::string& end, const std::function<void(Bytes&)>& change) {
    std::vector<Bytes> changed = tensors;
    for (Bytes& tensor : changed) {
      if (tensor.info.name == name + end) change(tensor);
    }
    std::vector<TensorInfo> infos;
    for (const Bytes& tensor : changed) infos.push_back(tensor.info);
    fs::remove(path);
    SafetensorsWriter writer(path, infos);
    for (const Bytes& tensor : changed) writer.write(tensor.bytes.data(), std::ssize(tensor.bytes));
    writer.finish();
    return message_of<base::InputError>([&] { HuggingFaceModel(root / "model"); });
  };
  const auto shorter = [](Bytes& tensor) {
    const int64_t each = std::ssize(tensor.bytes) / tensor.info.shape.front();
    --tensor.info.shape.front();
    tensor.bytes.resize(tensor.bytes.size() - static_cast<size_t>(each));
  };
  EXPECT_THAT(fault("", shorter), HasSubstr(name + "' is U8 [95, 1], expected U8 of 96 elements"));
  EXPECT_THAT(fault(".absmax", shorter), HasSubstr("absmax' is F32 [2], expected F32 of 3 elements"));
  EXPECT_THAT(fault(".quant_map", shorter), HasSubstr("quant_map' is F32 [15], expected F32 of 16"));
  EXPECT_THAT(fault(".absmax", [](Bytes& tensor) { tensor.info.name += "é"; }),
              HasSubstr(name + ".absmax' is missing beside '" + name));
  EXPECT_THAT(fault(Nf4Matrix::kState,
                    [](Bytes& tensor) { tensor.bytes.replace(tensor.bytes.find("[12,16]"), 7, "[16,12]"); }),
              HasSubstr("has shape [16, 12], config.json asks for [12, 16]"));
  EXPECT_THAT(fault(Nf4Matrix::kState, [](Bytes& tensor) { tensor.bytes[0] = '['; }), HasSubstr(name));
}

}  // namespace
}  // namespace sluice::checkpoint
