// The only file that includes Gloo. It must not construct a GlooStore: the vtable differs between Debian's
// headers and the Gloo inside libtorch.
#include "transport/gloo.h"

#include <ATen/ops/from_blob.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/failure.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/exchange.h"
#include "transport/run_store.h"
#include "transport/socket.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Group = c10d::ProcessGroupGloo;

// Tags of a communicator: one for point-to-point messages and the next one for collectives, so that the two
// never match each other.
constexpr int kTagsOfCommunicator = 2;

std::chrono::milliseconds milliseconds(int64_t ns) { return std::chrono::milliseconds(ns / 1'000'000); }

at::Tensor wrap(const void* data, int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::kByte);
}

struct Posted {
  c10::intrusive_ptr<c10d::Work> work;
  int peer = 0;    // world rank
  int member = 0;  // index in the communicator
};

class GlooPending final : public comm::Pending {
 public:
  GlooPending(std::string what, std::vector<Posted> posted, std::chrono::milliseconds patience)
      : what_(std::move(what)), posted_(std::move(posted)), patience_(patience) {}

  void wait() override {
    // Waiting in turn attributes the delay to the latest peers: messages behind them arrive in the meantime.
    std::chrono::steady_clock::duration longest{-1};
    for (const Posted& posted : posted_) {
      const auto begin = std::chrono::steady_clock::now();
      try {
        posted.work->wait(patience_);
      } catch (const std::exception& error) {
        throw base::RunError(
            base::text(what_, " with rank ", posted.peer, " failed: ", base::describe_failure(error)));
      }
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited <= longest) continue;
      longest = waited;
      awaited_ = posted.member;
    }
    posted_.clear();
  }
  int awaited_peer() const override { return awaited_; }

 private:
  std::string what_;
  std::vector<Posted> posted_;
  std::chrono::milliseconds patience_;
  int awaited_ = -1;
};

// The connections between all ranks. Each communicator uses its own tags on them. Thread-safe. A peer that
// connects to Gloo's port sends 8 bytes: the number of its connection in the group, counted from 0. So a
// stranger that sends zeros is taken for a rank. The first connection to each rank is therefore a decoy that
// carries no messages.
class Mesh {
 public:
  Mesh(const StorePtr& store, int rank, int world_size,
       const std::shared_ptr<::gloo::transport::Device>& device, std::chrono::milliseconds patience) {
    auto options = Group::Options::create(patience);
    options->devices.assign(kSets, device);
    options->threads = 1;  // threads for Gloo's own collectives, which are not used
    group_ = c10::make_intrusive<Group>(store, rank, world_size, options);
  }

  c10::intrusive_ptr<c10d::Work> post(const comm::Message& message, int peer, int tag) {
    std::vector<at::Tensor> tensors = {
        wrap(message.receive != nullptr ? message.receive : message.send, message.bytes)};
    const int behind_decoys = tag * kSets + 1;  // a group uses set tag mod kSets; decoys are set 0
    const std::lock_guard lock(mutex_);
    return message.receive != nullptr ? group_->recv(tensors, peer, behind_decoys)
                                      : group_->send(tensors, peer, behind_decoys);
  }

 private:
  static constexpr int kSets = 2;  // sets of connections between all ranks

  std::mutex mutex_;  // a group counts its operations without a lock
  c10::intrusive_ptr<Group> group_;
};

// Each operation waits with the timeout given here. A group keeps the timeout of its construction for all
// connections, whatever is set later.
class GlooCommunicator final : public comm::ExchangeCommunicator {
 public:
  GlooCommunicator(const std::string& name, const std::vector<int>& ranks, int member,
                   std::shared_ptr<Mesh> mesh, int tag, std::chrono::milliseconds patience)
      : ExchangeCommunicator(name, ranks, member), mesh_(std::move(mesh)), tag_(tag), patience_(patience) {}

