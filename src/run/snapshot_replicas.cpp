#include "run/snapshot_replicas.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_time.h"
#include "corpus/identity.h"
#include "cost/snapshot_cost.h"
#include "link/moved_owners.h"
#include "run/slice_snapshot.h"
#include "run/snapshot_size.h"

namespace sluice::run {

using base::text;

namespace {

// Snapshots of older programs also had frozen slices.
constexpr const char* kHolds = "holds";
constexpr const char* kTrained = "trained";

// Reads what base::CanonicalBytes wrote.
class CanonicalReader {
 public:
  explicit CanonicalReader(std::string_view bytes) : bytes_(bytes) {}
  int64_t integer() {
    uint64_t value = 0;
    for (int byte = 7; byte >= 0; --byte) value = value << 8 | static_cast<unsigned char>(take(8)[byte]);
    position_ += 8;
    return static_cast<int64_t>(value);
  }
  std::string text() {
    const int64_t size = integer();
    std::string value(take(size));
    position_ += static_cast<size_t>(size);
    return value;
  }

 private:
  std::string_view take(int64_t size) const {
    if (size < 0 || static_cast<size_t>(size) > bytes_.size() - position_)
      throw base::InputError("a snapshot's state ends early");
    return bytes_.substr(position_, static_cast<size_t>(size));
  }

