// Work between the steps of a run on stand-ins: snapshots of owner slices, rollouts of the policy under
// training.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cluster.h"
#include "generate/generator.h"
#include "model/outline.h"
#include "run/model_shard.h"
#include "run/slice_snapshot.h"

namespace sluice::stand_in {
namespace {

using runtime::Engine;
using runtime::RunOptions;

RunOptions three_steps(std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.strategies = std::move(strategies);
  options.steps = 3;
  options.sequences = 6;
  return options;
}

// Numbers by rank, of all steps.
class Numbers {
 public:
  void add(int rank, const std::vector<double>& more) {
    const std::lock_guard lock(mutex_);
    by_rank_[rank].insert(by_rank_[rank].end(), more.begin(), more.end());
  }
  std::map<int, std::vector<double>> take() { return std::exchange(by_rank_, {}); }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<double>> by_rank_;
};

// Sums are taken in other orders where the host has kernels of its own.
void expect_near(const std::map<int, std::vector<double>>& found,
                 const std::map<int, std::vector<double>>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [rank, numbers] : expected) {
    ASSERT_EQ(found.at(rank).size(), numbers.size());
    int64_t apart = 0;
    for (size_t i = 0; i < numbers.size(); ++i)
      apart += std::abs(found.at(rank)[i] - numbers[i]) <= 1e-9 * (1 + std::abs(numbers[i])) ? 0 : 1;
    EXPECT_EQ(apart, 0) << "of " << numbers.size() << " numbers of rank " << rank;
  }
}

using Work = std::function<std::vector<double>(Engine& engine, const graph::StepGraph& graph)>;

// The run with `work` behind its steps, on the host and on stand-ins: the same numbers.
DeviceRun expect_as_on_host(RunOptions options, const std::function<Work()>& make_work,
                            const Devices& devices = {}) {
  Numbers numbers;
  const auto fill = [&] {
    auto works = std::make_shared<std::map<int, Work>>();
    for (int rank = 0; rank < options.world_size; ++rank) (*works)[rank] = make_work();
    options.behind_step = [&numbers, works](Engine& engine, const graph::StepGraph& graph,
                                            const runtime::StepResult&) {
      numbers.add(engine.rank(), works->at(engine.rank())(engine, graph));
    };
  };
  fill();
  const runtime::RunRecord host = runtime::run_in_process(options);
  const auto expected = numbers.take();
  fill();
  DeviceRun device = run_on_stand_ins(options, devices);
  options.behind_step = nullptr;
  expect_near(numbers.take(), expected);
  EXPECT_EQ(device.record.losses.size(), host.losses.size());
  for (size_t step = 0; step < host.losses.size(); ++step)
    EXPECT_NEAR(device.record.losses[step], host.losses[step], 1e-12 * host.losses[step]);
  return device;
}

void expect_no_fault(const DeviceRun& run) {
  EXPECT_TRUE(run.faults.empty()) << run.faults.size() << " kinds of faults:\n" << text_of(run.faults);
  EXPECT_GT(run.accesses, 1000);
}

// A snapshot's numbers, of the moment behind the step.
std::vector<double> snapshot(run::SliceSnapshot& memory, Engine& engine) {
  run::ReadProgress progress;
  progress.begin();
  std::vector<double> numbers;
  std::thread saver([&] {
    const run::EndOfRead end(progress);
    for (const checkpoint::OwnerState& state : memory.take(engine.store(), progress)) {
      for (const void* values : {state.master, state.exp_avg, state.exp_avg_sq}) {
        if (values == nullptr || state.owned.empty()) continue;
        const auto* first = static_cast<const double*>(values);
        numbers.insert(numbers.end(), first, first + state.owned.size());
      }
    }
  });
  for (const model::Bucket& bucket : engine.store().table().buckets) progress.wait(bucket.index);
  saver.join();
  return numbers;
}

Work snapshots() {
  auto memory = std::make_shared<run::SliceSnapshot>();
  return [memory](Engine& engine, const graph::StepGraph&) { return snapshot(*memory, engine); };
}

TEST(DeviceStandIn, SnapshotsAreOfTheStepsTheyFollow) {
  expect_no_fault(expect_as_on_host(three_steps({"<1,2,1> + <2,1,1>", "<1,1,4>"}), snapshots));
}

// Copies into a snapshot's memory in one go, as ranks keep for each other.
TEST(DeviceStandIn, CopiesOfSlicesAreOfTheStepsTheyFollow) {
  expect_no_fault(expect_as_on_host(three_steps({"4x<1,1,1>"}), [] {
    return Work([](Engine& engine, const graph::StepGraph&) {
      const runtime::ParameterStore& store = engine.store();
      const auto bytes =
          run::SliceSnapshot::bytes(store.table(), store.options().precision, 4, engine.rank()) +
          run::SliceSnapshot::followed_bytes(store.table(), store.options(), 4, engine.rank());
      std::vector<double> numbers(static_cast<size_t>(bytes) / sizeof(double));
      run::copy_slices(store, reinterpret_cast<char*>(numbers.data()));
      return numbers;
    });
  }));
}

// Tokens and their log-probabilities, as the policy under training draws them.
std::vector<double> rollout(Engine& engine, const graph::StepGraph& graph) {
  const runtime::ParameterStore& store = engine.store();
  const at::TensorOptions like = at::TensorOptions()
                                     .dtype(runtime::scalar_type(store.options().precision.compute))
                                     .device(store.options().device);
  std::vector<double> numbers;
  {
    const generate::ModelShard shard =
        run::model_shard(store.table(), engine.hold(graph.plan.strategy(), graph.links), like);
    constexpr int64_t kPages = 9, kTexts = 3;
    const generate::Decoder decoder(shard, kPages, kTexts);
    generate::Generator generator(
        decoder, {.kv_blocks = kPages, .max_num_seqs = kTexts, .max_num_batched_tokens = 40});
    base::Rng rng(5);
    for (uint64_t number = 0; number < 4; ++number) {
      std::vector<int64_t> prompt;
      for (int64_t i = rng.between(1, 40); i > 0; --i) prompt.push_back(rng.between(0, 20));
      const generate::SamplingParams sampling_params{.sampling = {.temperature = 0.8, .top_k = 20, .seed = 4},
                                                     .number = number,
                                                     .end_tokens = {},
                                                     .alternatives = 2};
      generator.add({std::move(prompt), rng.between(1, 12), 1, /*scored=*/number % 2 == 0}, sampling_params);
    }
    while (generator.step()) {
    }
    for (int64_t text = 0; text < generator.scheduler().total_sequences(); ++text) {
      const generate::Output& output = generator.output(text);
      numbers.insert(numbers.end(), output.tokens.begin(), output.tokens.end());
    }
  }
  engine.release();
  return numbers;
}
Work rollouts() { return rollout; }

struct Rollout {
  const char* name;
  void (*outline)(model::Outline&);
};
void PrintTo(const Rollout& rollout, std::ostream* stream) { *stream << rollout.name; }

const Rollout kRollouts[] = {
    {"Dense", [](model::Outline&) {}},
    {"Windows",
     [](model::Outline& outline) {
       outline.window = 7;
       outline.block_types = {{.windowed = true}, {}, {.windowed = true}, {}};
     }},
    {"Experts",
     [](model::Outline& outline) {
       outline.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
     }},
    {"LatentAttention",
     [](model::Outline& outline) {
       outline.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
       outline.kv_heads = outline.heads;
       outline.head_dim = 8;
       outline.rotated = 2;
     }},
    {"RecurrentLayers",
     [](model::Outline& outline) {
       outline.recurrent = {
           .key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 6};
       outline.block_types = {{.recurrent = true}, {}, {.recurrent = true}, {.recurrent = true}};
     }},
};

class Rollouts : public testing::TestWithParam<Rollout> {};
TEST_P(Rollouts, SayAsOnTheHost) {
  RunOptions options = three_steps({"<2,2,1>", "<1,1,4>"});
  options.steps = 2;
  GetParam().outline(options.model);
  expect_no_fault(expect_as_on_host(options, rollouts));
}
INSTANTIATE_TEST_SUITE_P(DeviceStandIn, Rollouts, testing::ValuesIn(kRollouts),
                         [](const auto& info) { return info.param.name; });

// Host memory that a snapshot has not waited for holds none of its numbers.
TEST(LostOrder, SnapshotThatWaitsForNoCopyIsFound) {
  RunOptions options = three_steps({"4x<1,1,1>"});
  options.world_size = 4;
  Devices devices;
  devices.mutation = [](const Ordering& ordering) {
    return ordering.kind == Ordering::Kind::kSynchronizeStream && ordering.stream > graph::kStreams;
  };
  bool nan = false;
  std::mutex mutex;
  options.behind_step = [&](Engine& engine, const graph::StepGraph&, const runtime::StepResult&) {
    run::SliceSnapshot memory;
    const std::vector<double> numbers = snapshot(memory, engine);
    const std::lock_guard lock(mutex);
    for (const double number : numbers) nan = nan || number != number;
  };
  const DeviceRun run = run_on_stand_ins(options, devices);
  EXPECT_TRUE(nan || !run.faults.empty());
}

}  // namespace
}  // namespace sluice::stand_in
