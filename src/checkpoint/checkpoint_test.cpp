// Tests save and load together: one set of ranks writes, another reads.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "checkpoint/find.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"
#include "link/layout.h"
#include "model/test_outline.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

model::Outline small_shape() {
  model::Outline outline = model::saved_outline();
  outline.tie_embeddings = true;
  return outline;
}

// The value of an element, a pure function of where it belongs.
template <typename Element>
Element value_of(int bucket, int64_t element, State state) {
  return static_cast<Element>(base::random_normal(static_cast<uint64_t>(state), static_cast<uint64_t>(bucket),
                                                  static_cast<uint64_t>(element)));
}

template <typename Element>
FileRecord write_rank(const fs::path& directory, const model::ParameterTable& table, int ranks, int rank) {
  std::vector<std::vector<Element>> values;
  std::vector<OwnerState> states;
  for (const model::Bucket& bucket : table.buckets) {
    OwnerState state{.owned = link::OwnerLayout{ranks}.owned(bucket, rank)};
    for (const State kind : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
      std::vector<Element>& own = values.emplace_back();
      for (int64_t e = state.owned.begin; e < state.owned.end; ++e) {
        own.push_back(value_of<Element>(bucket.index, e, kind));
      }
    }
    state.master = values[values.size() - 3].data();
    state.exp_avg = values[values.size() - 2].data();
    state.exp_avg_sq = values[values.size() - 1].data();
    states.push_back(state);
  }
  const bool wide = sizeof(Element) == sizeof(double);
  return write_rank_file(directory, rank, wide ? TensorType::kFloat64 : TensorType::kFloat32, states);
}

template <typename Element>
fs::path save(const fs::path& root, int64_t step, int ranks, int keep = 2,
              const base::Json& evaluation = nullptr) {
  const model::ParameterTable table = model::parameter_table(small_shape());
  Manifest manifest{.step = step, .world_size = ranks, .model = small_shape()};
  manifest.type = sizeof(Element) == sizeof(double) ? TensorType::kFloat64 : TensorType::kFloat32;
  manifest.sampler = {{"epoch", 3}};
  manifest.calibration = {{"schemes", {1, 2}}};
  manifest.config = "[train]\nsteps = 100\n";
  manifest.evaluation = evaluation;
  const fs::path directory = prepare_save(root, step).path();
  for (int rank = 0; rank < ranks; ++rank) {
    manifest.files.push_back(write_rank<Element>(directory, table, ranks, rank));
  }
  commit_save(directory, manifest, {.count = keep});
  return directory;
}

template <typename Element>
void expect_values(Checkpoint& checkpoint, int bucket, base::Interval interval) {
  for (const State kind : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
    std::vector<Element> values(static_cast<size_t>(interval.size()));
    checkpoint.read(bucket, interval, kind, values.data());
    for (int64_t e = interval.begin; e < interval.end; ++e) {
      ASSERT_EQ(values[static_cast<size_t>(e - interval.begin)], value_of<Element>(bucket, e, kind));
    }
  }
}

std::vector<int64_t> steps_in(const fs::path& root) {
  std::vector<int64_t> steps;
  for (const SavedStep& saved : saved_steps(root)) steps.push_back(saved.step);
  return steps;
}

void overwrite_byte(const fs::path& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int old = file.get();
  file.seekp(at);
  file.put(static_cast<char>(old ^ 1));
}

std::string verify_fault(const fs::path& directory) {
  return message_of<base::InputError>([&] { Checkpoint(directory).verify(); });
}

TEST(Checkpoint, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(small_shape());
  for (const int writers : {1, 2, 3, 5, 8}) {
    const fs::path directory = save<float>(root.path(), writers, writers);
    for (const int readers : {1, 2, 4, 7}) {
      for (int rank = 0; rank < readers; ++rank) {
        Checkpoint checkpoint(directory);
        for (const model::Bucket& bucket : table.buckets) {
          expect_values<float>(checkpoint, bucket.index, link::OwnerLayout{readers}.owned(bucket, rank));
        }
      }
    }
  }
}

TEST(Checkpoint, DoublesAndRandomIntervals) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(small_shape());
  Checkpoint checkpoint(save<double>(root.path(), 4, 3));
  base::Rng rng(1);
  for (int trial = 0; trial < 100; ++trial) {
    const model::Bucket& bucket = table.buckets[rng.below(table.buckets.size())];
    const int64_t begin = rng.between(0, bucket.size - 1);
    expect_values<double>(checkpoint, bucket.index, {begin, rng.between(begin, bucket.size)});
  }
}

