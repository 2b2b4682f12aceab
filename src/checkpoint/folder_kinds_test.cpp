// Folders that hold more than a language model's tensors of one type. Tests which tensors are read or
// carried, and that an import and an export give them back.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/carried.h"
#include "checkpoint/conversion.h"
#include "checkpoint/find.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_directory.h"
#include "model/config_json.h"
#include "model/test_mtp.h"
#include "model/test_outline.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Json;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct TensorBytes {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const TensorBytes&) const = default;
};
using FolderTensors = std::map<std::string, TensorBytes>;

FolderTensors read_folder_file(const fs::path& path) {
  FolderTensors tensors;
  const SafetensorsFile file(path);
  for (const TensorInfo& info : file.tensors()) {
    const auto* const data = reinterpret_cast<const char*>(file.data(info));
    tensors[info.name] = {info.format_type, info.shape, {data, data + (info.end_byte - info.begin_byte)}};
  }
  return tensors;
}

void write_folder_file(const fs::path& path, const FolderTensors& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back(
        {.name = name, .type = TensorType::kOther, .shape = tensor.shape, .format_type = tensor.type});
  SafetensorsWriter writer(path, infos);
  for (const auto& [name, tensor] : tensors) writer.write(tensor.bytes.data(), std::ssize(tensor.bytes));
  writer.finish();
}

void narrow_tensor(TensorBytes& tensor) {
  std::string narrow;
  for (size_t i = 0; i < tensor.bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + i, 4);
    const uint16_t bits = to_bfloat16(value);
    narrow.append(reinterpret_cast<const char*>(&bits), 2);
  }
  tensor = {"BF16", tensor.shape, narrow};
}

void fill_normal(int bucket, base::Interval interval, float* values) {
  for (int64_t e = interval.begin; e < interval.end; ++e)
    values[e - interval.begin] =
        static_cast<float>(base::random_normal(7, static_cast<uint64_t>(bucket), static_cast<uint64_t>(e)));
}

class FolderKinds : public testing::Test {
 protected:
  // A folder of this shape, with `config` for its own, and its tensors.
  FolderTensors make(const model::Outline& outline, Json config = nullptr) {
    export_hugging_face(folder(), model::parameter_table(outline), fill_normal);
    if (!config.is_null()) base::write_json(folder() / "config.json", config);
    return read_folder_file(folder() / "model.safetensors");
  }
  void put(const FolderTensors& tensors) const { write_folder_file(folder() / "model.safetensors", tensors); }
  std::string fault() const {
    return message_of<base::InputError>([&] { HuggingFaceModel{folder()}; });
  }
  // Imports the folder and exports the checkpoint.
  fs::path again(const ExportOptions& options = {}) const {
    const fs::path directory = import_checkpoint(HuggingFaceModel(folder()), directory_ / "imported");
    Checkpoint checkpoint(directory);
    export_checkpoint(checkpoint, directory_ / "out", options);
    fs::remove_all(directory_ / "imported");
    return directory_ / "out";
  }
  fs::path folder() const { return directory_ / "m"; }

  TestDirectory directory_;
};

// A multimodal model's config.json around a language model's.
Json wrapped(const model::Outline& outline) {
  Json text = model::config_json(outline);
  text["max_position_embeddings"] = 64;
  text.erase("architectures");
  return {{"architectures", {"Mistral3ForConditionalGeneration"}},
          {"model_type", "mistral3"},
          {"dtype", "float32"},
          {"image_token_index", 10},
          {"text_config", text},
          {"tie_word_embeddings", outline.tie_embeddings},
          {"vision_config", {{"depth", 2}}}};
}

model::Outline mistral(bool tied) {
  Json config = model::config_json(model::exported_outline(tied));
  config.update(
      {{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"sliding_window", nullptr}});
  return model::outline_from_hugging_face(config, "config.json");
}

FolderTensors renamed(const FolderTensors& tensors, const std::string& trunk, const std::string& head) {
  FolderTensors changed;
  for (const auto& [name, tensor] : tensors) {
    const bool in_trunk = name.starts_with("model.");
    changed[in_trunk ? trunk + name.substr(6) : head + name.substr(8)] = tensor;
  }
  return changed;
}

