#include "runtime/test_cluster.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "comm/test_fake.h"
#include "graph/build.h"
#include "graph/memory.h"
#include "model/expert_slots.h"
#include "model/head_parts.h"
#include "model/test_outline.h"
#include "ops/device.h"
#include "runtime/connections.h"
#include "runtime/make_executor.h"
#include "runtime/test_teacher.h"
#include "runtime/test_trunks.h"
#include "strategy/pass.h"
#include "strategy/row_schedule.h"
#include "transport/device_transport.h"

namespace sluice::runtime {

model::Outline coded_outline() {
  model::Outline outline = model::outline_of_odd_sizes();
  outline.layers = 2;
  outline.hidden = 48;
  outline.head_dim = 12;
  outline.ffn_hidden = 130;
  return outline;
}

cost::CostModel small_cost(const model::Model& model, int gpus_per_node, int64_t device_bytes,
                           const Precision& precision, const strategy::WireCodecs& codecs) {
  cost::CostModel::Options options;
  options.model = model;
  const model::Program program(model);
  for (int tp = 1; tp <= 12; ++tp) {
    const cost::Quadratic times = cost::Quadratic::from_ns(0.01 / tp, 100.0 / tp, 2000);
    const cost::Quadratic embedding = cost::Quadratic::from_ns(0, 10, 500);
    for (const auto& kind : program.kinds()) {
      const model::TokenBytes bytes = kind->bytes({tp}, comm::size_of(precision.compute));
      options.kinds_by_tp[tp].push_back({{times, times, times}, bytes.saved, bytes.deferred});
    }
    options.kinds_by_tp[tp].front().times = {embedding, embedding, {}};
    options.kinds_by_tp[tp].back().times = {cost::Quadratic::from_ns(0, 200.0 / tp, 1000), {}, {}};
  }
  options.intra = {5'000, 1'000'000'000};
  options.inter = {20'000, 100'000'000};
  options.update_ps_per_element = 1000;
  options.memory = {.device_bytes = device_bytes,
                    .element_bytes = comm::size_of(precision.compute),
                    .accumulator_bytes = comm::size_of(precision.master()),
                    .owner_bytes_per_parameter =
                        3 * comm::size_of(precision.master()) + comm::size_of(precision.kept_master()),
                    .master_bytes = comm::size_of(precision.kept_master())};
  options.topology = gpus_per_node;
  options.codecs = codecs;
  return cost::CostModel(options);
}

namespace {

// Bytes under exchanges in which queries travel: widths of the rows of each kind, there and back, hop by hop.
// Whole sequences lie on one lane and send nothing.
std::pair<int64_t, int64_t> travelling_bytes(const strategy::PipelineMicroBatch& micro_batch,
                                             const model::HeadCounts& heads, int64_t head_bytes,
                                             int64_t narrow_bytes) {
  const strategy::RowSchedule& schedule = strategy::schedule_of(micro_batch.exchange, micro_batch.lanes);
  std::vector<int64_t> rows(static_cast<size_t>(micro_batch.lanes));
  for (int lane = 0; lane < micro_batch.lanes; ++lane) {
    for (const strategy::MicroBatchSequence& shared : micro_batch.sequences) {
      for (const strategy::Piece& scheduled : strategy::lane_pieces(
               shared, micro_batch.lanes, lane, strategy::cutting_of(micro_batch.exchange))) {
        if (scheduled.tokens() < shared.length_tokens) rows[static_cast<size_t>(lane)] += scheduled.tokens();
      }
    }
  }
  const int64_t keys = narrow_bytes > 0 ? narrow_bytes : 2 * heads.keys * head_bytes;
  const int64_t queries = heads.queries * head_bytes, statistics = heads.queries * sizeof(double);
  std::pair<int64_t, int64_t> bytes;
  for (const strategy::RowSchedule::Hop& hop : schedule.hops) {
    const bool of_keys = hop.rows == strategy::RowSchedule::Rows::kKeys;
    bytes.first += rows[static_cast<size_t>(hop.of)] * (of_keys ? keys : queries);
    bytes.second += rows[static_cast<size_t>(hop.of)] * (of_keys ? keys : 3 * queries + statistics);
  }
  for (const strategy::RowSchedule::Return& of : schedule.returns) {
    const bool of_keys = of.rows == strategy::RowSchedule::Rows::kKeys;
    bytes.first += rows[static_cast<size_t>(of.of)] * (of_keys ? 0 : queries + statistics);
    bytes.second += rows[static_cast<size_t>(of.of)] * (of_keys ? keys : queries);
  }
  return bytes;
}

int64_t shared_tokens_on(const strategy::PipelineMicroBatch& micro_batch, int lane) {
  int64_t tokens = micro_batch.tokens_on(lane);
  if (micro_batch.own.empty()) return tokens;
  for (const strategy::MicroBatchSequence& own :
       micro_batch.own[static_cast<size_t>(lane - micro_batch.first_lane)])
    tokens -= own.length_tokens;
  return tokens;
}

// Bytes that lanes send in one forward and one backward of a layer, on one TP rank. Heads: a lane sends its
// shared rows of the others' queries, keys and values, and the others' rows of its outputs; backward sends
// gradients back. A ring passes every key and value k − 1 times, and in backward their gradients too. Rings
// of single lanes pass the narrow rows from which keys and values are made, if there are narrow rows.
std::pair<int64_t, int64_t> micro_batch_exchange_bytes(const strategy::PipelineMicroBatch& micro_batch,
                                                       const model::HeadCounts& heads, int64_t head_bytes,
                                                       int64_t narrow_bytes) {
  const int run = micro_batch.head_lanes();
  if (strategy::moves_queries(micro_batch.exchange))
    return travelling_bytes(micro_batch, heads, head_bytes, narrow_bytes);
  int64_t tokens = 0, headed = 0, ringed = 0;
  for (const strategy::MicroBatchSequence& shared : micro_batch.sequences) tokens += shared.length_tokens;
  for (int lane = 0; lane < micro_batch.lanes; ++lane) {
    int64_t run_tokens = 0;
    for (int other = lane / run * run; other < lane / run * run + run; ++other)
      run_tokens += shared_tokens_on(micro_batch, micro_batch.first_lane + other);
    const model::HeadPart part = model::head_part(heads, run, lane % run);
    const int64_t others =
        run == 1 ? 0 : run_tokens - shared_tokens_on(micro_batch, micro_batch.first_lane + lane);
    headed += 2 * (part.queries.size() + part.keys.size()) * others * head_bytes;
    const int64_t row_bytes = run == 1 && narrow_bytes > 0 ? narrow_bytes : 2 * part.keys.size() * head_bytes;
    if (lane < run) ringed += (micro_batch.lanes / run - 1) * tokens * row_bytes;
  }
  return {headed + ringed, headed + 2 * ringed};
}

// Each lane sends every other lane its sums of the sequences that they share, in double, and their
// gradients.
int64_t mean_bytes(const strategy::PipelineMicroBatch& micro_batch, int64_t hidden) {
  constexpr int64_t kWidth = sizeof(double), kForwardAndBackward = 2;
  return kForwardAndBackward * micro_batch.lanes * (micro_batch.lanes - 1) *
         std::ssize(micro_batch.sequences) * hidden * kWidth;
}

// A shard of which members of a share group have parts, and its elements that no codec may change.
struct SharedShard {
  int64_t elements = 0;
  std::vector<base::Interval> exact;

  base::Interval part(int share, int member) const { return link::resident_part(elements, share, member); }
  int64_t bytes(strategy::Codec codec, int share, int member, int64_t wide) const {
    const base::Interval own = part(share, member);
    if (codec == strategy::Codec::kNone) return own.size() * wide;
    int64_t bytes = strategy::coded_bytes(codec, own.size(), wide);
    for (const base::Interval& some : exact) bytes += base::intersect(some, own).size() * wide;
    return bytes;
  }
};

SharedShard shared_shard(const model::Bucket& bucket, const model::Cut& cut) {
  SharedShard shard{model::shard_of(bucket, cut).size(), {}};
  const auto locals = model::local_parameters(bucket, cut);
  for (size_t i = 0; i < locals.size(); ++i) {
    const auto& [offset, rows, columns] = locals[i];
    if (bucket.parameters[i].keeps_its_bits()) shard.exact.push_back({offset, offset + rows * columns});
  }
  return shard;
}

// Bytes that members of a share group send to sum a shard's gradients. Inside runs, a lane with tokens sends
// all parts but those of its own place. Between runs, if its run has tokens, it sends those except its own
// part. With runs of one lane, or of all lanes, each sends all but its own part.
int64_t summed_bytes(const std::vector<bool>& contributes, const SharedShard& shard, int run_lanes,
                     const strategy::LevelCodecs& codecs, bool spans_nodes, int64_t wide) {
  const int share = static_cast<int>(contributes.size());
  const strategy::Codec behind = spans_nodes ? codecs.between_nodes : codecs.in_node;
  int64_t bytes = 0;
  for (int member = 0; member < share; ++member) {
    bool run_contributes = false;
    for (int lane = 0; lane < run_lanes; ++lane)
      run_contributes |= contributes[static_cast<size_t>(member / run_lanes * run_lanes + lane)];
    for (int other = 0; other < share; ++other) {
      const bool of_place = other % run_lanes == member % run_lanes;
      if (!of_place && contributes[static_cast<size_t>(member)])
        bytes += shard.bytes(codecs.in_node, share, other, wide);
      if (of_place && other != member && run_contributes) bytes += shard.bytes(behind, share, other, wide);
    }
  }
  return bytes;
}

// Bytes of one share group. Forwards gather every operation. Backwards gather all down to the first that
// trains, except the embedding and the last block, which stays. Each gather moves S·(S − 1) equal parts. The
// head's gradients are summed after forwards, the others' after backwards.
int64_t share_bytes_of(const strategy::PipelinePlan& plan, const strategy::Pass& pass, int stage, int lane,
                       int t, const model::ParameterTable& table, const Precision& precision,
                       const strategy::WireCodecs& codecs, int gpus_per_node) {
  const strategy::Scheme& scheme = plan.pipeline.scheme;
  const base::Interval run = table.program.of_stage(scheme.tp, scheme.pp, stage);
  const int64_t gathered_bytes = comm::size_of(precision.compute),
                made_bytes = comm::size_of(precision.master());
  std::vector<bool> contributes;
  for (int member = 0; member < scheme.fsdp; ++member)
    contributes.push_back(strategy::micro_batch_on(plan, pass, lane + member) >= 0);
  const int run_lanes = strategy::fsdp_runs(plan.pipeline, stage, gpus_per_node).lanes;
  int64_t bytes = 0;
  for (int64_t position = run.begin; position < run.end; ++position) {
    const bool head = position == table.program.head();
    const bool embedding = position == table.program.embedding();
    const bool stays = position + 1 == table.program.head();
    const bool comes_back = position >= table.program.first_trained();
    const int gathers = head || embedding || stays || !comes_back ? 1 : 2;
    for (const int index : table.program.at(position).buckets) {
      const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
      // Lanes with other experts hold other shards of the same size.
      const int experts = bucket.of_experts ? scheme.ep : 1, holders = scheme.fsdp / experts;
      const SharedShard shard =
          shared_shard(bucket, {.tp = scheme.tp,
                                .t = t,
                                .expert_lanes = experts,
                                .own_experts = plan.pipeline.experts_of(bucket.layer, 0)});
      int64_t each = 0;
      for (int holder = 0; holder < holders; ++holder)
        each = std::max(each, shard.bytes(codecs.gather, holders, holder, gathered_bytes));
      bytes += experts * gathers * holders * (holders - 1) * each;
      if (!bucket.trained) continue;
      std::vector<bool> holder_contributes(static_cast<size_t>(holders));
      for (size_t member = 0; member < contributes.size(); ++member)
        if (contributes[member]) holder_contributes[member / static_cast<size_t>(experts)] = true;
      const int run = run_lanes % experts == 0 ? run_lanes / experts : 1;
      bytes += experts *
               summed_bytes(holder_contributes, shard, run, codecs.sums, run_lanes < scheme.fsdp, made_bytes);
    }
  }
  return bytes;
}

int64_t share_bytes_by_formula(const strategy::StepPlan& plan, const model::ParameterTable& table,
                               const Precision& precision, const strategy::WireCodecs& codecs,
                               int gpus_per_node) {
  int64_t bytes = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    if (scheme.fsdp == 1) continue;
    for (const strategy::Pass& pass : strategy::passes(pipeline)) {
      for (int stage = 0; stage < scheme.pp; ++stage) {
        for (int lane = pass.first_lane; lane < pass.end_lane(); lane += scheme.fsdp) {
          for (int t = 0; t < scheme.tp; ++t)
            bytes += share_bytes_of(pipeline, pass, stage, lane, t, table, precision, codecs, gpus_per_node);
        }
      }
    }
  }
  return bytes;
}

// Bytes of a token's keys and values on all lanes of a head group.
int64_t ring_row_bytes(const strategy::PipelineMicroBatch& micro_batch, const model::HeadCounts& heads,
                       int64_t head_bytes) {
  int64_t keys = 0;
  for (int lane = 0; lane < micro_batch.head_lanes(); ++lane)
    keys += model::head_part(heads, micro_batch.head_lanes(), lane).keys.size();
  return 2 * keys * head_bytes;
}

// In a ring on two levels, gradient sums go one hop further in each node but their own.
int64_t sums_home_bytes(const strategy::Pipeline& pipeline, const strategy::PipelineMicroBatch& micro_batch,
                        const model::Program& program, int64_t row_bytes, int gpus_per_node) {
  if (strategy::moves_queries(micro_batch.exchange)) return 0;
  int64_t tokens = 0, bytes = 0;
  for (const strategy::MicroBatchSequence& shared : micro_batch.sequences) tokens += shared.length_tokens;
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    std::vector<int> nodes;
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane)
      nodes.push_back(strategy::Topology(gpus_per_node).node_of(pipeline.rank_of(stage, lane, 0)));
    const int members = micro_batch.lanes / micro_batch.head_lanes();
    const int in_node =
        std::gcd(members, std::max(1, strategy::neighbours_in_node(nodes) / micro_batch.head_lanes()));
    if (in_node == 1) continue;
    const base::Interval run = program.blocks_in(
        program.walked_back(program.of_stage(pipeline.scheme.tp, pipeline.scheme.pp, stage)));
    const int64_t mtp = stage + 1 == pipeline.scheme.pp && program.kinds().back()->head()->mtp ? 1 : 0;
    bytes += (run.size() + mtp) * (members / in_node - 1) * tokens * row_bytes;
  }
  return bytes;
}