TEST(Checkpoint, ManifestKeepsWhatItWasGiven) {
  const TestDirectory root;
  const Checkpoint checkpoint(save<float>(root.path(), 7, 2));
  const Manifest& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_EQ(manifest.sampler.at("epoch"), 3);
  EXPECT_EQ(manifest.calibration.at("schemes").at(1), 2);
  EXPECT_EQ(manifest.config, "[train]\nsteps = 100\n");
  EXPECT_EQ(base::read_json(root / "step-7/manifest.json").at("schema"), "sluice.checkpoint/2");
  checkpoint.require_model(small_shape(), TensorType::kFloat32);
}

TEST(Checkpoint, MoreRanksThanElementsLeaveEmptyFiles) {
  const TestDirectory root;
  Checkpoint checkpoint(save<float>(root.path(), 1, 12));  // the final norm has 8 elements
  checkpoint.verify();
  expect_values<float>(checkpoint, 3, {0, 8});
}

TEST(Checkpoint, AnotherModelOrPrecisionIsRefused) {
  const TestDirectory root;
  Checkpoint checkpoint(save<float>(root.path(), 1, 1));
  model::Outline other = small_shape();
  other.ffn_hidden = 16;
  const auto fault = [&](const model::Outline& outline, TensorType type) {
    return message_of<base::InputError>([&] { checkpoint.require_model(outline, type); });
  };
  EXPECT_THAT(fault(other, TensorType::kFloat32), HasSubstr("ffn_hidden 12 but the run has 16"));
  EXPECT_THAT(fault(small_shape(), TensorType::kFloat64), HasSubstr("set train.dtype"));
  double value = 0;
  EXPECT_THAT(message_of<base::InputError>([&] {
                checkpoint.read(0, {0, 1}, State::kMaster, &value);
              }),
              HasSubstr("holds float32, not float64"));
}

TEST(Checkpoint, DamageIsNamed) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  const fs::path file = directory / "rank-0001.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(file));

  overwrite_byte(file, size - 5);
  EXPECT_THAT(verify_fault(directory), AllOf(HasSubstr("rank-0001.safetensors has checksum"),
                                             HasSubstr("resume from the step before")));
  overwrite_byte(file, size - 5);
  EXPECT_EQ(verify_fault(directory), "");

  fs::resize_file(file, static_cast<uintmax_t>(size - 4));
  EXPECT_THAT(verify_fault(directory), HasSubstr("the manifest says " + std::to_string(size)));
  fs::remove(file);
  EXPECT_THAT(verify_fault(directory), HasSubstr("rank-0001.safetensors is missing"));
  fs::create_directory(file);
  EXPECT_THAT(verify_fault(directory), HasSubstr("rank-0001.safetensors is missing, or no file"));
}

// The manifest as the format's first version would hold it.
base::Json unhashed(base::Json json) {
  json.erase("hash");
  json["schema"] = "sluice.checkpoint/1";
  return json;
}

TEST(Checkpoint, FieldsThatContradictEachOtherAreNamed) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  const fs::path path = directory / "manifest.json";
  const base::Json good = base::read_json(path);
  const auto fault = [&](auto change) {
    base::Json json = unhashed(good);
    change(json);
    base::write_json(path, json);
    return message_of<DamagedCheckpoint>([&] { Checkpoint(directory).verify(); });
  };
  EXPECT_THAT(fault([](base::Json& j) { j["schema"] = "sluice.checkpoint/9"; }), HasSubstr("schema is"));
  EXPECT_THAT(fault([](base::Json& j) { j["dtype"] = "int8"; }), HasSubstr("dtype is 'int8'"));
  EXPECT_THAT(fault([](base::Json& j) { j["dtype"] = "float64"; }), HasSubstr("is F32 [76], expected F64"));
  EXPECT_THAT(fault([](base::Json& j) { j["step"] = 2; }), HasSubstr("manifest.json is of step 2"));
  EXPECT_THAT(fault([](base::Json& j) { j["world_size"] = 3; }), HasSubstr("of 3 ranks has 2 files"));
  EXPECT_THAT(fault([](base::Json& j) { j["files"].erase(1); }), HasSubstr("of 2 ranks has 1 files"));
  EXPECT_THAT(fault([](base::Json& j) { j["files"][0]["name"] = "../x"; }),
              HasSubstr("called '../x', expected 'rank-0000.safetensors'"));
  EXPECT_THAT(fault([](base::Json& j) { j["files"][0]["checksum"] = "12"; }), HasSubstr("not a hash"));
  EXPECT_THAT(fault([](base::Json& j) { j["files"][0]["intervals"][0] = "x"; }), HasSubstr("[begin, end]"));
  EXPECT_THAT(fault([](base::Json& j) {
                j["files"][0]["intervals"][0] = {-1, 76};
              }),
              HasSubstr("which no bucket has"));
  EXPECT_THAT(fault([](base::Json& j) {
                j["files"][1]["intervals"][0] = {77, 152};
              }),
              HasSubstr("only up to element"));
  base::write_file_atomically(path, good.dump().substr(0, 200));
  EXPECT_THAT(verify_fault(directory), HasSubstr("is not JSON"));
}

