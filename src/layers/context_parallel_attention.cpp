// T: rows of the micro-batch, N: query heads, D: dimensions of a head; B, W, J as in exchanged_keys.h; S =
// 3N: a row's queries, output gradients and outputs.
//
// The softmax over all keys is merged from softmaxes over parts of the keys (ops::merge). Backward is a sum
// over these parts, too: P and dS of a part need no keys of other parts, given the merged lse and δ = Σ
// dout·out of the whole output.
#include "layers/context_parallel_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "ops/attention_merge.h"

namespace sluice::layers {
namespace {

using Rows = RowTransfers::Rows;
using Transfer = RowTransfers::Transfer;
using Tensors = std::vector<at::Tensor>;  // travel together

at::Tensor part(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }

// Calls visit(rows of a micro-batch, their place when all intervals lie end to end).
template <typename Visit>
void for_each_part(const std::vector<base::Interval>& intervals, const Visit& visit) {
  int64_t row = 0;
  for (const base::Interval rows : intervals) {
    visit(rows, base::Interval{row, row + rows.size()});
    row += rows.size();
  }
}

// Rows of several intervals, end to end.
at::Tensor taken(const at::Tensor& x, const std::vector<base::Interval>& intervals) {
  Tensors parts = {part(x, {0, 0})};
  for (const base::Interval rows : intervals) parts.push_back(part(x, rows));
  return at::cat(parts);
}

int64_t count_of(const std::vector<base::Interval>& intervals) {
  int64_t count = 0;
  for (const base::Interval rows : intervals) count += rows.size();
  return count;
}

at::Tensor travelling_rows(const ExchangedKeys& keys, const std::vector<base::Interval>& intervals,
                           const at::TensorOptions& like) {
  const at::Tensor rows_BW = at::empty({count_of(intervals), keys.width()}, like);
  for_each_part(intervals,
                [&](base::Interval rows, base::Interval to) { keys.put(rows, part(rows_BW, to)); });
  return rows_BW;
}

// Transfers in flight.
class UnderWay {
 public:
  UnderWay(LaneChannel& channel, const at::Device& device) : channel_(channel), device_(device) {}

  // Starts all transfers for which of(transfer) is not empty, at once; slow ones beside the others.
  template <typename Of>
  void begin(const std::vector<Transfer>& transfers, const Of& of) {
    for (const bool slow : {true, false}) {
      std::vector<LaneChannel::Parcel> parcels;
      std::vector<Arrival> arrivals;
      int due = std::numeric_limits<int>::max();
      Tensors kept;
      for (const Transfer& transfer : transfers) {
        if (transfer.slow != slow) continue;
        const Tensors tensors = of(transfer);
        const auto way = transfer.leaves ? LaneChannel::Parcel::Way::kTo : LaneChannel::Parcel::Way::kFrom;
        for (const at::Tensor& tensor : tensors) parcels.push_back({tensor, transfer.member, way});
        kept.insert(kept.end(), tensors.begin(), tensors.end());
        if (tensors.empty()) continue;
        due = std::min(due, transfer.due);
        if (!transfer.leaves) arrivals.push_back({&transfer, tensors});
      }
      if (parcels.empty()) continue;
      const auto order = slow ? LaneChannel::Order::kBeside : LaneChannel::Order::kOneByOne;
      groups_.push_back({channel_.exchange(parcels, order), due, std::move(arrivals), std::move(kept)});
    }
  }

  // Waits for transfers that are due by `step` and calls arrived(transfer, its tensors).
  template <typename Arrived>
  void settle(int step, const Arrived& arrived) {
    std::erase_if(groups_, [&](Group& group) {
      if (group.due > step) return false;
      group.passing.wait(device_);
      for (const auto& [transfer, tensors] : group.arrivals) arrived(*transfer, tensors);
      return true;
    });
  }

 private:
  struct Arrival {
    const Transfer* transfer;
    Tensors tensors;
  };
  struct Group {
    Passing passing;
    int due;
    std::vector<Arrival> arrivals;
    Tensors kept;  // untouched until then
  };