int64_t exchange_bytes_by_formula(const strategy::StepPlan& plan, const model::ParameterTable& table,
                                  comm::DType dtype, int gpus_per_node) {
  const model::Outline& outline = table.model.outline();
  const base::Interval blocks = table.program.blocks();
  const int64_t walked_back = table.program.walked_back(blocks).size();
  int64_t bytes = 0;
  const int64_t head_bytes = outline.head_dim * comm::size_of(dtype);
  const model::Latent& latent = outline.latent;
  const int64_t narrow_bytes =
      latent.kv_rank > 0 ? (latent.kv_rank + latent.rotated) * comm::size_of(dtype) : 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const int tp = pipeline.pipeline.scheme.tp;
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      if (micro_batch.lanes == 1) continue;
      const auto [forward, backward] =
          micro_batch_exchange_bytes(micro_batch, model::head_counts(outline, tp), head_bytes, narrow_bytes);
      // Recomputed activations exchange heads again, as in the forward; rings pass nothing again.
      const int64_t again = micro_batch.head_lanes() > 1 ? 2 * forward - backward : 0;
      const base::Interval back = table.program.walked_back(blocks);
      int64_t recomputed = 0;
      for (int64_t block = back.begin; block < back.end; ++block)
        recomputed += micro_batch.memory.recomputes(block - blocks.begin) ? 1 : 0;
      const int64_t mtp = outline.mtp ? 1 : 0;  // one more layer, within the head
      bytes += tp * ((blocks.size() + mtp) * forward + (walked_back + mtp) * backward + recomputed * again);
      const int64_t row_bytes =
          micro_batch.head_lanes() == 1 && narrow_bytes > 0
              ? narrow_bytes
              : ring_row_bytes(micro_batch, model::head_counts(outline, tp), head_bytes);
      bytes += tp * sums_home_bytes(pipeline.pipeline, micro_batch, table.program, row_bytes, gpus_per_node);
      if (outline.head.pooling == model::Pooling::kMean)
        bytes += tp * mean_bytes(micro_batch, outline.hidden);
    }
  }
  return bytes;
}

}  // namespace