TEST_F(FolderKinds, MultimodalFoldersOpenAndComeBackWhole) {
  const std::pair<std::string, std::string> names[] = {{"model.language_model.", "lm_head."},
                                                       {"language_model.model.", "language_model.lm_head."}};
  for (const auto& [trunk, head] : names) {
    fs::remove_all(folder());
    fs::remove_all(directory_ / "out");
    FolderTensors tensors = renamed(make(mistral(false), wrapped(mistral(false))), trunk, head);
    tensors["vision_tower.patch.weight"] = {"F16", {3, 2}, std::string("abcdefghijkl")};
    tensors["model.visual.odd"] = {"U8", {5}, std::string("12345")};
    tensors["mtp.fc.weight"] = {"BF16", {1, 2}, std::string("wxyz")};
    put(tensors);
    base::write_file_atomically(folder() / "preprocessor_config.json", "{\"size\": 4}");
    base::make_directories(folder() / "assets");
    base::write_file_atomically(folder() / "assets/any.bytes", std::string("\0\1\2", 3));
    const HuggingFaceModel model(folder());
    EXPECT_EQ(model.weights().names().trunk, trunk);
    EXPECT_EQ(model.weights().carried().size(), 3U);
    const fs::path out = again();
    EXPECT_EQ(read_folder_file(out / "model.safetensors"), tensors) << trunk;
    EXPECT_EQ(base::read_json(out / "config.json"), base::read_json(folder() / "config.json"));
    EXPECT_EQ(base::read_file(out / "preprocessor_config.json"), "{\"size\": 4}");
    EXPECT_EQ(base::read_file(out / "assets/any.bytes"), std::string("\0\1\2", 3));
    for (const auto& entry : fs::directory_iterator(out))
      EXPECT_FALSE(entry.path().filename().string().starts_with("sluice")) << entry.path();
    fs::remove_all(out);
    again({.max_shard_bytes = 1000});
    FolderTensors sharded;
    for (const auto& entry : fs::directory_iterator(out)) {
      if (entry.path().extension() == ".safetensors") sharded.merge(read_folder_file(entry.path()));
    }
    EXPECT_EQ(sharded, tensors);
    EXPECT_EQ(HuggingFaceModel(out).weights().carried().size(), 3U);
  }
}

TEST_F(FolderKinds, AdaptersOfAMultimodalModelAreCalledByItsModules) {
  model::Outline outline = mistral(true);
  outline.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj"}};
  ExportOptions options;
  options.record.names.trunk = "language_model.model.";
  export_adapters(folder(), model::parameter_table(outline), fill_normal, "base", options);
  EXPECT_TRUE(read_folder_file(folder() / "adapter_model.safetensors")
                  .contains("base_model.model.model.language_model.layers.1.self_attn.q_proj.lora_B.weight"));
  EXPECT_EQ(base::read_json(folder() / "adapter_config.json").at("target_modules"),
            R"(model\.language_model\..*\.(q_proj))");
}

TEST_F(FolderKinds, TensorsKeepTheTypesThatTheirFolderMixes) {
  FolderTensors tensors = make(model::exported_outline(false));
  for (auto& [name, tensor] : tensors) {
    if (!name.ends_with("norm.weight")) narrow_tensor(tensor);
  }
  put(tensors);
  EXPECT_EQ(HuggingFaceModel(folder()).type(), TensorType::kBFloat16);
  EXPECT_EQ(read_folder_file(again({.type = TensorType::kBFloat16}) / "model.safetensors"), tensors);
  fs::remove_all(directory_ / "out");
  const FolderTensors wide = read_folder_file(again() / "model.safetensors");
  EXPECT_EQ(wide.at("lm_head.weight").type, "F32");
}

TEST_F(FolderKinds, HalvesComeBackAsHalvesAndNothingOverflows) {
  FolderTensors tensors = make(model::exported_outline(false));
  for (auto& [name, tensor] : tensors) {
    std::string halves;
    for (size_t i = 0; i < tensor.bytes.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + i, 4);
      const uint16_t bits = to_float16(i == 0 ? 65504.0F : i == 4 ? 0x1p-24F : value);
      halves.append(reinterpret_cast<const char*>(&bits), 2);
    }
    tensor = {"F16", tensor.shape, halves};
  }
  put(tensors);
  EXPECT_EQ(read_folder_file(again({.type = TensorType::kFloat16}) / "model.safetensors"), tensors);
  const auto large = [](int bucket, base::Interval interval, float* values) {
    fill_normal(bucket, interval, values);
    if (bucket == 1) values[0] = 65520.0F;
  };
  EXPECT_THAT(message_of<base::InputError>([&] {
                export_hugging_face(directory_ / "large",
                                    model::parameter_table(model::exported_outline(false)), large,
                                    {.type = TensorType::kFloat16});
              }),
              AllOf(HasSubstr("model.layers.0."), HasSubstr("65520"), HasSubstr("bfloat16")));
}