TEST(Checkpoint, NoFlippedBitOfAManifestPasses) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  const fs::path path = directory / "manifest.json";
  const base::Json good = base::read_json(path);
  const std::string bytes = base::read_file(path);
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 5) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    std::ofstream(path, std::ios::binary) << flipped;
    const std::string fault = message_of<DamagedCheckpoint>([&] { Checkpoint{directory}; });
    // White space is not content.
    if (!fault.empty()) continue;
    ASSERT_EQ(base::read_json(path).dump(), good.dump()) << "bit " << bit;
  }
}

TEST(Checkpoint, FirstVersionOfTheFormatIsReadAndKnownAsSuch) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  EXPECT_TRUE(Checkpoint(directory).manifest().hashed);
  const fs::path path = directory / "manifest.json";
  base::write_json(path, unhashed(base::read_json(path)));
  Checkpoint checkpoint(directory);
  EXPECT_FALSE(checkpoint.manifest().hashed);
  checkpoint.verify();
}

TEST(Checkpoint, WholeManifestOfANewerProgramIsNotCalledDamaged) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  base::Json json = unhashed(base::read_json(directory / "manifest.json"));
  json["schema"] = "sluice.checkpoint/4";
  json["hash"] = base::hash_text(base::hash_bytes(json.dump()));
  base::write_json(directory / "manifest.json", json);
  const auto open = [&] { Checkpoint{directory}; };
  EXPECT_THAT(message_of<base::InputError>(open), HasSubstr("a newer program wrote it"));
  EXPECT_EQ(message_of<base::InputError>(open).find("damaged"), std::string::npos);
}

TEST(Checkpoint, OnlyFilesThatHoldWhatIsWantedAreChecked) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  const model::ParameterTable table = model::parameter_table(small_shape());
  overwrite_byte(directory / "rank-0001.safetensors", 300);
  const auto fault_of_rank = [&](int rank) {
    std::vector<base::Interval> owned;
    for (const model::Bucket& bucket : table.buckets) {
      owned.push_back(link::OwnerLayout{2}.owned(bucket, rank));
    }
    return message_of<DamagedCheckpoint>([&] { Checkpoint(directory).verify(table, owned); });
  };
  EXPECT_EQ(fault_of_rank(0), "");
  EXPECT_THAT(fault_of_rank(1), HasSubstr("rank-0001.safetensors has checksum"));
}

// One bucket's slice of 20 million elements, more than a block of each state, alone in its file.
TEST(Checkpoint, ReaderOfAPartReadsThatPartAlone) {
  const TestDirectory root;
  model::Outline outline = model::saved_outline(1);
  outline.vocab = 1 << 20;
  const model::ParameterTable table = model::parameter_table(outline);
  std::vector<float> values(
      static_cast<size_t>(std::ranges::max(table.buckets, {}, &model::Bucket::size).size));
  std::iota(values.begin(), values.end(), 0.0F);
  std::vector<OwnerState> states;
  for (const model::Bucket& bucket : table.buckets) {
    states.push_back({{0, bucket.size}, values.data(), values.data(), values.data()});
  }
  const fs::path directory = prepare_save(root.path(), 1).path();
  Manifest manifest{.step = 1, .model = outline};
  manifest.files = {write_rank_file(directory, 0, TensorType::kFloat32, states)};
  commit_save(directory, manifest, {});
  Checkpoint(directory).verify();
  const SafetensorsFile file(directory / "rank-0000.safetensors");
  EXPECT_EQ(base::hash_bytes(base::read_file(file.location().path())), manifest.files[0].checksum);

  const int64_t header_bytes = file.size_bytes() - file.data_bytes();
  const int64_t damaged = file.find("bucket.0.exp_avg")->begin_byte + (20 << 20);  // its second block
  overwrite_byte(file.location().path(), header_bytes + damaged);
  std::vector<base::Interval> wanted(table.buckets.size());
  wanted[0] = {0, 1 << 20};
  Checkpoint part(directory);
  part.verify(table, wanted);
  std::vector<float> read(1 << 20);
  part.read(0, wanted[0], State::kExpAvg, read.data());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), values.begin()));
  wanted[0] = {7 << 20, 8 << 20};
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] { part.verify(table, wanted); }),
              HasSubstr("rank-0000.safetensors has checksum"));
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] {
                part.read(0, {5 << 20, 6 << 20}, State::kExpAvg, read.data());
              }),
              HasSubstr("in bytes"));
  EXPECT_THAT(verify_fault(directory), HasSubstr("has checksum"));
}