std::vector<strategy::Sequence> random_batch(uint64_t seed, int64_t step, int64_t sequences,
                                             int64_t longest) {
  base::Rng rng(seed, static_cast<uint64_t>(step));
  std::vector<strategy::Sequence> batch;
  for (int64_t i = 0; i < sequences; ++i) {
    batch.push_back({step * sequences + i, 0, rng.between(2, rng.between(2, longest))});
  }
  return batch;
}

namespace {

// Cuts two of three sequences, if long enough, into a prefix and up to so many branches of different lengths.
void branch(strategy::Sequence& sequence, int branches) {
  base::Rng rng(23, static_cast<uint64_t>(sequence.document));
  if (rng.below(3) == 0) return;
  int64_t left = sequence.length_tokens - rng.between(1, sequence.length_tokens);
  while (left > 0 && std::ssize(sequence.branches) + 1 < branches) {
    sequence.branches.push_back(rng.between(1, left));
    left -= sequence.branches.back();
  }
  if (left > 0) sequence.branches.push_back(left);
}

std::vector<TestTrunk> trunks_of(const RunOptions& options) {
  std::vector<TestTrunk> trunks;
  for (size_t i = 0; i < options.trunks.size(); ++i) {
    trunks.push_back({options.trunks[i], options.trunk_strategies[i],
                      options.trunk_policies.empty() ? options.policies : options.trunk_policies[i]});
  }
  return trunks;
}

// One rank's part of a run; rank 0 records scalars, every rank its owner slices.
class RankRun {
 public:
  RankRun(const RunOptions& options, const model::ParameterTable& table, comm::FakeWorld& world, int rank,
          RunRecord& record, std::mutex& mutex)
      : options_(options),
        table_(table),
        rank_(rank),
        record_(record),
        mutex_(mutex),
        host_(world.transport(rank)),
        device_(options.stand_in != nullptr ? options.stand_in->device(rank) : options.device) {
    if (options.stand_in != nullptr) transport_ = options.stand_in->transport(*host_);
    if (options.device.is_cuda()) {
      ops::prepare_device(options.device);
      transport_ = transport::device_transport(*host_, {.device = options.device.index()}).transport;
    }
    for (const std::string& text : options.strategies) {
      strategies_.push_back(strategy::parse_strategy(text, options.world_size));
    }
    for (const std::vector<std::string>& texts : options.trunk_strategies) {
      for (const std::string& text : texts)
        strategies_.push_back(strategy::parse_strategy(text, options.world_size));
    }
  }

