#include "checkpoint/nf4.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "checkpoint/test_directory.h"
#include "model/weight_blocks.h"

namespace sluice::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct CodedTensor {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
};
using CodedTensors = std::map<std::string, CodedTensor>;

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

constexpr int64_t kRows = 4, kColumns = 96;  // six blocks of 64
constexpr int64_t kBlocks = kRows * kColumns / 64;

std::string state(const std::string& more) {
  return R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [4, 96])" + more + "}";
}

// Code i modulo 16 at place i; each block's maximum is its number and a half.
CodedTensors matrix() {
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < kRows * kColumns; i += 2)
    codes.push_back(static_cast<uint8_t>(i % 16 << 4 | (i + 1) % 16));
  std::vector<float> maxima;
  for (int64_t block = 0; block < kBlocks; ++block) maxima.push_back(static_cast<float>(block) + 0.5F);
  const std::vector<float> map(model::kNf4Values.begin(), model::kNf4Values.end());
  const std::string text = state("");
  return {{"w", {"U8", {std::ssize(codes), 1}, bytes_of(codes)}},
          {"w.absmax", {"F32", {kBlocks}, bytes_of(maxima)}},
          {"w.quant_map", {"F32", {16}, bytes_of(map)}},
          {std::string("w") + Nf4Matrix::kState, {"U8", {std::ssize(text)}, text}}};
}

// The same with maxima in 8 bits: code c of block b stands for c / 4 times 2 to its group of two, plus 0.25.
CodedTensors nested_matrix() {
  CodedTensors tensors = matrix();
  std::vector<uint8_t> codes;
  for (int64_t block = 0; block < kBlocks; ++block) codes.push_back(static_cast<uint8_t>(block + 1));
  std::vector<float> map;
  for (int code = 0; code < 256; ++code) map.push_back(static_cast<float>(code) / 4);
  const std::string text =
      state(R"(, "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.25)");
  tensors["w.absmax"] = {"U8", {kBlocks}, bytes_of(codes)};
  tensors["w.nested_absmax"] = {"F32", {3}, bytes_of(std::vector<float>{1, 2, 4})};
  tensors["w.nested_quant_map"] = {"F32", {256}, bytes_of(map)};
  tensors[std::string("w") + Nf4Matrix::kState] = {"U8", {std::ssize(text)}, text};
  return tensors;
}

std::vector<float> values_of(const CodedTensors& tensors,
                             const std::vector<int64_t>& shape = {kRows, kColumns}) {
  const TestDirectory directory;
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back(
        {.name = name, .type = TensorType::kOther, .shape = tensor.shape, .format_type = tensor.type});
  SafetensorsWriter writer(directory / "model.safetensors", infos);
  for (const auto& [name, tensor] : tensors) writer.write(tensor.bytes.data(), std::ssize(tensor.bytes));
  writer.finish();
  const SafetensorsFile file(directory / "model.safetensors");
  const auto part = [&](const std::string& name) -> Nf4Matrix::Tensor {
    const TensorInfo* info = file.find(name);
    return info == nullptr ? Nf4Matrix::Tensor{} : Nf4Matrix::Tensor{&file, info};
  };
  const Nf4Matrix matrix(part("w"), shape, part);
  std::vector<float> values(kRows * kColumns);
  matrix.read(0, 50, values.data());
  matrix.read(50, std::ssize(values) - 50, values.data() + 50);
  return values;
}

TEST(Nf4, NumbersAreQuantilesTimesTheirBlocksMaxima) {
  const std::vector<float> values = values_of(matrix());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], model::kNf4Values[i % 16] * (static_cast<float>(i / 64) + 0.5F)) << i;
}

TEST(Nf4, MaximaMayBeQuantisedThemselves) {
  const std::vector<float> values = values_of(nested_matrix());
  constexpr float kScales[] = {1, 2, 4};
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i / 64;
    const float maximum = static_cast<float>(block + 1) / 4 * kScales[block / 2] + 0.25F;
    EXPECT_EQ(values[i], model::kNf4Values[i % 16] * maximum) << i;
  }
}

std::string fault_of(const CodedTensors& tensors, const std::vector<int64_t>& shape = {kRows, kColumns}) {
  try {
    values_of(tensors, shape);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Nf4, WhatIsMissingOrOfAWrongShapeIsNamed) {
  for (const char* part :
       {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", Nf4Matrix::kState}) {
    CodedTensors tensors = nested_matrix();
    tensors.erase(std::string("w") + part);
    EXPECT_THAT(fault_of(tensors),
                AllOf(HasSubstr(std::string("'w") + part + "' is missing"), HasSubstr("BF16")));
  }
  EXPECT_THAT(fault_of(matrix(), {8, 48}), AllOf(HasSubstr("[4, 96]"), HasSubstr("[8, 48]")));
  CodedTensors short_maxima = matrix();
  short_maxima["w.absmax"] = {"F32", {2}, bytes_of(std::vector<float>{1, 2})};
  EXPECT_THAT(fault_of(short_maxima),
              AllOf(HasSubstr("w.absmax"), HasSubstr("F32 [2]"), HasSubstr("of 6 elements")));
  CodedTensors codes = matrix();
  codes["w"].bytes.pop_back();
  codes["w"].shape = {std::ssize(codes["w"].bytes)};
  EXPECT_THAT(fault_of(codes), AllOf(HasSubstr("'w' is U8 [191]"), HasSubstr("U8 of 192 elements")));
  CodedTensors state = matrix();
  state[std::string("w") + Nf4Matrix::kState] = {"U8", {1}, "{"};
  EXPECT_THAT(fault_of(state), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace sluice::checkpoint