 private:
  comm::PendingPtr post(const Operation& operation, std::span<const comm::Message> messages) override {
    const int tag = tag_ + (operation.collective ? 1 : 0);
    std::string what = base::text("'", name(), "' #", operation.position, " ", operation.kind);
    std::vector<Posted> posted;
    for (const comm::Message& message : messages) {
      const int peer = ranks()[static_cast<size_t>(message.peer)];
      try {
        posted.push_back({mesh_->post(message, peer, tag), peer, message.peer});
      } catch (const std::exception& error) {
        throw base::RunError(
            base::text(what, " with rank ", peer, " failed: ", base::describe_failure(error)));
      }
    }
    return std::make_unique<GlooPending>(std::move(what), std::move(posted), patience_);
  }

  std::shared_ptr<Mesh> mesh_;
  int tag_;
  std::chrono::milliseconds patience_;
};

std::vector<uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

// After a failure, rank 0 keeps its store open for at most this long, so that others can read the reason.
constexpr std::chrono::seconds kFarewell(3);

// Waits until all ranks have reached the store.
class Join {
 public:
  Join(StorePtr store, const GlooOptions& options) : store_(std::move(store)), options_(options) {}

  void run() {
    const Launch& launch = options_.launch;
    if (store_->add(rank_key(launch.rank), 1) > 1) {
      throw base::RunError(base::text("two processes claim rank ", launch.rank, " of ", launch.world_size));
    }
    if (store_->add("joined", 1) == launch.world_size) settle(kAllHere);
    const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(options_.join_timeout_ns);
    auto pause = std::chrono::milliseconds(1);
    while (!store_->check({kOutcome})) {
      if (Clock::now() >= deadline) settle(who_is_missing());
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(100));
    }
    const std::string outcome = store_->get_to_str(kOutcome);
    if (outcome != kAllHere) fail(outcome);
  }

 private:
  static std::string rank_key(int rank) { return base::text("rank/", rank); }

  // A single key holds the outcome of joining, and the first rank to determine it sets it. If all have
  // joined, ranks may continue, and even leave, before the last one has read the outcome.
  static constexpr const char* kOutcome = "outcome";
  static constexpr const char* kAllHere = "all ranks are here";
  void settle(const std::string& outcome) { store_->compareSet(kOutcome, "", outcome); }

  std::string who_is_missing() {
    std::vector<std::string> missing;
    for (int rank = 0; rank < options_.launch.world_size; ++rank) {
      if (!store_->check({rank_key(rank)})) missing.push_back(base::text(rank));
    }
    return base::text(
        missing.size() == 1 ? "rank " : "ranks ", base::join(missing, ", "), " of ",
        options_.launch.world_size, " did not join within ", base::human_duration(options_.join_timeout_ns),
        ": start ", missing.size() == 1 ? "it" : "them", ", and check that ", options_.launch.master_address,
        " port ", options_.launch.master_port, " can be reached from there");
  }

  [[noreturn]] void fail(const std::string& message) {
    try {
      store_->add("told", 1);
      if (options_.launch.rank == 0) keep_store_for_the_others();
    } catch (const std::exception&) {  // rank 0 and its store left before answering
    }
    throw base::RunError(message);
  }

  void keep_store_for_the_others() {
    const Clock::time_point deadline = Clock::now() + kFarewell;
    while (store_->add("told", 0) < store_->add("joined", 0) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  StorePtr store_;
  const GlooOptions& options_;
};

// The sockets at which rank 0 listens: its own addresses. Other ranks look for rank 0 at the address that its
// name has on their machine, which may differ from the name's address here (Debian's 127.0.1.1). So more
// addresses are added.
std::vector<Socket> rendezvous(const GlooOptions& options) {
  const Launch& launch = options.launch;
  if (launch.listening_fd >= 0) return only(inherited(launch.listening_fd));
  std::vector<Socket> listeners = listen_at_own(launch.master_address, launch.master_port);
  std::vector<std::string> more;
  if (!launch.single_host() || !options.address.empty()) more.push_back(own_address(options));
  const auto is_inside = [](const Socket& listener) { return is_loopback(address_of(listener)); };
  if (!launch.single_host() && !is_loopback(launch.master_address) &&
      std::ranges::all_of(listeners, is_inside)) {
    std::ranges::copy(interface_addresses(), std::back_inserter(more));
  }
  if (listeners.empty()) more.push_back(address_towards(launch.master_address));
  for (const std::string& address : more) {
    const auto listens = [&](const Socket& listener) { return address_of(listener) == address; };
    if (std::ranges::none_of(listeners, listens)) listeners.push_back(listen_at(address, launch.master_port));
  }
  return listeners;
}

StorePtr run_store(const GlooOptions& options) {
  const Launch& launch = options.launch;
  std::unique_ptr<StoreServer> server;
  std::string address = launch.master_address;
  if (launch.rank == 0) {
    std::vector<Socket> listeners = rendezvous(options);
    address = address_of(listeners.front());
    server = std::make_unique<StoreServer>(std::move(listeners), launch.key());
  }
  auto client = std::make_unique<StoreClient>(address, launch.master_port, launch.key(), launch.rank,
                                              options.join_timeout_ns);
  return c10::make_intrusive<RunStore>(std::move(server), std::move(client),
                                       milliseconds(options.join_timeout_ns));
}

// The store of torchrun's agent, which admits everybody. Its keys get a prefix that only ranks of this run
// can derive. The prefix differs between attempts and between runs of other sizes.
StorePtr agent_store(const GlooOptions& options) {
  const Launch& launch = options.launch;
  // libtorch's client prints pages of errors while it retries. Our connect_to() first waits silently.
  connect_to(launch.master_address, launch.master_port, options.join_timeout_ns);
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(launch.master_port);
  store.waitWorkers = false;
  store.timeout = milliseconds(options.join_timeout_ns);
  auto tcp = c10::make_intrusive<c10d::TCPStore>(launch.master_address, store);
  const std::string run = proof_of(launch.key(), base::text("keys of ", launch.world_size, " ranks"));
  return c10::make_intrusive<c10d::PrefixStore>(
      base::text("/worker/attempt_", launch.attempt, "/", base::hash_text(base::hash_bytes(run))),
      std::move(tcp));
}

StorePtr connect_store(const GlooOptions& options) {
  const Launch& launch = options.launch;
  try {
    return launch.agent_store ? agent_store(options) : run_store(options);
  } catch (const Unreachable& error) {
    throw base::RunError(base::text("rank 0 of ", launch.world_size, " did not join within ",
                                    base::human_duration(options.join_timeout_ns), ": ", error.what(),
                                    ": start it, or correct MASTER_ADDR and MASTER_PORT"));
  } catch (const c10::Error& error) {
    throw base::RunError(base::text("rank ", launch.rank, " cannot use the store of torchrun's agent at ",
                                    launch.master_address, " port ", launch.master_port, ": ",
                                    base::describe_failure(error)));
  }
}

// Reserved for documentation. No packet is sent there; only the route out of this machine is looked up.
constexpr const char* kSomewhereElse[] = {"192.0.2.1", "2001:db8::1"};

std::shared_ptr<::gloo::transport::Device> open_device(const std::string& address) {
  try {
    return Group::createDeviceForHostname(address);
  } catch (const std::exception& error) {
    throw base::RunError(
        base::text("cannot open connections at ", address, ": ", base::describe_failure(error)));
  }
}

class GlooTransport final : public comm::Transport {
 public:
  explicit GlooTransport(const GlooOptions& options) : options_(options) {
    if (world_size() == 1) return;
    const auto device = open_device(own_address(options_));
    store_ = connect_store(options_);
    try {
      Join(store_, options_).run();
    } catch (const base::RunError&) {
      throw;
    } catch (const std::exception& error) {
      throw base::RunError(
          base::text("rank 0 left while the ranks were joining: ", base::describe_failure(error)));
    }
    connect(device);
  }

  int rank() const override { return options_.launch.rank; }
  int world_size() const override { return options_.launch.world_size; }

  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    const auto found = std::find(ranks.begin(), ranks.end(), rank());
    SLUICE_ASSERT(found != ranks.end(), base::text("rank ", rank(), " is no member of '", name, "'"));
    if (ranks.size() == 1) return comm::lone_communicator(name, rank());
    const int member = static_cast<int>(found - ranks.begin());
    try {
      return std::make_unique<GlooCommunicator>(name, ranks, member, mesh_, tag_of(name),
                                                milliseconds(options_.timeout_ns));
    } catch (const std::exception& error) {
      throw base::RunError(
          base::text("cannot make communicator '", name, "': ", base::describe_failure(error)));
    }
  }

 private:
  // All ranks have just joined, so connections must succeed soon. A group waits for a first connection five
  // times its timeout for other things, such as another rank's address.
  void connect(const std::shared_ptr<::gloo::transport::Device>& device) {
    const auto patience = milliseconds(options_.join_timeout_ns);
    constexpr int kConnectingTimes = 5;
    constexpr std::chrono::seconds kLeast(2);
    try {
      mesh_ = std::make_shared<Mesh>(
          c10::make_intrusive<c10d::PrefixStore>("mesh", store_), rank(), world_size(), device,
          std::max<std::chrono::milliseconds>(patience / kConnectingTimes, kLeast));
    } catch (const std::exception& error) {
      throw base::RunError(base::text("cannot connect to the other ranks: ", base::describe_failure(error)));
    }
    std::vector<int> all(static_cast<size_t>(world_size()));
    std::iota(all.begin(), all.end(), 0);
    GlooCommunicator first("connections", all, rank(), mesh_, 0, patience);
    warm(first);
  }

  // The number of a communicator: the first member that asks for it draws it.
  int tag_of(const std::string& name) {
    const int64_t drawn = store_->add("communicators", 1);
    const std::vector<uint8_t> own = as_bytes(std::to_string(drawn));
    const std::vector<uint8_t> agreed = store_->compareSet("communicator/" + name, {}, own);
    const auto number = base::parse_integer(std::string(agreed.begin(), agreed.end()));
    SLUICE_ASSERT(number.has_value(), base::text("the store has no number for communicator '", name, "'"));
    return static_cast<int>(*number) * kTagsOfCommunicator;
  }

  // All members exchange one byte: a connection that only looks established fails here, not in step 0.
  static void warm(comm::Communicator& communicator) {
    const std::byte mine{};
    std::vector<std::byte> all(static_cast<size_t>(communicator.size()));
    communicator.all_gather(&mine, all.data(), 1)->wait();
  }

  GlooOptions options_;
  StorePtr store_;
  std::shared_ptr<Mesh> mesh_;
};

}  // namespace