  void operator()() {
    Engine::Options engine_options;
    engine_options.precision = precision();
    engine_options.codecs = options_.codecs;
    engine_options.context_length = 512;
    engine_options.logits_chunk_bytes = 4096;
    engine_options.device = device_;
    engine_options.loss = layers::with_z_loss(options_.z_loss);
    engine_options.number_loss = options_.number_loss;
    engine_options.moe_aux_loss_coeff = options_.moe_aux_loss_coeff;
    engine_options.mtp_loss_weight = options_.mtp_loss_weight;
    engine_options.moments = options_.moments;
    engine_options.host_transport = host_.get();
    if (!options_.teachers.empty()) engine_options.distillation = options_.distillation;
    HostExecutor::Options executor_options;
    if (DeviceStandIn* stand_in = options_.stand_in) {
      engine_options.link_mover = [stand_in](const c10::Device& device) {
        return stand_in->link_mover(device);
      };
      executor_options.watch = stand_in->watch(rank_);
    }
    Engine engine(table_, strategies_, transport_ != nullptr ? *transport_ : *host_,
                  make_executor(device_, std::move(executor_options)), engine_options);
    if (transport_ != nullptr && options_.trunks.empty()) {
      const graph::LinkMachine machine{options_.world_size, options_.gpus_per_node};
      connect(*engine.communicators(), strategies_,
              connections(table_, strategies_, machine, rank_, link_plans_), device_);
    }
    initialize(engine.store(), 7);
    set_initial(engine.store());
    for (const model::Outline& teacher : options_.teachers) {
      teachers_.emplace_back(
          teacher, small_cost(teacher, options_.gpus_per_node, options_.device_bytes, precision()),
          strategies_, transport_ != nullptr ? *transport_ : *host_, engine, engine_options);
    }
    if (options_.nudge > 0) nudge(engine.store());
    if (options_.from != nullptr) set_owned(*options_.from, engine.store());
    cost::CostModel::Options machine =
        small_cost(table_.model, options_.gpus_per_node, options_.device_bytes, precision(), options_.codecs)
            .options();
    machine.cut_times = options_.cut_times;
    if (!options_.trunks.empty()) trunks_.emplace(trunks_of(options_), options_.world_size, table_, machine);
    const cost::CostModel cost(std::move(machine));
    for (int64_t step = options_.first_step; step < options_.steps; ++step) {
      trunks_ ? train_trunks_step(engine, step) : train_step(engine, cost, step);
      if (options_.evaluates && step % 3 == 0) evaluate(engine, cost, step);
    }
    record_parameters(engine.store());
  }

