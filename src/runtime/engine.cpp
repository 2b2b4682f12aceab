#include "runtime/engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/tensor_memory.h"
#include "runtime/router_corrections.h"
#include "runtime/step_runner.h"

namespace sluice::runtime {

namespace {

// Moves of the step that began at `begin`.
std::vector<graph::FsdpMove> moves_since(std::chrono::steady_clock::time_point begin,
                                         const GatheredParameters& gathered) {
  const auto since = [&](std::chrono::steady_clock::time_point time) {
    return int64_t{std::chrono::nanoseconds(time - begin).count()};
  };
  std::vector<graph::FsdpMove> moves;
  for (const FsdpMove& move : gathered.moves())
    moves.push_back({move.node, move.position, move.movement, since(move.start), since(move.end)});
  return moves;
}

// Rows beyond a position table would read foreign memory.
void require_positions(const strategy::StepPlan& plan, int64_t positions) {
  for (const strategy::Sequence& sequence : plan.sequences) {
    const int64_t behind = sequence.branches.empty() ? 0 : std::ranges::max(sequence.branches);
    const int64_t longest = sequence.prefix_tokens() + behind;
    SLUICE_ASSERT(longest <= positions, base::text("a sequence of ", longest, " tokens, but tables of ",
                                                   positions, " positions (EngineOptions::context_length)"));
  }
}

std::vector<CodedNumbers> room_for_differences(const model::ParameterTable& table,
                                               const std::vector<link::Holding>& holdings,
                                               c10::Device device) {
  std::vector<CodedNumbers> room(table.buckets.size());
  const auto options = at::TensorOptions().device(device);
  for (const link::Holding& holding : holdings) {
    if (link::differing(table.buckets[static_cast<size_t>(holding.bucket)]).empty()) continue;
    room[static_cast<size_t>(holding.bucket)] = {
        at::zeros({holding.shard.size()}, options.dtype(at::kShort)),
        at::zeros({link::coding_groups(holding.shard).size()}, options.dtype(at::kFloat))};
  }
  return room;
}

// By bucket, the parameters that a rank computes with, gathered from the lanes that share them.
std::vector<at::Tensor> gathered(ParameterStore& store, FsdpChannel& channel,
                                 const strategy::Pipeline& pipeline, int t) {
  const std::vector<FsdpHolders> all_holders =
      fsdp_holders(store.table(), pipeline, channel.member(), t, /*run_lanes=*/1);
  std::vector<at::Tensor> whole(store.table().buckets.size());
  for (const model::Bucket& bucket : store.table().buckets) {
    if (!store.holds(bucket.index)) continue;
    const auto index = static_cast<size_t>(bucket.index);
    const FsdpHolders& holders = all_holders[index];
    const at::Tensor& own = store.shard(bucket.index).sent;
    whole[index] = own;
    if (holders.count > 1) {
      whole[index] = at::empty({own.numel() * holders.count}, own.options());
      std::vector<int> members;
      for (int holder = 0; holder < holders.count; ++holder)
        members.push_back(holders.member(holder, channel.member()));
      channel.gather(own, whole[index], members).wait(own.device());
    }
    whole[index] = whole[index].narrow(0, 0, holders.elements);
  }
  return whole;
}

// The ranks beside one rank in its pipeline, for text generation.
void add_neighbours(const strategy::Pipeline& pipeline, const strategy::Place& place,
                    Engine::ModelPart& part) {
  part.stage = place.stage;
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage)
    part.stage_ranks.push_back(pipeline.rank_of(stage, place.lane, place.t));
  part.lane = place.lane;
  for (int lane = 0; lane < pipeline.scheme.cp; ++lane)
    part.lane_ranks.push_back(pipeline.rank_of(place.stage, lane, place.t));
  part.context.experts = {pipeline.scheme.ep, place.lane - pipeline.scheme.first_of_ep_group(place.lane)};
}

}  // namespace

Engine::Engine(const model::ParameterTable& table, const std::vector<strategy::Strategy>& candidates,
               comm::Transport& transport, std::unique_ptr<Executor> executor, const Options& options)
    : table_(table),
      rank_(transport.rank()),
      transport_(transport),
      options_(options),
      store_(table, {transport.rank(), transport.world_size(), options.precision, options.device,
                     options.trains, options.codecs.pull, options.moments}),
      communicators_(options.communicators != nullptr
                         ? options.communicators
                         : std::make_shared<Communicators>(
                               transport,
                               options.host_transport != nullptr ? *options.host_transport : transport,
                               candidates)),
      link_inter_(communicators_->link_inter(), options.link_mover),
      link_intra_(communicators_->link_intra(), options.link_mover),
      executor_(std::move(executor)),
      context_(layers::layer_context(
          table.model, {}, options.context_length,
          at::TensorOptions().dtype(scalar_type(options.precision.compute)).device(options.device))) {
  context_.loss = options.loss;
  context_.number_loss = options.number_loss;
  context_.moe_aux_loss_coeff = options.moe_aux_loss_coeff;
  context_.mtp_loss_weight = options.mtp_loss_weight;
  context_.temperature = options.temperature;
  context_.distillation = options.distillation;
  context_.keeps_head_rows = options.keeps_head_rows;
  if (options.logits_chunk_bytes > 0) context_.logits_chunk_bytes = options.logits_chunk_bytes;
  if (communicators_->lanes() != nullptr)
    lanes_.emplace(*communicators_->lanes(), communicators_->lanes_between_nodes());
}