TEST_F(FolderKinds, AHeadThatIsNotTheEmbeddingIsNotLost) {
  FolderTensors tensors = make(model::exported_outline(true));
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {2}, std::string(8, 'x')};
  put(tensors);
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(read_folder_file(again() / "model.safetensors"), tensors)
      << "an equal head and buffers come back";
  tensors.at("lm_head.weight").bytes[5] ^= 1;
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr("'lm_head.weight' differs from 'model.embed_tokens.weight'"),
                             HasSubstr("tie_word_embeddings to false")));
}

TEST_F(FolderKinds, TensorsOfNoKnownPartAreRefused) {
  FolderTensors tensors = make(model::exported_outline(false));
  for (const char* name : {"model.layers.2.mlp.up_proj.weight", "vision.weight", "model.extra"}) {
    FolderTensors more = tensors;
    more[name] = {"F32", {1}, std::string(4, 'x')};
    put(more);
    EXPECT_THAT(fault(), HasSubstr(std::string("'") + name + "' is not part of this model"));
  }
}

// Transposes an F32 tensor [a, b, c] to [a, c, b].
TensorBytes with_last_two_turned(const TensorBytes& tensor) {
  const auto rows = static_cast<size_t>(tensor.shape[1]), columns = static_cast<size_t>(tensor.shape[2]);
  TensorBytes turned{tensor.type, {tensor.shape[0], tensor.shape[2], tensor.shape[1]}, ""};
  for (size_t matrix = 0; matrix < static_cast<size_t>(tensor.shape[0]); ++matrix) {
    for (size_t column = 0; column < columns; ++column) {
      for (size_t row = 0; row < rows; ++row)
        turned.bytes += tensor.bytes.substr(4 * ((matrix * rows + row) * columns + column), 4);
    }
  }
  return turned;
}

model::Outline three_experts() {
  Json config = model::config_json(model::exported_outline(false));
  config.update({{"model_type", "qwen3_moe"},
                 {"architectures", {"Qwen3MoeForCausalLM"}},
                 {"num_experts", 3},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 5}});
  return model::outline_from_hugging_face(config, "config.json");
}

// A message names the expert's tensor that is at fault, and no other expert's.
TEST_F(FolderKinds, FaultsOfOneExpertNameItsTensorAlone) {
  const FolderTensors tensors = make(three_experts());
  const std::string name = "model.layers.1.mlp.experts.2.up_proj.weight";
  const auto fault_with = [&](auto change) {
    FolderTensors changed = tensors;
    change(changed);
    put(changed);
    return fault();
  };
  const auto one_expert = Not(AnyOf(HasSubstr("experts.0"), HasSubstr("experts.1"), HasSubstr("gate_proj")));
  EXPECT_THAT(fault_with([&](FolderTensors& all) { all.erase(name); }),
              AllOf(HasSubstr("'" + name + "' is missing"), one_expert));
  EXPECT_THAT(
      fault_with([&](FolderTensors& all) { std::swap(all.at(name).shape[0], all.at(name).shape[1]); }),
      AllOf(HasSubstr(name), HasSubstr("has shape [12, 5], config.json asks for [5, 12]"), one_expert));
  EXPECT_THAT(fault_with([&](FolderTensors& all) {
                all["model.layers.1.mlp.experts.3.up_proj.weight"] = all.at(name);
              }),
              AllOf(HasSubstr("'model.layers.1.mlp.experts.3.up_proj.weight' is not part"), one_expert));
}