 private:
  Precision precision() const { return {.compute = options_.dtype, .masters = options_.masters}; }

  bool counts(const strategy::Sequence& sequence, int64_t position) const {
    return options_.number_loss ? has_number(sequence, position, table_.model)
                                : has_loss(sequence, position, options_.loss_one_in);
  }

  // The graph of the batch that `seed` draws for a step, under the step's strategy.
  graph::StepGraph graph_of(const cost::CostModel& cost, int64_t step, uint64_t seed, graph::Purpose purpose,
                            int act = 0) {
    const strategy::StepPlan plan =
        plan_of(step, seed, purpose, strategies_[static_cast<size_t>(step + act) % strategies_.size()],
                options_.policies, act);
    const graph::BuildOptions build{.purpose = purpose, .disabled_passes = {}, .link_plans = &link_plans_};
    return graph::build(plan, table_, cost, options_.world_size, build);
  }

  strategy::StepPlan plan_of(int64_t step, uint64_t seed, graph::Purpose purpose,
                             const strategy::Strategy& strategy,
                             const std::vector<strategy::MemoryPolicy>& policies, int act = 0) const {
    std::vector<strategy::Sequence> batch = random_batch(seed, step, options_.sequences, 64);
    if (options_.acts > 1 && purpose == graph::Purpose::kTrain) batch = part_of(std::move(batch), act);
    for (strategy::Sequence& sequence : batch) {
      if (options_.branches > 0) branch(sequence, options_.branches);
      sequence.loss_tokens = 0;
      for (int64_t position = 0; position < sequence.length_tokens; ++position)
        *sequence.loss_tokens += counts(sequence, position) ? 1 : 0;
    }
    strategy::StepPlan plan = options_.plan(step, batch, strategy, options_.max_tokens);
    for (size_t i = 0; i < std::min(options_.low_precision.size(), plan.pipelines.size()); ++i) {
      plan.pipelines[i].pipeline.device.low_precision =
          std::make_shared<const strategy::LowPrecisionGemms>(options_.low_precision[i]);
    }
    if (options_.redundant_experts >= 0) place_experts(plan, base::Rng(17, static_cast<uint64_t>(step)));
    set_policies(plan, policies);
    for (strategy::PipelinePlan& pipeline : plan.pipelines) strategy::assign_passes(pipeline);
    set_exchanges(plan);
    strategy::validate(plan, options_.world_size);
    return plan;
  }