  LaneChannel& channel_;
  at::Device device_;
  std::vector<Group> groups_;
};

// Rows of other lanes: they arrive, are used and are passed on.
class OthersRows {
 public:
  // own(rows, intervals) gives this lane's rows; space(rows, count) allocates room for others'.
  template <typename Own, typename Space>
  void begin(const RowTransfers::Step& step, UnderWay& under_way, const Own& own, const Space& space) const {
    under_way.begin(step.hops, [&](const Transfer& hop) -> Tensors {
      if (!hop.leaves) return space(hop.rows, hop.count);
      return hop.own ? own(hop.rows, hop.own_rows) : of(hop.rows, hop.of);
    });
  }
  void add(const Transfer& hop, const Tensors& tensors) { held_[{hop.rows, hop.of}] = tensors; }
  void drop(const RowTransfers::Step& step) {
    for (const auto& rows : step.done) held_.erase(rows);
  }
  const Tensors& of(const RowTransfers::RemoteAttention& meeting) const {
    return of(meeting.others, meeting.of);
  }

 private:
  const Tensors& of(Rows rows, int lane) const { return held_.at({rows, lane}); }

  std::map<std::pair<Rows, int>, Tensors> held_;
};

constexpr int kEnd = std::numeric_limits<int>::max();

}  // namespace

void add_blocks_backward(const at::Tensor& dout_TND, const ops::AttentionInput& input,
                         const ops::AttentionResult& saved, std::span<const ops::AttentionBlock> blocks,
                         const ops::AttentionGradient& gradient) {
  if (blocks.empty()) return;
  const at::ScalarType wide = saved.lse_NT.scalar_type();
  const ops::AttentionGradient sum{gradient.dq_TND.to(wide), gradient.dk_TKD.to(wide),
                                   gradient.dv_TKD.to(wide)};
  ops::attend_blocks_backward(dout_TND, input, saved, blocks, sum);
  if (sum.dq_TND.is_same(gradient.dq_TND)) return;
  gradient.dq_TND.copy_(sum.dq_TND);
  gradient.dk_TKD.copy_(sum.dk_TKD);
  gradient.dv_TKD.copy_(sum.dv_TKD);
}

namespace {

// Travelling rows in a forward: ExchangedKeys in place of keys, and the queries themselves.
class Forward {
 public:
  Forward(const ops::AttentionInput& input, const ExchangedKeys& keys) : input_(input), keys_(keys) {}

  Tensors own(Rows rows, const std::vector<base::Interval>& of) const {
    if (rows == Rows::kQueries) return {taken(input_.q_TND, of)};
    return {travelling_rows(keys_, of, input_.k_TKD.options())};
  }
  Tensors space(Rows rows, int64_t count) const {
    if (rows == Rows::kQueries) return {empty_queries(count)};
    return {at::empty({count, keys_.width()}, input_.k_TKD.options())};
  }

  // Own queries on others' keys add to `seen`. Others' queries on own keys give results for returned().
  void meet(const RowTransfers::RemoteAttention& meeting, const Tensors& others,
            const ops::AttentionResult& seen) {
    if (meeting.others == Rows::kKeys) {
      ops::attend_blocks(input_.on(keys_.keys_of(others[0])), meeting.blocks, seen);
      return;
    }
    ops::AttentionInput input = input_;
    input.q_TND = others[0];
    const ops::AttentionResult theirs = ops::nothing_seen(input.q_TND);
    ops::attend_blocks(input, meeting.blocks, theirs);
    made_[meeting.of] = {theirs.out_TND.to(input_.q_TND.scalar_type()), theirs.lse_NT};
  }

  // Outputs on their way to the queries' lane; keys return nothing.
  Tensors returned(const Transfer& of, const at::TensorOptions& wide) {
    if (of.rows == Rows::kKeys) return {};
    if (of.leaves) return std::move(made_.at(of.of));
    return {empty_queries(of.count), at::empty({input_.q_TND.size(1), of.count}, wide)};
  }
  void come_home(const Transfer& of, const Tensors& result, const ops::AttentionResult& seen) const {
    const at::Tensor out_BND = result[0].to(seen.out_TND.scalar_type());
    for_each_part(of.own_rows, [&](base::Interval rows, base::Interval come) {
      ops::merge({part(seen.out_TND, rows), seen.lse_NT.narrow(1, rows.begin, rows.size())},
                 {part(out_BND, come), result[1].narrow(1, come.begin, come.size())});
    });
  }

 private:
  at::Tensor empty_queries(int64_t count) const {
    return at::empty({count, input_.q_TND.size(1), input_.q_TND.size(2)}, input_.q_TND.options());
  }