// Files hold a tensor for each expert, or one of all experts in either layout.
TEST_F(FolderKinds, ExpertsMayBeStacked) {
  const model::Outline outline = three_experts();
  const FolderTensors single = make(outline);
  FolderTensors stacked = single;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string path = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    TensorBytes gate_up{"F32", {3, 10, 12}, ""}, down{"F32", {3, 12, 5}, ""};
    for (int expert = 0; expert < 3; ++expert) {
      const auto take = [&](const char* part) {
        const std::string name = path + std::to_string(expert) + "." + part + ".weight";
        std::string bytes = stacked.at(name).bytes;
        stacked.erase(name);
        return bytes;
      };
      gate_up.bytes += take("gate_proj");
      gate_up.bytes += take("up_proj");
      down.bytes += take("down_proj");
    }
    stacked[path + "gate_up_proj"] = gate_up;
    stacked[path + "down_proj"] = down;
  }
  const model::ParameterTable table = model::parameter_table(outline);
  const auto values = [&] {
    const HuggingFaceModel model(folder());
    std::vector<float> all(static_cast<size_t>(table.layer(1).size));
    model.read(table.layer(1).index, {0, table.layer(1).size}, all.data());
    return all;
  };
  const std::vector<float> expected = values();
  put(stacked);
  EXPECT_EQ(values(), expected);
  EXPECT_EQ(read_folder_file(again() / "model.safetensors"), stacked);
  for (auto& [name, tensor] : stacked)
    if (name.find(".experts.") != std::string::npos) tensor = with_last_two_turned(tensor);
  put(stacked);
  fs::remove_all(directory_ / "out");
  EXPECT_EQ(values(), expected);
  EXPECT_EQ(read_folder_file(again() / "model.safetensors"), stacked);
}

// Matrices in 8 bits with a scale for each block: here of 2 x 3, so that the last blocks are cut.
TEST_F(FolderKinds, BlockScaledMatricesAreReadAndWrittenWhole) {
  const model::Outline outline = model::exported_outline(false);
  FolderTensors tensors = make(outline);
  Json config = base::read_json(folder() / "config.json");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {2, 3}}};
  base::write_json(folder() / "config.json", config);
  const std::string name = "model.layers.1.mlp.gate_proj.weight";  // [20, 12]
  TensorBytes& matrix = tensors.at(name);
  matrix = {"F8_E4M3", matrix.shape, ""};
  std::vector<float> scales, expected;
  for (int i = 0; i < 10 * 4; ++i) scales.push_back(0.01F * static_cast<float>(i + 1));
  for (int row = 0; row < 20; ++row) {
    for (int column = 0; column < 12; ++column) {
      const auto bits = static_cast<uint8_t>((row * 12 + column) * 37 % 0x7F + (column % 2) * 0x80);
      matrix.bytes.push_back(static_cast<char>(bits));
      expected.push_back(from_float8(bits) * scales[static_cast<size_t>(row / 2 * 4 + column / 3)]);
    }
  }
  TensorBytes scale{"F32", {10, 4}, {reinterpret_cast<const char*>(scales.data()), 4 * scales.size()}};
  tensors[name + "_scale_inv"] = scale;
  put(tensors);
  const HuggingFaceModel model(folder());
  EXPECT_TRUE(model.weights().quantised());
  const fs::path out = again();
  const TensorBytes wide = read_folder_file(out / "model.safetensors").at(name);
  EXPECT_EQ(wide.bytes, std::string(reinterpret_cast<const char*>(expected.data()), 4 * expected.size()));
  EXPECT_FALSE(base::read_json(out / "config.json").contains("quantization_config"));
  tensors.erase(name + "_scale_inv");
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr(name), HasSubstr("_scale_inv'")));
  scale.shape = {5, 8};
  tensors[name + "_scale_inv"] = scale;
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr("[5, 8]"), HasSubstr("weight_block_size")));
}

// Whole numbers times a maximum for each row over 127, as bitsandbytes' Linear8bitLt is saved.
TEST_F(FolderKinds, MatricesInInt8AreReadAndWrittenWhole) {
  FolderTensors tensors = make(model::exported_outline(false));
  const std::string module = "model.layers.1.mlp.gate_proj.", name = module + "weight";  // [20, 12]
  TensorBytes& matrix = tensors.at(name);
  matrix = {"I8", matrix.shape, ""};
  std::vector<float> maxima, expected;
  for (int row = 0; row < 20; ++row) {
    maxima.push_back(0.3F * static_cast<float>(row + 1));
    for (int column = 0; column < 12; ++column) {
      const int code = (row * 12 + column) * 37 % 255 - 127;
      matrix.bytes.push_back(static_cast<char>(code));
      expected.push_back(static_cast<float>(code) * maxima.back() * 0.007874015718698502F);
    }
  }
  const TensorBytes scb{"F32", {20}, {reinterpret_cast<const char*>(maxima.data()), 4 * maxima.size()}};
  tensors[module + "SCB"] = scb;
  tensors[module + "weight_format"] = {"U8", {}, std::string(1, '\0')};
  put(tensors);
  EXPECT_TRUE(HuggingFaceModel(folder()).weights().quantised());
  const TensorBytes wide = read_folder_file(again() / "model.safetensors").at(name);
  EXPECT_EQ(wide.bytes, std::string(reinterpret_cast<const char*>(expected.data()), 4 * expected.size()));
  tensors[module + "weight_format"].bytes = "\2";
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr("weight_format"), HasSubstr("codes do not lie by rows")));
  tensors.erase(module + "weight_format");
  tensors[module + "SCB"] = {"F32", {19}, scb.bytes.substr(4)};
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr("SCB"), HasSubstr("F32 [19]"), HasSubstr("of 20 elements")));
  tensors.erase(module + "SCB");
  put(tensors);
  EXPECT_THAT(fault(), AllOf(HasSubstr(name), HasSubstr("is I8 without its rows' maxima")));
}