TEST(Checkpoint, FilesWithoutChecksumsOfBlocksAreCheckedAsAWhole) {
  const TestDirectory root;
  const fs::path directory = save<float>(root.path(), 1, 2);
  base::Json json = base::read_json(directory / "manifest.json");
  for (base::Json& file : json["files"]) file.erase("header");
  base::write_json(directory / "manifest.json", unhashed(json));
  EXPECT_EQ(verify_fault(directory), "");
  overwrite_byte(directory / "rank-0001.safetensors", 20);  // in the header
  EXPECT_THAT(verify_fault(directory), HasSubstr("rank-0001.safetensors has checksum"));
}

TEST(Checkpoint, ParametersThatAreNotFiniteAreRefused) {
  const TestDirectory root;
  const model::ParameterTable table = model::parameter_table(small_shape());
  std::vector<OwnerState> states;
  std::vector<std::vector<float>> values;
  for (const model::Bucket& bucket : table.buckets) {
    values.emplace_back(static_cast<size_t>(bucket.size));
    const float* zeros = values.back().data();
    states.push_back({{0, bucket.size}, zeros, zeros, zeros});
  }
  values[1][5] = std::numeric_limits<float>::quiet_NaN();
  Manifest manifest{.step = 1, .model = small_shape()};
  const fs::path directory = prepare_save(root.path(), 1).path();
  manifest.files = {write_rank_file(directory, 0, TensorType::kFloat32, states)};
  commit_save(directory, manifest, {.count = 1});
  Checkpoint checkpoint(directory);
  float value = 0;
  checkpoint.read(1, {0, 1}, State::kMaster, &value);
  EXPECT_THAT(message_of<base::InputError>([&] {
                checkpoint.read(1, {5, 6}, State::kMaster, &value);
              }),
              HasSubstr("bucket 1 of the parameters holds nan"));
}

TEST(Checkpoint, HalfWrittenDirectoriesCountForNothingAndAreCleaned) {
  const TestDirectory root;
  EXPECT_FALSE(latest(root / "nowhere"));
  save<float>(root.path(), 10, 2);
  const fs::path half = prepare_save(root.path(), 20).path();
  write_rank<float>(half, model::parameter_table(small_shape()), 2, 0);
  fs::create_directories(root / "step-x");  // not ours
  ASSERT_TRUE(latest(root.path()));
  EXPECT_EQ(latest(root.path())->step, 10);
  EXPECT_THAT(message_of<base::InputError>([&] { Checkpoint{half}; }), HasSubstr("no complete checkpoint"));

  save<float>(root.path(), 30, 2);
  EXPECT_FALSE(fs::exists(half));
  EXPECT_TRUE(fs::exists(root / "step-x"));
  EXPECT_THAT(steps_in(root.path()), ElementsAre(10, 30));
}

TEST(Checkpoint, OldestGoOnlyOnceTheNewOneIsCommitted) {
  const TestDirectory root;
  for (const int64_t step : {5, 10, 100}) save<float>(root.path(), step, 1, 2);
  EXPECT_THAT(steps_in(root.path()), ElementsAre(10, 100));
  const fs::path half = prepare_save(root.path(), 200).path();
  EXPECT_THAT(steps_in(root.path()), ElementsAre(10, 100));
  save<float>(root.path(), 200, 1, 1);
  EXPECT_THAT(steps_in(root.path()), ElementsAre(200));
}

TEST(Checkpoint, PruningMakesUpForAKilledCommitAndLeavesLaterOnes) {
  const TestDirectory root;
  for (const int64_t step : {1, 2, 3, 4}) save<float>(root.path(), step, 1, 9);
  prune(root.path(), 3, {.count = 2});
  EXPECT_THAT(steps_in(root.path()), ElementsAre(2, 3, 4));
  prune(root / "nowhere", 3, {.count = 2});
}

