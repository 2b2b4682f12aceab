#include "checkpoint/conversion.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"

namespace sluice::checkpoint {
namespace {

void fill(int bucket, base::Interval interval, float* values) {
  for (int64_t e = interval.begin; e < interval.end; ++e) {
    values[e - interval.begin] =
        static_cast<float>(base::random_normal(9, static_cast<uint64_t>(bucket), static_cast<uint64_t>(e)));
  }
}

TEST(Conversion, ImportThenExportReturnsTheSameBytes) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(
      {.layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 12, .vocab = 19});
  export_hugging_face(directory / "a", table, fill);
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  EXPECT_EQ(latest(directory / "checkpoints")->step, 0);
  checkpoint.require_model(table.shape, TensorType::kFloat32);
  float moment = 1;
  checkpoint.read(2, {5, 6}, State::kExpAvgSq, &moment);
  EXPECT_EQ(moment, 0);
  export_checkpoint(checkpoint, directory / "b");
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(base::read_file(directory / "a" / file), base::read_file(directory / "b" / file)) << file;
  }
}

}  // namespace
}  // namespace sluice::checkpoint
