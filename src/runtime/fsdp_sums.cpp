#include "runtime/fsdp_sums.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "cost/fsdp_cost.h"
#include "link/layout.h"

namespace sluice::runtime {

using strategy::Codec;

base::Interval FsdpHolders::part(int holder) const { return link::resident_part(elements, count, holder); }

CodedPart FsdpHolders::coded(Codec codec, int holder) const {
  return {codec, part(holder).size(), exact_in(exact, part(holder))};
}

// Runs of lanes become runs of holders if they consist of whole expert groups; else sums go straight.
std::vector<FsdpHolders> fsdp_holders(const model::ParameterTable& table, const strategy::Pipeline& pipeline,
                                      int member, int t, int run_lanes) {
  std::vector<FsdpHolders> all;
  for (const model::Bucket& bucket : table.buckets) {
    const link::Residence home = link::residence_of(bucket, pipeline, member, t);
    const int stride = home.cut.expert_lanes;
    FsdpHolders& holders =
        all.emplace_back(FsdpHolders{.elements = model::shard_of(bucket, home.cut).size(),
                                     .stride = stride,
                                     .count = home.parts,
                                     .own = home.part,
                                     .run = run_lanes % stride == 0 ? run_lanes / stride : 1,
                                     .exact = {}});
    if (bucket.coded) {
      holders.exact.push_back({0, holders.elements});
      continue;
    }
    const std::vector<model::LocalParameter> locals = model::local_parameters(bucket, home.cut);
    for (size_t i = 0; i < locals.size(); ++i) {
      if (!bucket.parameters[i].keeps_its_bits()) continue;
      const int64_t begin = locals[i].offset;
      holders.exact.push_back({begin, begin + locals[i].rows * locals[i].columns});
    }
  }
  return all;
}

size_t FsdpTraffic::note(int64_t position, cost::Movement movement) {
  moves.push_back({.node = node,
                   .position = position,
                   .movement = movement,
                   .start = std::chrono::steady_clock::now(),
                   .end = {}});
  return moves.size() - 1;
}

at::Tensor FsdpTraffic::take(int64_t elements, const at::TensorOptions& options) {
  at::Tensor taken = at::empty({elements}, options);
  memory.take(static_cast<int64_t>(taken.nbytes()));
  return taken;
}

void FsdpTraffic::give_back(const at::Tensor& tensor) {
  if (tensor.defined()) memory.give_back(static_cast<int64_t>(tensor.nbytes()));
}

// Sums that go straight to their holders use the codec between nodes if the group spans nodes.
Codec FsdpSums::first_codec(const FsdpHolders& holders) const {
  const bool straight = holders.run == 1 && spans_nodes_;
  return straight ? codecs_.between_nodes : codecs_.in_node;
}

base::Interval FsdpSums::part(const Sum& sum, int holder) const {
  const base::Interval whole = holders_of(sum).part(holder);
  const auto until = [&](int piece) { return whole.begin + whole.size() * piece / sum.pieces; };
  return {until(sum.piece), until(sum.piece + 1)};
}

bool FsdpSums::gives(const Sum& sum, int run) const {
  const int holders = holders_of(sum).run;
  const auto first = sum.contributes.begin() + static_cast<ptrdiff_t>(run) * holders;
  return std::any_of(first, first + holders, [](char contributes) { return contributes != 0; });
}

bool FsdpSums::adds_up(const Sum& sum, int holder) const {
  const FsdpHolders& holders = holders_of(sum);
  return sum.between ? holder == holders.own : holder % holders.run == holders.own % holders.run;
}

at::Tensor FsdpSums::taken(Sum& sum, int64_t elements, const at::TensorOptions& options) {
  return sum.taken.emplace_back(traffic_.take(elements, options));
}

void FsdpSums::let_go(std::vector<at::Tensor>& taken) {
  for (const at::Tensor& tensor : taken) traffic_.give_back(tensor);
  taken.clear();
}

void FsdpSums::add(int bucket, int64_t position, const std::vector<char>& contributes, const at::Tensor& made,
                   bool in_pieces) {
  const FsdpHolders& holders = holders_[static_cast<size_t>(bucket)];
  const int pieces = in_pieces && holders.in_runs() ? cost::last_pieces(codecs_, holders.part(0).size()) : 1;
  for (int piece = 0; piece < pieces; ++piece) {
    Sum& sum = (pieces == 1 ? sums_ : behind_[piece])
                   .emplace_back(Sum{.bucket = bucket,
                                     .position = position,
                                     .piece = piece,
                                     .pieces = pieces,
                                     .contributes = contributes,
                                     .between = holders.run == 1,
                                     .codec = first_codec(holders),
                                     .parts = {},
                                     .taken = {},
                                     .came = {}});
    if (!made.defined()) continue;
    for (int holder = 0; holder < holders.count; ++holder) {
      const base::Interval part = this->part(sum, holder);
      sum.parts.push_back(made.narrow(0, part.begin, part.size()));
    }
    if (piece + 1 == pieces) sum.taken.push_back(made);
    code(sum);
  }
}

void FsdpSums::code(Sum& sum) {
  if (sum.codec == Codec::kNone) return;
  const FsdpHolders& holders = holders_of(sum);
  std::vector<at::Tensor> wide = std::exchange(sum.taken, {});
  for (int holder = 0; holder < holders.count; ++holder) {
    at::Tensor& part = sum.parts[static_cast<size_t>(holder)];
    if (!part.defined()) continue;
    if (adds_up(sum, holder)) {
      at::Tensor kept = taken(sum, part.numel(), part.options());
      kept.copy_(part);
      part = std::move(kept);
      continue;
    }
    const CodedPart as = holders.coded(sum.codec, holder);
    at::Tensor bytes = taken(sum, as.bytes(part.element_size()), part.options().dtype(at::kByte));
    encode(as, part, ++seed_ * 0x9e3779b97f4a7c15U, bytes);
    part = std::move(bytes);
  }
  let_go(wide);
}

void FsdpSums::expect(Sum& sum, int from, int part, Parcels& parcels) {
  const FsdpHolders& holders = holders_of(sum);
  const at::TensorOptions wide = traffic_.store.shard(sum.bucket).gradients.options();
  const bool coded = sum.codec != Codec::kNone;
  const int64_t room =
      coded ? holders.coded(sum.codec, part).bytes(static_cast<int64_t>(wide.dtype().itemsize()))
            : this->part(sum, part).size();
  sum.came.push_back({from, part, taken(sum, room, coded ? wide.dtype(at::kByte) : wide)});
  parcels.push_back({sum.came.back().numbers, member_of(holders, from), /*sent=*/false});
}

// A lane without tokens sends nothing but still receives the others' parts.
void FsdpSums::pack_in_run(Sum& sum, Parcels& parcels) {
  const FsdpHolders& holders = holders_of(sum);
  const int first = holders.own_run() * holders.run;
  for (int holder = first; holder < first + holders.run; ++holder) {
    if (holder == holders.own) continue;
    for (int run = 0; run < holders.runs() && !sum.parts.empty(); ++run) {
      const at::Tensor& part = sum.parts[static_cast<size_t>(run * holders.run + holder - first)];
      parcels.push_back({part, member_of(holders, holder), /*sent=*/true});
    }
    for (int run = 0; run < holders.runs() && sum.contributes[static_cast<size_t>(holder)] != 0; ++run)
      expect(sum, holder, holders.alike(run), parcels);
  }
}

void FsdpSums::pack_between(Sum& sum, Parcels& parcels) {
  const FsdpHolders& holders = holders_of(sum);
  for (int run = 0; run < holders.runs(); ++run) {
    if (run == holders.own_run()) continue;
    const int alike = holders.alike(run);
    if (!sum.parts.empty())
      parcels.push_back({sum.parts[static_cast<size_t>(alike)], member_of(holders, alike), /*sent=*/true});
    if (gives(sum, run)) expect(sum, alike, holders.own, parcels);
  }
}

void FsdpSums::start() {
  if (!behind_.empty()) {
    std::ranges::move(behind_.begin()->second, std::back_inserter(sums_));
    behind_.erase(behind_.begin());
  }
  if (sums_.empty()) return;
  Parcels parcels;
  for (Sum& sum : sums_) {
    const bool behind_runs = sum.between && holders_of(sum).run > 1;
    sum.move = traffic_.note(sum.position, behind_runs ? cost::Movement::kBetween : cost::Movement::kScatter);
    sum.between ? pack_between(sum, parcels) : pack_in_run(sum, parcels);
  }
  passing_ =
      traffic_.channel.exchange(parcels, traffic_.store.shard(sums_.front().bucket).gradients.device());
}

void FsdpSums::add_came(const Sum& sum, int from, int part, const at::Tensor& into) const {
  const auto came = std::ranges::find_if(
      sum.came, [&](const Came& each) { return each.from == from && each.part == part; });
  SLUICE_ASSERT(came != sum.came.end(), "a part of a sum has not come");
  if (sum.codec == Codec::kNone) {
    into.add_(came->numbers);
    return;
  }
  const at::Tensor wide = traffic_.take(into.numel(), into.options());
  decode(holders_of(sum).coded(sum.codec, part), came->numbers, wide);
  into.add_(wide);
  traffic_.give_back(wide);
}

void FsdpSums::add_in_run(const Sum& sum, int part, const at::Tensor& into) const {
  const FsdpHolders& holders = holders_of(sum);
  const int first = holders.own_run() * holders.run;
  for (int holder = first; holder < first + holders.run; ++holder) {
    if (sum.contributes[static_cast<size_t>(holder)] == 0) continue;
    if (holder == holders.own) {
      into.add_(sum.parts[static_cast<size_t>(part)]);
    } else {
      add_came(sum, holder, part, into);
    }
  }
}

void FsdpSums::add_runs(const Sum& sum, const at::Tensor& into) const {
  const FsdpHolders& holders = holders_of(sum);
  for (int run = 0; run < holders.runs(); ++run) {
    if (!gives(sum, run)) continue;
    if (run == holders.own_run()) {
      into.add_(sum.parts[static_cast<size_t>(holders.own)]);
    } else {
      add_came(sum, holders.alike(run), holders.own, into);
    }
  }
}

FsdpSums::Sum FsdpSums::sums_of_run(const Sum& sum) {
  const FsdpHolders& holders = holders_of(sum);
  Sum of_run{.bucket = sum.bucket,
             .position = sum.position,
             .piece = sum.piece,
             .pieces = sum.pieces,
             .contributes = sum.contributes,
             .between = true,
             .codec = codecs_.between_nodes,
             .parts = {},
             .taken = {},
             .came = {}};
  if (!gives(sum, holders.own_run())) return of_run;
  of_run.parts.resize(static_cast<size_t>(holders.count));
  const at::TensorOptions wide = traffic_.store.shard(sum.bucket).gradients.options();
  for (int run = 0; run < holders.runs(); ++run) {
    const int alike = holders.alike(run);
    at::Tensor& part = of_run.parts[static_cast<size_t>(alike)];
    part = taken(of_run, this->part(sum, alike).size(), wide).zero_();
    add_in_run(sum, alike, part);
  }
  code(of_run);
  return of_run;
}

// Adds in the order of lanes inside a run, then in the order of runs.
void FsdpSums::finish() {
  if (!passing_) return;
  passing_->wait(traffic_.store.shard(sums_.front().bucket).gradients.device());
  passing_.reset();
  std::vector<Sum> between;
  for (Sum& sum : sums_) {
    traffic_.moves[sum.move].end = std::chrono::steady_clock::now();
    const FsdpHolders& holders = holders_of(sum);
    const base::Interval own = part(sum, holders.own);
    const at::Tensor resident =
        traffic_.store.shard(sum.bucket)
            .gradients.narrow(0, own.begin - holders.part(holders.own).begin, own.size());
    if (sum.between) {
      add_runs(sum, resident);
    } else if (holders.runs() == 1) {
      add_in_run(sum, holders.own, resident);
    } else {
      between.push_back(sums_of_run(sum));
    }
    let_go(sum.taken);
  }
  sums_ = std::move(between);
}

}  // namespace sluice::runtime