std::string own_address(const GlooOptions& options) {
  if (!options.address.empty()) return options.address;
  if (options.launch.single_host()) return "127.0.0.1";
  const std::string& master = options.launch.master_address;
  std::string own = address_towards(master);
  // Rank 0's host name may map to its loopback (Debian's 127.0.1.1), which other machines cannot reach.
  if (!is_loopback(own) || is_loopback(master)) return own;
  for (const char* elsewhere : kSomewhereElse) {
    try {
      return address_towards(elsewhere);
    } catch (const base::RunError&) {  // no route of this address family
    }
  }
  const std::vector<std::string> others = interface_addresses();
  return others.empty() ? own : others.front();
}

void rendezvous(const GlooOptions& options, const std::string& own,
                const std::function<std::string(const std::vector<std::string>&)>& answer,
                const std::function<void(const std::string&)>& hear) {
  const Launch& launch = options.launch;
  const auto key_of = [](int rank) { return base::text("text/", rank); };
  try {
    const auto store = c10::make_intrusive<c10d::PrefixStore>("meeting", connect_store(options));
    store->set(key_of(launch.rank), as_bytes(own));
    Join(store, options).run();
    if (launch.rank == 0) {
      std::vector<std::string> texts;
      for (int rank = 0; rank < launch.world_size; ++rank) texts.push_back(store->get_to_str(key_of(rank)));
      store->set("answer", as_bytes(answer(texts)));
    }
    hear(store->get_to_str("answer"));
    store->add("heard", 1);
    const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(options.join_timeout_ns);
    while (launch.rank == 0 && store->add("heard", 0) < launch.world_size && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw base::RunError(
        base::text("rank 0 left while the ranks were joining: ", base::describe_failure(error)));
  }
}

std::unique_ptr<comm::Transport> gloo_transport(const GlooOptions& options) {
  return std::make_unique<GlooTransport>(options);
}

}  // namespace sluice::transport