  // The trunks' acts for the batch that `seed` draws.
  std::vector<TestTrunks::Act> acts_of(int64_t step, uint64_t seed, graph::Purpose purpose) {
    return trunks_->acts(
        step, purpose,
        [&](const strategy::Strategy& strategy, const std::vector<strategy::MemoryPolicy>& policies) {
          return plan_of(step, seed, purpose, strategy, policies);
        },
        [&](const graph::StepGraph& graph) { return tokens_of(graph); });
  }

  std::vector<strategy::Sequence> part_of(std::vector<strategy::Sequence> batch, int act) const {
    std::ranges::stable_sort(batch, {}, &strategy::Sequence::length_tokens);
    const base::Interval own = base::even_part(std::ssize(batch), options_.acts, act);
    return {batch.begin() + own.begin, batch.begin() + own.end};
  }

  void place_experts(strategy::StepPlan& plan, base::Rng rng) const {
    const model::Outline& outline = table_.model.outline();
    for (strategy::PipelinePlan& each : plan.pipelines) {
      const int lanes = each.pipeline.scheme.ep;
      if (lanes == 1) continue;
      strategy::ExpertPlacement placement;
      for (int64_t layer = 0; layer < outline.layers; ++layer) {
        std::vector<int>& seats = placement.layers.emplace_back();
        if (!outline.block_type(layer).experts) continue;
        const std::vector<int> even = shuffled(rng, outline.experts.count);
        for (int lane = 0; lane < lanes; ++lane) {
          const base::Interval part = base::even_part(std::ssize(even), lanes, lane);
          std::vector<int> own(even.begin() + part.begin, even.begin() + part.end);
          for (const int expert : shuffled(rng, outline.experts.count)) {
            if (std::ssize(own) == part.size() + options_.redundant_experts) break;
            if (std::ranges::find(own, expert) == own.end()) own.push_back(expert);
          }
          std::ranges::sort(own);
          seats.insert(seats.end(), own.begin(), own.end());
        }
      }
      each.pipeline.placement = std::make_shared<const strategy::ExpertPlacement>(std::move(placement));
    }
  }
  static std::vector<int> shuffled(base::Rng& rng, int64_t count) {
    std::vector<int> all = model::even_expert_slots(count);
    for (int64_t i = count - 1; i > 0; --i)
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(rng.between(0, i))]);
    return all;
  }

  StepTokens tokens_of(const graph::StepGraph& graph) const {
    if (options_.number_loss)
      return made_up_numbers(graph.plan, options_.world_size, rank_, table_.model, options_.figures);
    return made_up_tokens(graph.plan, options_.world_size, rank_, table_.model.vocab(), options_.loss_one_in);
  }

  void evaluate(Engine& engine, const cost::CostModel& cost, int64_t step) {
    double loss = 0;
    if (trunks_) {
      const std::vector<TestTrunks::Act> acts = acts_of(step, 5, graph::Purpose::kEvaluate);
      loss = evaluate_trunks(engine, TestTrunks::steps(acts)).step().mean_loss();
    } else {
      const graph::StepGraph graph = graph_of(cost, step, 5, graph::Purpose::kEvaluate);
      loss = engine.evaluate(graph, tokens_of(graph)).mean_loss();
    }
    const std::lock_guard lock(mutex_);
    if (rank_ == 0) record_.evaluated_losses.push_back(loss);
  }

  AdamW optimizer_of(int64_t step) const {
    AdamW optimizer;
    optimizer.moe_router_bias_update_rate = options_.moe_router_bias_update_rate;
    optimizer.lr = 3e-3;
    optimizer.muon = options_.muon;
    optimizer.update = step + 1;
    return optimizer;
  }

  void train_trunks_step(Engine& engine, int64_t step) {
    const std::vector<TestTrunks::Act> acts = acts_of(step, 3, graph::Purpose::kTrain);
    const TrunksResult result = train_trunks(engine, TestTrunks::steps(acts), optimizer_of(step));
    const std::lock_guard lock(mutex_);
    if (step == 0) trunks_->expect_proved(acts, result, rank_);
    record_.row_bytes.resize(static_cast<size_t>(options_.steps));
    for (const TrunkAct& act : result.acts) record_.row_bytes[static_cast<size_t>(step)] += act.row_bytes;
    if (rank_ != 0) return;
    record_.expected_row_bytes.push_back(trunks_->row_bytes(acts));
    record_.losses.push_back(result.step().mean_loss());
    record_.gradient_norms.push_back(result.step().gradient_norm);
  }

  void train_step(Engine& engine, const cost::CostModel& cost, int64_t step) {
    for (int act = 0; act + 1 < options_.acts; ++act) {
      const graph::StepGraph earlier = graph_of(cost, step, 3, graph::Purpose::kTrain, act);
      engine.accumulate(earlier, tokens_of(earlier));
    }
    const graph::StepGraph graph = graph_of(cost, step, 3, graph::Purpose::kTrain, options_.acts - 1);
    const AdamW optimizer = optimizer_of(step);
    const StepTokens tokens = tokens_of(graph);
    TeacherRows rows;
    for (TestTeacher& teacher : teachers_) rows.push_back(teacher.rows(graph, tokens));
    const StepResult result = engine.train(graph, tokens, optimizer, rows.empty() ? nullptr : &rows);
    if (options_.behind_step) options_.behind_step(engine, graph, result);
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<size_t>(step);
    const auto ranks = static_cast<size_t>(options_.world_size);
    if (record_.pulled_bytes.size() <= at) {
      record_.pulled_bytes.resize(at + 1);
      record_.pushed_bytes.resize(at + 1);
      record_.exchange_bytes.resize(at + 1);
      record_.fsdp_bytes.resize(at + 1);
      record_.peak_bytes.resize(at + 1, std::vector<int64_t>(ranks));
      record_.predicted_peak_bytes.resize(at + 1, std::vector<int64_t>(ranks));
      record_.host_peak_bytes.resize(at + 1, std::vector<int64_t>(ranks));
    }
    record_.pulled_bytes[at] += result.pulled_bytes;
    record_.pushed_bytes[at] += result.pushed_bytes;
    record_.exchange_bytes[at] += result.exchange_bytes;
    record_.fsdp_bytes[at] += result.fsdp_bytes;
    const auto rank = static_cast<size_t>(rank_);
    record_.peak_bytes[at][rank] = result.peak_bytes;
    record_.host_peak_bytes[at][rank] = result.host_peak_bytes;
    record_.predicted_peak_bytes[at][rank] = graph::predicted_memory(graph, cost)[rank].peak_bytes;
    if (rank_ != 0) return;
    record_.expected_fsdp_bytes.push_back(
        share_bytes_by_formula(graph.plan, table_, precision(), options_.codecs, options_.gpus_per_node));
    record_.expected_exchange_bytes.push_back(
        exchange_bytes_by_formula(graph.plan, table_, options_.dtype, options_.gpus_per_node));
    record_.step_ns.push_back(result.timing.step_ns);
    record_.losses.push_back(result.mean_loss());
    record_.gradient_norms.push_back(result.gradient_norm);
    if (table_.model.has_mtp()) record_.mtp_losses.push_back(result.notes.at(0) / result.notes.at(1));
  }

  void set_initial(ParameterStore& store) const {
    if (options_.initial.empty()) return;
    const auto of_plain = [&](const model::Bucket& bucket, base::Interval interval, float* values) {
      for (const model::Parameter& parameter : bucket.parameters) {
        const auto given = options_.initial.find(parameter.name);
        if (given == options_.initial.end()) continue;
        const base::Interval own =
            base::intersect(interval, {parameter.offset, parameter.offset + parameter.size()});
        for (int64_t i = own.begin; i < own.end; ++i)
          values[i - interval.begin] = given->second[static_cast<size_t>(i - parameter.offset)];
      }
    };
    const auto of_numbers = [&](int bucket, base::Interval interval, float* values) {
      of_plain(table_.buckets[static_cast<size_t>(bucket)], interval, values);
    };
    load_masters(store, of_numbers, of_plain);
  }

  // Moves each initial value by a unit in the last place, or not. REQUIRES: one rank, in FP64.
  void nudge(ParameterStore& store) const {
    base::Rng random(options_.nudge);
    for (const model::Bucket& bucket : table_.buckets) {
      if (bucket.coded) continue;
      const at::Tensor& master = store.owner(bucket.index).master;
      double* const values = master.mutable_data_ptr<double>();
      for (int64_t i = 0; i < master.numel(); ++i) {
        const auto direction = static_cast<double>(random.between(-1, 1));
        values[i] = std::nextafter(values[i], values[i] + direction);
      }
    }
  }

  static void set_policies(strategy::StepPlan& plan, const std::vector<strategy::MemoryPolicy>& policies) {
    if (policies.empty()) return;
    for (strategy::PipelinePlan& pipeline : plan.pipelines) {
      for (size_t i = 0; i < pipeline.micro_batches.size(); ++i)
        pipeline.micro_batches[i].memory = policies[i % policies.size()];
    }
  }

  void set_exchanges(strategy::StepPlan& plan) const {
    size_t next = 0;
    for (strategy::PipelinePlan& pipeline : plan.pipelines) {
      const int64_t heads = model::head_counts(table_.model, pipeline.pipeline.scheme.tp).queries;
      for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
        if (micro_batch.lanes == 1) continue;
        const auto& [wanted, exchange] = options_.exchanges[next++ % options_.exchanges.size()];
        micro_batch.exchange = exchange;
        const int run = wanted == 0 ? micro_batch.lanes : wanted;
        if (run == 1 || micro_batch.lanes % run != 0 || run > heads) continue;
        micro_batch.exchange =
            run == micro_batch.lanes ? strategy::Exchange::kHeads : strategy::Exchange::kNested;
        micro_batch.nested_lanes = run == micro_batch.lanes ? 0 : run;
      }
    }
  }

  void record_parameters(ParameterStore& store) {
    const std::lock_guard lock(mutex_);
    const bool coded = std::ranges::any_of(table_.buckets, &model::Bucket::coded);
    const bool plain = options_.moments == base::MomentFormat::kWide && options_.masters == Masters::kWide;
    if (options_.dtype == comm::DType::kFloat64 && plain && !coded && device_.is_cpu())
      record_owned(store, record_.owned);
    for (const model::Bucket& bucket : table_.buckets) {
      if (bucket.coded) continue;  // words may be no numbers
      const OwnerSlice& slice = store.owner(bucket.index);
      const at::Tensor values = slice.master.to(c10::kCPU, c10::ScalarType::Double).contiguous();
      const double* first = values.const_data_ptr<double>() - slice.owned.begin;
      for (const model::Parameter& parameter : bucket.parameters) {
        std::vector<double>& whole = record_.parameters[parameter.name];
        whole.resize(static_cast<size_t>(parameter.size()));
        const base::Interval run =
            base::intersect(slice.owned, {parameter.offset, parameter.offset + parameter.size()});
        std::copy_n(first + run.begin, run.size(),
                    whole.begin() + (run.empty() ? 0 : run.begin - parameter.offset));
      }
    }
  }

  const RunOptions& options_;
  const model::ParameterTable& table_;
  int rank_;
  RunRecord& record_;
  std::mutex& mutex_;
  std::unique_ptr<comm::Transport> host_;
  c10::Device device_;
  std::unique_ptr<comm::Transport> transport_;  // on a device; null on the CPU
  std::vector<strategy::Strategy> strategies_;
  graph::LinkPlans link_plans_;
  std::deque<TestTeacher> teachers_;
  std::optional<TestTrunks> trunks_;
};

}  // namespace

int64_t usual_steps() {
  const char* steps = std::getenv("SLUICE_TEST_STEPS");
  return steps == nullptr ? 20 : std::max(1, std::atoi(steps));
}

RunRecord run_in_process(const RunOptions& options) {
  at::set_num_threads(1);
  const model::ParameterTable table =
      model::parameter_table(options.model, model::Program(options.model, options.cut_times));
  comm::FakeOptions fake;
  fake.max_delay_ns = options.max_delay_ns;
  comm::FakeWorld world(options.world_size, fake);
  RunRecord record;
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        RankRun(options, table, world, rank, record, mutex)();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  if (failure) std::rethrow_exception(failure);
  return record;
}

}  // namespace sluice::runtime