  const ops::AttentionInput& input_;
  const ExchangedKeys& keys_;
  std::map<int, Tensors> made_;  // by the queries' lane: outputs and log-sum-exps
};

// Travelling rows in a backward: queries with the tensors that their gradients need.
class Backward {
 public:
  Backward(const at::Tensor& dout_TND, const ops::AttentionInput& input, const ops::AttentionResult& saved,
           const ops::AttentionGradient& sum, const ExchangedKeys& keys)
      : dout_TND_(dout_TND), input_(input), saved_(saved), sum_(sum), keys_(keys) {}

  Tensors own(Rows rows, const std::vector<base::Interval>& of) const {
    if (rows == Rows::kKeys) return {travelling_rows(keys_, of, input_.k_TKD.options())};
    Tensors lse = {saved_.lse_NT.narrow(1, 0, 0)};
    for (const base::Interval some : of) lse.push_back(saved_.lse_NT.narrow(1, some.begin, some.size()));
    return {at::cat({taken(input_.q_TND, of), taken(dout_TND_, of), taken(saved_.out_TND, of)}, 1),
            at::cat(lse, 1)};
  }
  Tensors space(Rows rows, int64_t count) const {
    if (rows == Rows::kKeys) return {empty_keys(count)};
    return {at::empty({count, 3 * heads(), dimension()}, input_.q_TND.options()),
            at::empty({heads(), count}, saved_.lse_NT.options())};
  }

  void meet(const RowTransfers::RemoteAttention& meeting, const Tensors& others) {
    const at::TensorOptions wide = saved_.lse_NT.options();
    if (meeting.others == Rows::kKeys) {
      const int64_t keys = input_.k_TKD.size(1);
      const at::Tensor own_BJD = at::zeros({meeting.count, 2 * keys, input_.k_TKD.size(2)}, wide);
      ops::attend_blocks_backward(dout_TND_, input_.on(keys_.keys_of(others[0])), saved_, meeting.blocks,
                                  {sum_.dq_TND, own_BJD.narrow(1, 0, keys), own_BJD.narrow(1, keys, keys)});
      add({Rows::kKeys, meeting.of}, keys_.gradient(others[0], own_BJD));
      return;
    }
    const auto of_three = [&](int which) { return others[0].narrow(1, which * heads(), heads()); };
    ops::AttentionInput input = input_;
    input.q_TND = of_three(0);
    const at::Tensor dq_BND = at::zeros({meeting.count, heads(), dimension()}, wide);
    ops::attend_blocks_backward(of_three(1), input, {of_three(2), others[1], saved_.rng}, meeting.blocks,
                                {dq_BND, sum_.dk_TKD, sum_.dv_TKD});
    add({Rows::kQueries, meeting.of}, dq_BND);
  }

  // Gradients on their way to their rows' lane, in the inputs' type.
  Tensors returned(const Transfer& of) {
    if (of.leaves) {
      const auto made = made_.extract({of.rows, of.of});
      return {made.mapped().to(input_.q_TND.scalar_type()).contiguous()};
    }
    if (of.rows == Rows::kKeys) return {empty_keys(of.count)};
    return {at::empty({of.count, heads(), dimension()}, input_.q_TND.options())};
  }
  void come(const Transfer& of, const at::Tensor& sum) {
    if (!of.own) return add({of.rows, of.of}, sum.to(saved_.lse_NT.scalar_type()));
    for_each_part(of.own_rows, [&](base::Interval rows, base::Interval come) {
      if (of.rows == Rows::kKeys) {
        keys_.add(rows, part(sum, come));
      } else {
        part(sum_.dq_TND, rows).add_(part(sum, come));
      }
    });
  }

 private:
  int64_t heads() const { return input_.q_TND.size(1); }
  int64_t dimension() const { return input_.q_TND.size(2); }
  at::Tensor empty_keys(int64_t count) const {
    return at::empty({count, keys_.width()}, input_.k_TKD.options());
  }
  void add(std::pair<Rows, int> of, const at::Tensor& sum) {
    const auto [at, first] = made_.try_emplace(of, sum);
    if (!first) at->second.add_(sum);
  }