  std::string_view bytes_;
  size_t position_ = 0;
};

// The elements of a rank's slices in the buckets before that one, `numbers(bucket)` per parameter.
template <typename Numbers>
int64_t elements_before(const model::ParameterTable& table, int bucket, int ranks, int rank,
                        const Numbers& numbers) {
  int64_t elements = 0;
  for (int index = 0; index < bucket; ++index) {
    const model::Bucket& before = table.buckets[static_cast<size_t>(index)];
    elements += numbers(before) * link::OwnerLayout{ranks}.owned(before, rank).size();
  }
  return elements;
}

}  // namespace

std::string to_text(const RunState& state) {
  base::Json json{{"step", state.step},
                  {"corpora", corpus::to_json(state.corpora)},
                  {"calibration", state.calibration},
                  {"config", state.config},
                  {"rollout", state.rollout},
                  {"evaluation", state.evaluation},
                  {kHolds, kTrained}};
  if (state.sampler) json["sampler"] = corpus::to_json(*state.sampler);
  base::CanonicalBytes bytes;
  bytes.add(base::json_text(json)).add(static_cast<int64_t>(state.companions.size()));
  for (const checkpoint::Companion& companion : state.companions)
    bytes.add(companion.name).add(companion.bytes).add(companion.place.string());
  return bytes.bytes();
}

RunState run_state_from_text(std::string_view text) {
  constexpr const char* kName = "a snapshot's state";
  CanonicalReader reader(text);
  const base::Json json = base::parse_json(reader.text(), kName);
  if (base::get_or<std::string>(json, kHolds, "", kName) != kTrained)
    throw base::InputError("a snapshot is of another program, whose slices lie otherwise");
  RunState state;
  state.step = base::require<int64_t>(json, "step", kName);
  state.corpora = corpus::identities_from_json(base::require<base::Json>(json, "corpora", kName), kName);
  state.calibration = base::require<base::Json>(json, "calibration", kName);
  state.config = base::require<std::string>(json, "config", kName);
  state.rollout = base::require<base::Json>(json, "rollout", kName);
  state.evaluation = base::require<base::Json>(json, "evaluation", kName);
  if (json.contains("sampler")) state.sampler = corpus::sampler_state_from_json(json["sampler"], kName);
  for (int64_t left = reader.integer(); left > 0; --left) {
    checkpoint::Companion& companion = state.companions.emplace_back();
    companion.name = reader.text();
    companion.bytes = reader.text();
    companion.place = reader.text();
  }
  return state;
}

SnapshotReplicas::SnapshotReplicas(std::unique_ptr<comm::Communicator> communicator,
                                   const runtime::ParameterStore& store, Options options)
    : communicator_(std::move(communicator)), store_(store), options_(std::move(options)) {}

SnapshotReplicas::~SnapshotReplicas() {
  if (thread_.joinable()) thread_.join();
}

void SnapshotReplicas::begin(const RunState& state) {
  wait();
  std::string text = to_text(state);
  thread_ = std::thread([this, text = std::move(text), step = state.step] {
    try {
      take(text, step);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void SnapshotReplicas::wait() {
  if (thread_.joinable()) {
    const auto begin = std::chrono::steady_clock::now();
    thread_.join();
    waited_ns_ = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

int SnapshotReplicas::rank_at(int distance) const {
  const int ranks = communicator_->size();
  return ((communicator_->rank() + distance) % ranks + ranks) % ranks;
}

void SnapshotReplicas::take(const std::string& text, int64_t step) {
  const int ranks = communicator_->size();
  const auto bytes_of = [&](int rank) {
    return snapshot_bytes(store_.table(), store_.options(), ranks, rank);
  };
  const int copied = ranks > 1 ? rank_at(-options_.stride) : -1;
  survive::Snapshot snapshot{.step = step,
                             .membership = options_.worker_context.membership.number,
                             .ranks = ranks,
                             .rank = communicator_->rank(),
                             .copied_rank = copied,
                             .own_bytes = bytes_of(communicator_->rank()),
                             .copy_bytes = copied < 0 ? 0 : bytes_of(copied),
                             .text_bytes = static_cast<int64_t>(text.size())};
  survive::SnapshotMemory& memory = *options_.worker_context.memory;
  survive::SnapshotMemory::View view = memory.open(snapshot);
  copy_slices(store_, view.own());
  std::memcpy(view.text(), text.data(), text.size());
  snapshot.own_hash = base::hash_bytes(view.own(), static_cast<size_t>(snapshot.own_bytes));
  snapshot.text_hash = base::hash_bytes(text);
  if (copied >= 0) exchange_copies(snapshot, view);
  memory.seal(snapshot);
  if (memory.lacks_room() && !std::exchange(told_of_room_, true)) {
    base::log_warning(base::text(
        "/dev/shm has no room for snapshots of ", base::human_bytes(static_cast<double>(snapshot.bytes())),
        " a rank: they lie in memory that ends with this rank, so a launcher that starts all ranks anew "
        "goes on from a checkpoint; give it more (docker run --shm-size, size= of its mount)"));
  }
  computed_ns_ = base::thread_time_ns();  // all that this thread does
}

// Sends this rank's slices and their hash to its holder, and receives a copy.
void SnapshotReplicas::exchange_copies(survive::Snapshot& snapshot, survive::SnapshotMemory::View& view) {
  const int holder = rank_at(options_.stride);
  std::vector<comm::Message> messages{
      comm::Message{.send = &snapshot.own_hash, .bytes = sizeof snapshot.own_hash, .peer = holder},
      comm::Message{
          .receive = &snapshot.copy_hash, .bytes = sizeof snapshot.copy_hash, .peer = snapshot.copied_rank}};
  // A rank may own no trained parameters.
  if (snapshot.own_bytes > 0)
    messages.push_back({.send = view.own(), .bytes = snapshot.own_bytes, .peer = holder});
  if (snapshot.copy_bytes > 0)
    messages.push_back({.receive = view.copy(), .bytes = snapshot.copy_bytes, .peer = snapshot.copied_rank});
  communicator_->exchange(messages)->wait();
  if (base::hash_bytes(view.copy(), static_cast<size_t>(snapshot.copy_bytes)) == snapshot.copy_hash) return;
  throw base::RunError(text("rank ", snapshot.copied_rank, "'s slices after step ", snapshot.step,
                            " reached rank ", snapshot.rank,
                            " otherwise than they were: memory or the network is at fault"));
}

void SnapshotReplicas::schedule(int64_t done, int64_t most_cost_ns, int64_t step_ns,
                                int64_t between_losses_ns) {
  const int64_t every = options_.every;
  next_ =
      done + (every > 0 ? every : cost::steps_between_snapshots(most_cost_ns, step_ns, between_losses_ns));
}

int64_t SnapshotReplicas::sent_bytes() const {
  int64_t bytes = 0;
  for (int rank = 0; rank < communicator_->size(); ++rank)
    bytes += snapshot_bytes(store_.table(), store_.options(), communicator_->size(), rank);
  return communicator_->size() > 1 ? bytes : 0;
}

std::string snapshot_state(const survive::WorkerContext& worker_context) {
  const auto view = worker_context.memory->find(worker_context.membership.origin.step,
                                                worker_context.membership.origin.membership);
  SLUICE_ASSERT(view.has_value(), "a rank does not hold the snapshot that it reported");
  return {view->text(), static_cast<size_t>(view->snapshot().text_bytes)};
}

namespace {

// The slices that this rank holds for the origin, its own and its buddy's copy. Checks whether slices and run
// state are as they were sealed; each is read once, and only on demand.
class SealCheck {
 public:
  explicit SealCheck(const survive::WorkerContext& worker_context)
      : view_(worker_context.memory->find(worker_context.membership.origin.step,
                                          worker_context.membership.origin.membership)) {}

  // The ranks whose slices these are; -1: none.
  std::array<int, 2> ranks() const {
    if (!view_) return {-1, -1};
    return {view_->snapshot().rank, view_->snapshot().copied_rank};
  }

  bool intact(size_t part) {
    if (!intact_[part]) intact_[part] = look(part);
    return *intact_[part];
  }

 private:
  bool look(size_t part) const {
    const survive::Snapshot& sealed = view_->snapshot();
    const auto is = [](const char* bytes, int64_t size, uint64_t hash) {
      return base::hash_bytes(bytes, static_cast<size_t>(size)) == hash;
    };
    const bool slices = part == 0 ? is(view_->own(), sealed.own_bytes, sealed.own_hash)
                                  : is(view_->copy(), sealed.copy_bytes, sealed.copy_hash);
    if (slices && is(view_->text(), sealed.text_bytes, sealed.text_hash)) return true;
    base::log_warning(
        text("the slices of rank ", ranks()[part], " of membership ", sealed.membership, " after step ",
             sealed.step,
             " have changed in this rank's memory, which is at fault; the other copy of them is taken"));
    return false;
  }

  const std::optional<survive::SnapshotMemory::View> view_;
  std::array<std::optional<bool>, 2> intact_;
};

}  // namespace

std::optional<membership::Origin> intact_origin(const survive::WorkerContext& worker_context,
                                                survive::Control& control) {
  membership::Origin origin = worker_context.membership.origin;
  SealCheck check(worker_context);
  const std::array<int, 2> ranks = check.ranks();
  bool changed = false;
  for (const size_t part : {0, 1}) {
    const bool sends = ranks[part] >= 0 && origin.holders[static_cast<size_t>(ranks[part])] == control.rank();
    if (sends && !check.intact(part)) changed = true;
  }
  if (!control.any(changed)) return origin;

  std::array<int, 2> intact{-1, -1};
  for (const size_t part : {0, 1}) {
    if (ranks[part] >= 0 && check.intact(part)) intact[part] = ranks[part];
  }
  const std::vector<std::array<int, 2>> everywhere = control.gather(intact);
  for (size_t rank = 0; rank < origin.holders.size(); ++rank) {
    const auto has_it = [&](const std::array<int, 2>& held) {
      return std::ranges::find(held, static_cast<int>(rank)) != held.end();
    };
    if (has_it(everywhere[static_cast<size_t>(origin.holders[rank])])) continue;
    const auto other = std::ranges::find_if(everywhere, has_it);
    if (other == everywhere.end()) return std::nullopt;
    origin.holders[rank] = static_cast<int>(other - everywhere.begin());
  }
  return origin;
}

namespace {

// One rank's half of restoring, bucket by bucket.
class Restorer {
 public:
  Restorer(const survive::WorkerContext& worker_context, comm::Communicator& communicator,
           runtime::ParameterStore& store)
      : origin_(worker_context.membership.origin),
        communicator_(communicator),
        store_(store),
        element_bytes_(comm::size_of(store.options().precision.master())),
        view_(worker_context.memory->find(origin_.step, origin_.membership)) {}

  void restore() {
    for (const model::Bucket& bucket : store_.table().buckets)
      if (bucket.trained) move(bucket);
    store_.refresh_compute_copies();
    for (const model::Bucket& bucket : store_.table().buckets) {
      const at::Tensor& copy = followed_[static_cast<size_t>(bucket.index)];
      if (copy.defined()) store_.compute_copy(bucket.index).copy_(copy);
    }
  }

 private:
  int64_t followed(const model::Bucket& bucket) const {
    return cost::followed_numbers(bucket.trained, store_.options().pull);
  }
  // The numbers per parameter in its states; sums of pulled differences follow after all states.
  int64_t states(const model::Bucket& bucket) const { return snapshot_numbers(bucket); }

  // The index of element `first` of a rank's slice of a bucket in one of its states. After the last state
  // come the sums of pulled differences, which belong to the masters.
  int64_t place_of(const model::Bucket& bucket, int ranks, int rank, int64_t state, int64_t first) const {
    const model::ParameterTable& table = store_.table();
    const int64_t size = link::OwnerLayout{ranks}.owned(bucket, rank).size();
    const auto of_states = [&](const model::Bucket& of) { return states(of); };
    if (state < states(bucket)) {
      return elements_before(table, bucket.index, ranks, rank, of_states) + state * size + first;
    }
    const auto all = static_cast<int>(table.buckets.size());
    return elements_before(table, all, ranks, rank, of_states) +
           elements_before(table, bucket.index, ranks, rank,
                           [&](const model::Bucket& of) { return followed(of); }) +
           first;
  }

  bool holds(int rank) const { return origin_.holders[static_cast<size_t>(rank)] == communicator_.rank(); }

  // The bytes of elements `slice` in one of a bucket's states.
  const char* source(const model::Bucket& bucket, base::Interval slice, int64_t state) const {
    const survive::Snapshot& snapshot = view_->snapshot();
    for (const auto& [rank, bytes] :
         {std::pair{snapshot.rank, view_->own()}, {snapshot.copied_rank, view_->copy()}}) {
      if (rank < 0 || !holds(rank)) continue;
      const base::Interval owned = link::OwnerLayout{snapshot.ranks}.owned(bucket, rank);
      if (slice.begin < owned.begin || slice.end > owned.end) continue;
      return bytes +
             element_bytes_ * place_of(bucket, snapshot.ranks, rank, state, slice.begin - owned.begin);
    }
    SLUICE_ASSERT(false, "a rank sends slices that it does not hold");
  }

  void move(const model::Bucket& bucket) {
    const auto transfers = link::moved_owners(bucket, origin_.holders, communicator_.size());
    const link::PeerSlices slices = link::pull_slices(transfers, communicator_.size(), communicator_.rank());
    const int64_t states = this->states(bucket) + followed(bucket);
    std::vector<int64_t> send_bytes, receive_bytes;
    std::string sent, received;
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      send_bytes.push_back(states * slices.send_elements(peer) * element_bytes_);
      receive_bytes.push_back(states * slices.receive_elements(peer) * element_bytes_);
      received.resize(received.size() + static_cast<size_t>(receive_bytes.back()));
      for (const auto& part : slices.send[static_cast<size_t>(peer)]) {
        for (int64_t state = 0; state < states; ++state)
          sent.append(source(bucket, part.slice, state),
                      static_cast<size_t>(part.slice.size() * element_bytes_));
      }
    }
    communicator_.all_to_all(sent.data(), send_bytes, received.data(), receive_bytes)->wait();
    const char* next = received.data();
    for (const auto& parts : slices.receive) {
      for (const auto& part : parts) next = take(bucket, part.slice, next);
    }
  }

  // Copies from the bytes into the owner slice; returns the next bytes.
  const char* take(const model::Bucket& bucket, base::Interval slice, const char* bytes) {
    runtime::OwnerSlice& own = store_.owner(bucket.index);
    const int64_t first = slice.begin - own.owned.begin;
    const auto wide = at::TensorOptions().dtype(runtime::scalar_type(store_.options().precision.master()));
    const auto next = [&] {
      return at::from_blob(const_cast<char*>(std::exchange(bytes, bytes + slice.size() * element_bytes_)),
                           {slice.size()}, wide);
    };
    runtime::set_master(own, first, next());
    for (runtime::Moment* moment : {&own.exp_avg, &own.exp_avg_sq})
      if (moment->numel() > 0) moment->write(first, next());
    if (followed(bucket) == 0) return bytes;
    at::Tensor& copy = followed_[static_cast<size_t>(bucket.index)];
    if (!copy.defined()) copy = own.master.new_empty(own.master.sizes());
    copy.narrow(0, first, slice.size()).copy_(next());
    return bytes;
  }

  const membership::Origin& origin_;
  comm::Communicator& communicator_;
  runtime::ParameterStore& store_;
  const int64_t element_bytes_;
  const std::optional<survive::SnapshotMemory::View> view_;
  std::vector<at::Tensor> followed_ =
      std::vector<at::Tensor>(store_.table().buckets.size());  // by bucket: sums of pulled differences
};

}  // namespace

void restore(const survive::WorkerContext& worker_context, comm::Communicator& communicator,
             runtime::ParameterStore& store) {
  Restorer(worker_context, communicator, store).restore();
}

}  // namespace sluice::run