TEST(Checkpoint, PruningRemovesWhatAKillLeftHalfRemovedHalfWrittenOrSetAside) {
  const TestDirectory root;
  for (const int64_t step : {1, 2, 3}) save<float>(root.path(), step, 1, 9);
  fs::remove(root / "step-1" / "manifest.json");  // half removed
  prepare_save(root.path(), 4);                   // half written
  fs::copy(root / "step-3", root / "step-3.previous", fs::copy_options::recursive);
  fs::rename(root / "step-2", root / "step-2.previous");  // the only one of its step
  prune(root.path(), 3, {.count = 2});
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(root.path()))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, testing::UnorderedElementsAre("step-2.previous", "step-3"));
}

TEST(Checkpoint, YoungOnesStayBesideTheNewest) {
  const TestDirectory root;
  for (const int64_t step : {1, 2, 3, 4}) save<float>(root.path(), step, 1, 9);
  const auto now = fs::file_time_type::clock::now();
  for (const auto& [step, hours] : {std::pair(1, 30), std::pair(2, 5), std::pair(3, 4), std::pair(4, 3)}) {
    fs::last_write_time((step_directory(root.path(), step) / "manifest.json").path(),
                        now - std::chrono::hours(hours));
  }
  prune(root.path(), 4, {.count = 1, .hours = 6});
  EXPECT_THAT(steps_in(root.path()), ElementsAre(2, 3, 4));
  prune(root.path(), 4, {.count = 1});
  EXPECT_THAT(steps_in(root.path()), ElementsAre(4));
}

TEST(Checkpoint, BestStaysWhereItWasEvaluatedAtItsStep) {
  const TestDirectory root;
  const auto measured = [](int64_t step, double measure) {
    return base::Json{{"step", step}, {"measure", measure}};
  };
  save<float>(root.path(), 1, 1, 9);                    // not evaluated
  save<float>(root.path(), 2, 1, 9, measured(2, 3.5));  // the best
  save<float>(root.path(), 3, 1, 9, measured(2, 3.5));  // evaluated at the step before
  save<float>(root.path(), 4, 1, 9, measured(4, 3.5));  // as good, and later
  save<float>(root.path(), 5, 1, 9, {{"step", 5}, {"measure", "low"}});
  save<float>(root.path(), 6, 1, 9, measured(6, 4));
  EXPECT_EQ(read_manifest(step_directory(root.path(), 2)).evaluation, measured(2, 3.5));
  prune(root.path(), 6, {.count = 1, .best = true});
  EXPECT_THAT(steps_in(root.path()), ElementsAre(2, 6));
  overwrite_byte((step_directory(root.path(), 2) / "manifest.json").path(), 30);
  prune(root.path(), 6, {.count = 1, .best = true});
  EXPECT_THAT(steps_in(root.path()), ElementsAre(6));
}

TEST(Checkpoint, SavingAStepAgainKeepsTheOldOneUntilTheCommit) {
  const TestDirectory root;
  save<float>(root.path(), 10, 2);
  prepare_save(root.path(), 10);
  ASSERT_TRUE(latest(root.path()));
  EXPECT_EQ(latest(root.path())->directory.path(), root / "step-10.previous");
  Checkpoint(latest(root.path())->directory).verify();
  prepare_save(root.path(), 10);  // died, and tries again
  EXPECT_EQ(latest(root.path())->directory.path(), root / "step-10.previous");
  save<float>(root.path(), 10, 3);
  EXPECT_EQ(latest(root.path())->directory.path(), root / "step-10");
  EXPECT_FALSE(fs::exists(root / "step-10.previous"));
}

TEST(Checkpoint, FullDiskLeavesTheCheckpointBefore) {
  const TestDirectory root;
  save<float>(root.path(), 1, 1);
  // A limit on file sizes fails writes as a full disk does.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string fault = message_of<base::RunError>([&] { save<float>(root.path(), 2, 1); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(fault, AllOf(HasSubstr("rank-0000.safetensors"), HasSubstr("free space")));
  EXPECT_TRUE(fs::is_empty(root / "step-2"));
  ASSERT_TRUE(latest(root.path()));
  EXPECT_EQ(latest(root.path())->step, 1);
  save<float>(root.path(), 2, 1);
  EXPECT_EQ(latest(root.path())->step, 2);
}

TEST(Checkpoint, UnwritableRootIsARunError) {
  const TestDirectory root;
  base::write_file_atomically(root / "file", "x");
  EXPECT_THAT(message_of<base::RunError>([&] { prepare_save(root / "file/checkpoints", 1); }),
              HasSubstr("file/checkpoints"));
}

}  // namespace
}  // namespace sluice::checkpoint