TEST(Float8, HasItsExtremes) {
  EXPECT_EQ(from_float8(0x7E), 448.0F);
  EXPECT_EQ(from_float8(0x08), 0x1p-6F);
  EXPECT_EQ(from_float8(0x81), -0x1p-9F);
  EXPECT_TRUE(std::isnan(from_float8(0xFF)));
}

// A later checkpoint may need files that were removed with an earlier one.
TEST_F(FolderKinds, LargeCompanionsAreTakenFromACheckpointBeside) {
  const fs::path first = directory_ / "run/step-1/model", second = directory_ / "run/step-2/model";
  base::make_directories(first);
  base::write_file_atomically(first / "large.bin", "large");
  base::write_file_atomically(directory_ / "run/step-1/manifest.json", "{}");
  base::make_directories(directory_ / "run/step-2");
  const Companion gone{.name = "large.bin", .place = directory_ / "gone/large.bin"};
  write_companion(gone, second);
  EXPECT_EQ(base::read_file(second / "large.bin"), "large");
  EXPECT_THAT(message_of<base::RunError>([&] { write_companion(gone, directory_ / "other/step-1/model"); }),
              HasSubstr("gone/large.bin, which goes with the model, is gone"));
}

TEST_F(FolderKinds, WhatGoesWithAModelIsAllButWeightsAndData) {
  make(model::exported_outline(false));
  for (const char* name :
       {"tokenizer.json", "modeling_own.py", "LICENSE", "README.md", "consolidated.safetensors",
        "pytorch_model.bin", "corpus.bin", "corpus.idx", "corpus.mask", ".gitattributes"})
    base::write_file_atomically(folder() / name, name);
  base::make_directories(folder() / "run");
  base::write_file_atomically(folder() / "run/metrics.jsonl", "");
  std::vector<std::string> names, left_out;
  for (const Companion& companion : read_companions(folder(), &left_out)) names.push_back(companion.name);
  EXPECT_THAT(names, testing::ElementsAre("LICENSE", "README.md", "config.json", "modeling_own.py",
                                          "tokenizer.json"));
  EXPECT_THAT(left_out, testing::UnorderedElementsAre("consolidated.safetensors", "pytorch_model.bin"));
  EXPECT_TRUE(is_companion("assets/icon.png"));
  for (const char* bad : {"", "/etc/passwd", "../up", "a/../../b", "a/"})
    EXPECT_FALSE(is_companion(bad)) << bad;
}

// Its MTP layer trains, as layer 2, with experts.
model::Model with_mtp() {
  Json config = model::deepseek_config();
  config["max_position_embeddings"] = 64;
  return model::with_mtp(model::model_from_hugging_face(config, "config.json"));
}

constexpr const char* kEmbeddingOfMtp = "model.layers.2.embed_tokens.weight";
constexpr const char* kHeadOfMtp = "model.layers.2.shared_head.head.weight";

class FolderWithMtp : public FolderKinds {
 protected:
  FolderWithMtp() : table_(model::parameter_table(with_mtp())) {
    export_hugging_face(folder(), table_, fill_normal);
    tensors_ = read_folder_file(folder() / "model.safetensors");
    tensors_[kEmbeddingOfMtp] = tensors_.at("model.embed_tokens.weight");
    tensors_[kHeadOfMtp] = tensors_.at("lm_head.weight");
    put(tensors_);
  }
  std::string fault_in_training() const {
    return message_of<base::InputError>([&] { HuggingFaceModel(folder()).weights().require_mtp(table_); });
  }

  model::ParameterTable table_;
  FolderTensors tensors_;
};

TEST_F(FolderWithMtp, IsCarriedIfItDoesNotTrain) {
  EXPECT_EQ(read_folder_file(again() / "model.safetensors"), tensors_);
}

