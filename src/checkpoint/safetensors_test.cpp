#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "checkpoint/test_directory.h"

namespace sluice::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + header + data;
}

std::string fault_of(const TestDirectory& directory, const std::string& bytes) {
  base::write_file_atomically(directory / "x.safetensors", bytes);
  return message_of<base::InputError>([&] { SafetensorsFile(directory / "x.safetensors"); });
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TestDirectory directory;
  const std::vector<float> a = {1, -2, 3, 4, 5, 6};
  const std::vector<double> b = {0.5, 1e300};
  SafetensorsWriter writer(directory / "t.safetensors",
                           {{.name = "a", .type = TensorType::kFloat32, .shape = {2, 3}},
                            {.name = "empty", .type = TensorType::kFloat32, .shape = {0, 3}},
                            {.name = "b", .type = TensorType::kFloat64, .shape = {2}}},
                           {{"format", "pt"}});
  writer.write(a.data(), 8);
  writer.write(a.data() + 2, 16);
  writer.write(b.data(), 16);
  EXPECT_FALSE(std::filesystem::exists(directory / "t.safetensors")) << "not before finish()";
  writer.finish();

  const SafetensorsFile file(directory / "t.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 3U);
  const TensorInfo& tensor = file.require("a", TensorType::kFloat32, {2, 3});
  EXPECT_EQ(std::memcmp(file.data(tensor), a.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.data(*file.find("b")), b.data(), 16), 0);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, RequireNamesWhatDiffers) {
  const TestDirectory directory;
  base::write_file_atomically(
      directory / "x.safetensors",
      with_header(R"({"w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x')));
  const SafetensorsFile file(directory / "x.safetensors");
  EXPECT_EQ(file.tensors().front().type, TensorType::kOther);
  const auto fault = [&](const char* name, std::vector<int64_t> shape) {
    return message_of<base::InputError>([&] { (void)file.require(name, TensorType::kFloat32, shape); });
  };
  EXPECT_THAT(fault("v", {2}), AllOf(HasSubstr("x.safetensors"), HasSubstr("'v' is missing")));
  EXPECT_THAT(fault("w", {3}), HasSubstr("is I32 [2], expected F32 [3]"));
}

TEST(Safetensors, DamagedFilesAreRefused) {
  const TestDirectory directory;
  const std::string eight(8, 'x');
  const auto one = [](const char* entry) { return std::string(R"({"w":)") + entry + "}"; };
  EXPECT_THAT(fault_of(directory, "abc"), HasSubstr("3 bytes are no safetensors file"));
  EXPECT_THAT(fault_of(directory, std::string(16, '\xFF')), HasSubstr("the header claims"));
  EXPECT_THAT(fault_of(directory, with_header("{", "")), HasSubstr("is not JSON"));
  EXPECT_THAT(fault_of(directory, with_header("[]", "")), HasSubstr("no JSON object"));
  EXPECT_THAT(fault_of(directory, with_header(one(R"({"dtype":"F32","shape":[2]})"), eight)),
              HasSubstr("'data_offsets' is missing"));
  EXPECT_THAT(
      fault_of(directory, with_header(one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), eight)),
      HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(
      fault_of(directory, with_header(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), eight)),
      HasSubstr("[0, 8] do not fit shape [3]"));
  EXPECT_THAT(
      fault_of(directory, with_header(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), eight)),
      HasSubstr("-2, not a size"));
  EXPECT_THAT(
      fault_of(
          directory,
          with_header(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), eight)),
      HasSubstr("do not fit shape"));
  EXPECT_THAT(
      fault_of(directory, with_header(one(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), eight)),
      HasSubstr("behind a gap"));
  EXPECT_THAT(
      fault_of(directory, with_header(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "short")),
      HasSubstr("need 8 bytes but the file holds 5"));
  EXPECT_THAT(fault_of(directory, with_header(R"({"v":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                                              R"("w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                              eight)),
              HasSubstr("inside another one"));
}

// The types of the format, of which Sluice computes with four.
TEST(Safetensors, EveryTypeOfTheFormatIsKnown) {
  const TestDirectory directory;
  const std::pair<const char*, int> sizes[] = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  for (const auto& [type, bits] : sizes) {
    const std::string header =
        base::text(R"({"t":{"dtype":")", type, R"(","shape":[4],"data_offsets":[0,)", bits / 2, "]}}");
    base::write_file_atomically(directory / "x.safetensors",
                                with_header(header, std::string(static_cast<size_t>(bits / 2), 'x')));
    const SafetensorsFile file(directory / "x.safetensors");
    EXPECT_EQ(file.tensors().front().type_name(), std::string(type));
    EXPECT_EQ(file.tensors().front().bytes(), bits / 2);
  }
  EXPECT_THAT(
      fault_of(directory, with_header(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx")),
      HasSubstr("do not fit shape [3] of F4"));
  EXPECT_THAT(
      fault_of(directory, with_header(R"({"t":{"dtype":"F5","shape":[3],"data_offsets":[0,2]}})", "xx")),
      AllOf(HasSubstr("unknown dtype 'F5'"), testing::Not(HasSubstr("damaged"))));
}

TEST(Safetensors, HeadersMayHoldMoreThanTensors) {
  const TestDirectory directory;
  base::write_file_atomically(
      directory / "x.safetensors",
      with_header(
          R"({"__metadata__":{"a":"b","n":3,"deep":{"dtype":[1,[2]]}},"t":{"note":[1,[2],{"shape":"no"}],)"
          R"("dtype":"U8","shape":[],"data_offsets":[0,1],"more":{"dtype":3}}})",
          "x"));
  const SafetensorsFile file(directory / "x.safetensors");
  EXPECT_EQ(file.metadata().at("a"), "b");
  EXPECT_EQ(file.tensors().front().elements(), 1);
  EXPECT_THAT(fault_of(directory, with_header(R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                              R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                              "")),
              HasSubstr("'t' stands there twice"));
}

// Mutated, cut and spliced files are read or refused; sanitizers find any access outside.
TEST(Safetensors, RandomDamageNeverCrashes) {
  const TestDirectory directory;
  const std::string whole = with_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
      std::string(32, '\x3F'));
  const std::string alphabet = "{}[]\",:0123456789-eE.BF\\ x";
  int accepted = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    base::Rng rng(seed);
    std::string bytes = whole;
    for (uint64_t i = rng.between(1, 4); i > 0; --i) {
      const uint64_t at = rng.below(bytes.size());
      switch (rng.below(4)) {
        case 0: bytes[at] = static_cast<char>(rng.bits()); break;
        case 1: bytes[at] = alphabet[rng.below(alphabet.size())]; break;
        case 2: bytes.resize(at + 1); break;
        default: bytes.insert(at, 1, alphabet[rng.below(alphabet.size())]); break;
      }
    }
    const std::filesystem::path path = directory / "fuzz.safetensors";
    // No sync to disk, and no truncation, which some file systems sync: this loop writes thousands of files.
    std::filesystem::remove(path);
    if (std::FILE* out = std::fopen(path.c_str(), "wb"); out != nullptr) {
      std::fwrite(bytes.data(), 1, bytes.size(), out);
      std::fclose(out);
    }
    try {
      const SafetensorsFile file(path);
      unsigned touched = 0;
      for (const TensorInfo& tensor : file.tensors()) {
        for (int64_t byte = 0; byte < tensor.end_byte - tensor.begin_byte; ++byte) {
          touched += static_cast<unsigned>(file.data(tensor)[byte]);
        }
      }
      accepted += touched > 0 ? 1 : 0;
    } catch (const base::InputError&) {
    }
  }
  EXPECT_GT(accepted, 0) << "some damage hits only data or names";
}

TEST(TensorType, SixteenBitValuesWidenExactly) {
  const std::vector<uint16_t> half = {0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0x7C00};
  std::vector<float> values(half.size());
  to_floats(reinterpret_cast<const std::byte*>(half.data()), TensorType::kFloat16,
            static_cast<int64_t>(half.size()), values.data());
  EXPECT_THAT(values, ElementsAre(0.0F, -0.0F, 0x1p-24F, 1023 * 0x1p-24F, 0x1p-14F, 1.0F, -2.0F, 65504.0F,
                                  std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::signbit(values[1]));
}

TEST(TensorType, BFloat16RoundsToNearestEvenAndBack) {
  EXPECT_EQ(to_bfloat16(1.0F), 0x3F80);
  EXPECT_EQ(to_bfloat16(1.00390625F), 0x3F80);  // half-way, to even
  EXPECT_EQ(to_bfloat16(1.01171875F), 0x3F82);  // half-way, to even
  EXPECT_EQ(to_bfloat16(1.004F), 0x3F81);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), 0x7F80);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    float value = 0;
    to_floats(reinterpret_cast<const std::byte*>(&word), TensorType::kBFloat16, 1, &value);
    if (std::isnan(value)) {
      EXPECT_NE(to_bfloat16(value) & 0x7F, 0);
    } else {
      EXPECT_EQ(to_bfloat16(value), word);
    }
  }
}

}  // namespace
}  // namespace sluice::checkpoint