Engine::~Engine() = default;

const LinkWires& Engine::wires_of(const std::shared_ptr<const graph::LinkPlan>& links) {
  const auto found = wires_.find(links);
  if (found != wires_.end()) return found->second;
  if (wires_.size() >= kMostWires) wires_.clear();
  const bool differences = strategy::is_difference(options_.codecs.pull);
  return wires_.emplace(links, link_wires(table_, *links, rank_, differences)).first->second;
}

StepPull Engine::pull_of(const std::shared_ptr<const graph::LinkPlan>& links) {
  using Holders = StepPull::Holders;
  StepPull pull;
  if (!strategy::is_difference(options_.codecs.pull)) return pull;
  const int64_t version = store_.copies_version();
  if (held_.links != links) {
    held_ = {links};
  } else if (held_.version == version) {
    pull.holders = Holders::kHaveAll;
  } else if (held_.version + 1 == version && store_.followed()) {
    pull.holders = Holders::kHaveTheStepBefore;
    if (held_.differences.empty())
      held_.differences = room_for_differences(table_, links->layout.holdings(rank_), options_.device);
    pull.differences = &held_.differences;
  }
  held_.version = version;
  return pull;
}

void Engine::make_room_for_links(const LinkWires& wires) {
  const strategy::WireCodecs& codecs = options_.codecs;
  link_inter_.make_room(wires, &link::RoundWire::inter, options_.precision,
                        {codecs.pull, codecs.push.between_nodes}, options_.device);
  link_intra_.make_room(wires, &link::RoundWire::intra, options_.precision,
                        {codecs.pull, codecs.push.in_node}, options_.device);
}

// Each strategy's shards and exchanges have their own sizes, and its memory was proved without another's.
void Engine::release_buffers_of_others(const std::shared_ptr<const graph::LinkPlan>& links) {
  if (buffered_ == links) return;
  buffered_ = links;
  held_ = {};
  store_.close_step();
  link_inter_.release();
  link_intra_.release();
}

StepResult Engine::train(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW& optimizer,
                         const TeacherRows* teachers, TrunkRows* rows) {
  const bool has_loss = graph.program.run().end > graph.program.head();
  SLUICE_ASSERT((teachers != nullptr) == (options_.distillation.has_value() && has_loss),
                "a distillation has teachers' rows, and other losses have none");
  const StepResult result = run(graph, tokens, &optimizer, nullptr, teachers, rows);
  earlier_.reset();
  return result;
}

StepResult Engine::accumulate(const graph::StepGraph& graph, const StepTokens& tokens,
                              const TeacherRows* teachers, TrunkRows* rows) {
  if (!earlier_) earlier_.emplace();
  const AdamW none;
  return run(graph, tokens, &none, nullptr, teachers, rows, Updates::kInALaterAct);
}

StepResult Engine::evaluate(const graph::StepGraph& graph, const StepTokens& tokens, RowFigures* rows,
                            TrunkRows* trunk_rows) {
  return run(graph, tokens, nullptr, rows, nullptr, trunk_rows);
}

ActRows Engine::carry(const RowLink& link, const ActRows& rows) {
  release();
  return runtime::carry(link, rows, options_.precision.compute, options_.device, {link_inter_, link_intra_});
}

Engine::ModelPart Engine::hold(const strategy::Strategy& strategy,
                               const std::shared_ptr<const graph::LinkPlan>& links) {
  const LinkWires& wires = wires_of(links);
  held_ = {};
  release_buffers_of_others(links);
  store_.open_step(links->layout.holdings(rank_), ParameterStore::Gradients::kNone);
  const LinkRunner::Memories memories = pull_memories(store_);
  for (const std::vector<link::RoundWire>& round : wires.pull) {
    for (const link::RoundWire& piece : round)
      link_inter_.run(piece.inter, memories, options_.precision.compute);
    for (const link::RoundWire& piece : round)
      link_intra_.run(piece.intra, memories, options_.precision.compute);
  }
  transport_.check();
  context_.corrections = router_corrections(store_, communicators_->control());
  ModelPart part{.context = context_,
                 .weights =
                     [this](int bucket) {
                       return held_.whole.empty() ? store_.shard(bucket).parameters
                                                  : held_.whole[static_cast<size_t>(bucket)];
                     },
                 .stage_ranks = {},
                 .between_stages = &communicators_->activation()};
  const strategy::Place place =
      strategy::places(strategy, transport_.world_size())[static_cast<size_t>(rank_)];
  if (place.pipeline < 0) return part;
  const strategy::Pipeline& pipeline = strategy.pipelines[static_cast<size_t>(place.pipeline)];
  const int tp = pipeline.scheme.tp;
  part.context.parallel = {communicators_->tensor_parallel(pipeline.tp_group(place.stage, place.lane)), tp,
                           place.t};
  add_neighbours(pipeline, place, part);
  part.context.lanes = lanes_ ? &*lanes_ : nullptr;
  if (pipeline.scheme.fsdp > 1) {
    comm::Communicator& group = communicators_->fsdp(pipeline.fsdp_group(place.stage, place.lane, place.t));
    held_.whole = gathered(store_, shares_.try_emplace(&group, group).first->second, pipeline, place.t);
  }
  return part;
}