TEST_F(FolderWithMtp, IsReadAsItWasWritten) {
  const HuggingFaceModel model(folder());
  model.weights().require_mtp(table_);
  for (const model::Bucket& bucket : table_.buckets) {
    std::vector<float> expected(static_cast<size_t>(bucket.size)), found(expected.size());
    fill_normal(bucket.index, {0, bucket.size}, expected.data());
    model.read(bucket, {0, bucket.size}, found.data());
    EXPECT_EQ(found, expected) << bucket.index;
  }
}

// The copies of embedding and head beside it change with these.
TEST_F(FolderWithMtp, GoesBackTrainedUnderItsNames) {
  const HuggingFaceModel model(folder());
  const fs::path carried = directory_ / "carried.safetensors";
  write_carried(model.weights(), carried);
  ExportOptions options;
  options.companions = {{.name = std::string(kCarriedTensors), .place = carried}};
  options.record = model.record();
  const auto doubled = [](int bucket, base::Interval interval, float* values) {
    fill_normal(bucket, interval, values);
    for (int64_t i = 0; i < interval.size(); ++i) values[i] *= 2;
  };
  export_hugging_face(directory_ / "out", table_, doubled, options);
  const FolderTensors out = read_folder_file(directory_ / "out" / "model.safetensors");
  ASSERT_EQ(out.size(), tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    EXPECT_EQ(out.at(name).shape, tensor.shape) << name;
    EXPECT_NE(out.at(name).bytes, tensor.bytes) << name;
  }
  EXPECT_EQ(out.at(kEmbeddingOfMtp).bytes, out.at("model.embed_tokens.weight").bytes);
  EXPECT_EQ(out.at(kHeadOfMtp).bytes, out.at("lm_head.weight").bytes);
}

// As Qwen 3.5 MoE is published: one tensor for all experts of a layer, but one for each of the MTP layer's.
TEST_F(FolderWithMtp, MayHaveExpertsApartWhereOthersAreStacked) {
  const std::string layer = "model.layers.1.mlp.experts.";
  const auto joined = [&](const std::vector<std::string>& matrices) {
    std::string all;
    for (int expert = 0; expert < 4; ++expert) {
      for (const std::string& matrix : matrices)
        all += tensors_.at(layer + std::to_string(expert) + "." + matrix + ".weight").bytes;
    }
    return all;
  };
  FolderTensors stacked = tensors_;
  std::erase_if(stacked, [&](const auto& each) { return each.first.starts_with(layer); });
  stacked[layer + "gate_up_proj"] = {"F32", {4, 16, 12}, joined({"gate_proj", "up_proj"})};
  stacked[layer + "down_proj"] = {"F32", {4, 12, 8}, joined({"down_proj"})};
  put(stacked);
  const HuggingFaceModel model(folder());
  EXPECT_TRUE(model.weights().names().mtp_differs);
  model.weights().require_mtp(table_);
  ExportOptions options;
  options.record = folder_record({to_companion(model.record())});
  export_hugging_face(directory_ / "out", table_, fill_normal, options);
  stacked.erase(kEmbeddingOfMtp);
  stacked.erase(kHeadOfMtp);
  EXPECT_EQ(read_folder_file(directory_ / "out" / "model.safetensors"), stacked);
}

TEST_F(FolderWithMtp, IsNamedWhereItIsMissingOrHasAnEndOfItsOwn) {
  FolderTensors without = tensors_;
  without.erase("model.layers.2.eh_proj.weight");
  put(without);
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(fault_in_training(), HasSubstr("'model.layers.2.eh_proj.weight' of the MTP layer is missing"));
  FolderTensors other = tensors_;
  other.at(kHeadOfMtp).bytes[0] ^= 1;
  put(other);
  EXPECT_THAT(fault_in_training(), AllOf(HasSubstr(kHeadOfMtp), HasSubstr("differs from 'lm_head.weight'")));
}

TEST_F(FolderWithMtp, IsNamedWhereTheConfigurationDoesNotNameIt) {
  Json config = base::read_json(folder() / "config.json");
  config["num_nextn_predict_layers"] = 0;
  base::write_json(folder() / "config.json", config);
  EXPECT_THAT(fault(), AllOf(HasSubstr("is of layer 2, but config.json names 2 layers and 0 behind them"),
                             HasSubstr("set num_nextn_predict_layers to 1")));
}

}  // namespace
}  // namespace sluice::checkpoint