  const at::Tensor& dout_TND_;
  const ops::AttentionInput& input_;
  const ops::AttentionResult& saved_;
  const ops::AttentionGradient& sum_;
  const ExchangedKeys& keys_;
  std::map<std::pair<Rows, int>, at::Tensor> made_;
};

}  // namespace

ops::AttentionResult context_parallel_attention(LaneChannel& channel, const AttendedRows& rows,
                                                const ops::AttentionInput& input, const ExchangedKeys* keys) {
  const WholeKeys whole(input);
  Forward forward(input, keys != nullptr ? *keys : whole);
  UnderWay hops(channel, input.q_TND.device()), results(channel, input.q_TND.device());
  OthersRows others;
  ops::AttentionResult seen;
  const auto own = [&](Rows what, const auto& of) { return forward.own(what, of); };
  const auto space = [&](Rows what, int64_t count) { return forward.space(what, count); };
  const auto come_home = [&](const Transfer& of, const Tensors& result) {
    forward.come_home(of, result, seen);
  };
  int index = 0;
  for (const RowTransfers::Step& step : rows.transfers.steps) {
    others.begin(step, hops, own, space);
    if (index == 0) {
      seen = ops::attention(input, rows.sequences);
      seen.out_TND = seen.out_TND.to(seen.lse_NT.scalar_type());
      ops::attend_blocks(input, rows.own_blocks, seen);
    }
    if (step.remote_attention) forward.meet(*step.remote_attention, others.of(*step.remote_attention), seen);
    results.settle(index, come_home);
    results.begin(step.returns,
                  [&](const Transfer& of) { return forward.returned(of, seen.lse_NT.options()); });
    others.drop(step);
    hops.settle(++index, [&](const Transfer& hop, const Tensors& tensors) { others.add(hop, tensors); });
  }
  results.settle(kEnd, come_home);
  seen.out_TND = seen.out_TND.to(input.q_TND.scalar_type());
  return seen;
}

void context_parallel_attention_backward(LaneChannel& channel, const AttendedRows& rows,
                                         const at::Tensor& dout_TND, const ops::AttentionInput& input,
                                         const ops::AttentionResult& saved,
                                         const ops::AttentionGradient& gradient, const ExchangedKeys* keys) {
  const at::ScalarType wide = saved.lse_NT.scalar_type();
  UnderWay hops(channel, input.q_TND.device()), results(channel, input.q_TND.device());
  OthersRows others;
  // Allocated after the first rows left, so that they travel meanwhile.
  ops::AttentionGradient sum;
  const WholeKeys whole(input, &sum);
  const ExchangedKeys& travelling = keys != nullptr ? *keys : whole;
  Backward backward(dout_TND, input, saved, sum, travelling);
  const auto own = [&](Rows what, const auto& of) { return backward.own(what, of); };
  const auto space = [&](Rows what, int64_t count) { return backward.space(what, count); };
  const auto come = [&](const Transfer& of, const Tensors& result) { backward.come(of, result[0]); };
  const bool wide_keys = rows.transfers.lends_keys() || !rows.own_blocks.empty() || input.window > 0;
  int index = 0;
  for (const RowTransfers::Step& step : rows.transfers.steps) {
    others.begin(step, hops, own, space);
    if (index == 0) {
      ops::attention_backward(dout_TND, input, saved, rows.sequences, gradient);
      sum = gradient;
      sum.dq_TND = gradient.dq_TND.to(wide);
      if (wide_keys) sum.dk_TKD = gradient.dk_TKD.to(wide), sum.dv_TKD = gradient.dv_TKD.to(wide);
      ops::attend_blocks_backward(dout_TND, input, saved, rows.own_blocks, sum);
    }
    if (step.remote_attention) backward.meet(*step.remote_attention, others.of(*step.remote_attention));
    results.settle(index, come);
    results.begin(step.returns, [&](const Transfer& of) { return backward.returned(of); });
    others.drop(step);
    hops.settle(++index, [&](const Transfer& hop, const Tensors& tensors) { others.add(hop, tensors); });
  }
  results.settle(kEnd, come);
  const auto put = [](const at::Tensor& from, const at::Tensor& to) {
    if (!from.is_same(to)) to.copy_(from);
  };
  put(sum.dq_TND, gradient.dq_TND);
  put(sum.dk_TKD, gradient.dk_TKD);
  put(sum.dv_TKD, gradient.dv_TKD);
}

}  // namespace sluice::layers