namespace {

// Takes over the sums and counts of the step's nodes.
void take_sums(const StepRunner& runner, StepResult& result) {
  result.loss_sum = runner.scalars().loss_sum;
  result.notes = runner.scalars().notes;
  result.targets = runner.scalars().targets;
  result.gradient_norm = runner.gradient_norm();
  result.exchange_bytes = runner.exchange_bytes();
  result.expert_load_imbalance = runner.expert_load_imbalance();
  result.experts = runner.expert_load();
}

void take_link_bytes(const LinkWires& wires, const EngineOptions& options, const StepPull& pull,
                     graph::Purpose purpose, StepResult& result) {
  if (pull.holders != StepPull::Holders::kHaveAll) {
    result.pulled_bytes =
        wires.pulled_bytes(options.codecs.pull, pull.holders == StepPull::Holders::kHaveTheStepBefore,
                           comm::size_of(options.precision.compute));
  }
  if (purpose == graph::Purpose::kTrain)
    result.pushed_bytes = wires.pushed_bytes(options.codecs.push, comm::size_of(options.precision.master()));
}

ops::AllocatorUse allocator_use_since(int64_t retries_before, c10::Device device) {
  ops::AllocatorUse use = ops::allocator_use(device);
  use.retries -= retries_before;
  return use;
}

}  // namespace

StepResult Engine::run(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW* optimizer,
                       RowFigures* rows, const TeacherRows* teachers, TrunkRows* trunk_rows,
                       Updates updates) {
  const auto begin = std::chrono::steady_clock::now();
  require_positions(graph.plan, options_.context_length);
  release_buffers_of_others(graph.links);
  ops::reset_peak_tensor_bytes(options_.device);
  const int64_t retries_before = ops::allocator_use(options_.device).retries;
  const LinkWires& wires = wires_of(graph.links);
  if (options_.trains) make_room_for_links(wires);
  const StepPull pull = pull_of(graph.links);
  context_.corrections = router_corrections(store_, communicators_->control());
  StepResult result;
  const bool asks = optimizer != nullptr && asked_ != base::GemmFormat::kAsComputed;
  if (asks) result.errors.format = std::exchange(asked_, base::GemmFormat::kAsComputed);
  StepRunner runner(graph, rank_, tokens,
                    {.store = store_,
                     .communicators = *communicators_,
                     .link_inter = link_inter_,
                     .link_intra = link_intra_,
                     .lanes = lanes_ ? &*lanes_ : nullptr,
                     .fsdp = shares_,
                     .wires = wires,
                     .context = context_,
                     .counts_coactivations = options_.counts_coactivations,
                     .errors = asks ? &result.errors : nullptr,
                     .codecs = options_.codecs,
                     .pull = pull,
                     .teachers = teachers,
                     .earlier = earlier_ && optimizer != nullptr ? &*earlier_ : nullptr,
                     .rows = trunk_rows,
                     .updates = updates == Updates::kNow},
                    optimizer);
  const Waits waits_before = communicators_->waits();
  result.timing = executor_->run(graph, rank_, runner);
  transport_.check();
  result.timing.step_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  result.own = own_work(graph, result.timing);
  result.waits = result.timing.stalled;
  result.waits += communicators_->waits();
  result.waits -= waits_before;
  take_sums(runner, result);
  if (rows != nullptr) *rows = {runner.row_losses(), runner.row_numbers(), runner.take_head_rows()};
  take_link_bytes(wires, options_, pull, graph.purpose, result);
  if (runner.gathered() != nullptr) {
    result.fsdp_bytes = runner.gathered()->moved_bytes();
    result.fsdp_exposed_ns = result.waits[WaitCause::kFsdp];
    if (options_.device.is_cpu()) result.timing.moves = moves_since(begin, *runner.gathered());
  }
  result.host_peak_bytes = runner.peak_host_bytes();
  result.allocator = allocator_use_since(retries_before, options_.device);
  const int64_t counted_bytes = ops::peak_tensor_bytes(options_.device);
  result.peak_bytes = counted_bytes > 0
                          ? counted_bytes
                          : store_.owner_bytes() + store_.compute_bytes() + link_inter_.bytes() +
                                link_intra_.bytes() + runner.peak_activation_bytes();
  return result;
}

}  // namespace sluice::runtime
