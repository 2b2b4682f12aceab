#include "survive/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/group_limits.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "membership/agent.h"
#include "survive/child_process.h"
#include "survive/rendezvous.h"
#include "transport/gloo.h"
#include "transport/mail.h"
#include "transport/run_key.h"

namespace sluice::survive {

namespace {

namespace fs = std::filesystem;
using base::text;
using membership::Member;
using membership::Membership;
using transport::Launch;

constexpr int64_t kAgainNs = 3'000'000'000;     // between signals: a later one means end at once
constexpr int64_t kMeetingNs = 10'000'000'000;  // for ranks without snapshots to meet after a stop signal
constexpr int kEpochsWithoutAStep = 5;          // then the run itself is at fault, not its machines

sigset_t watched_signals() {
  sigset_t set = base::stop_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

// The signal mask of a new worker: stop signals stay blocked until the worker is ready to handle them.
sigset_t with_stop_blocked(sigset_t mask) {
  const sigset_t stopping = base::stop_signals();
  sigorset(&mask, &mask, &stopping);
  return mask;
}

// Ids of the first membership follow from ranks, so that all members know all; later ids are random.
membership::MemberId first_id(int rank) { return static_cast<membership::MemberId>(rank) + 1; }
membership::MemberId random_id() {
  membership::MemberId id = 0;
  std::memcpy(&id, transport::random_bytes(sizeof id).data(), sizeof id);
  return id;
}

// The supervisors that the launcher names, all of them on this machine.
std::vector<Member> members_of(const Launch& launch) {
  std::vector<Member> members;
  for (const int port : launch.supervisor_ports) {
    const int rank = static_cast<int>(members.size());
    members.push_back({.id = first_id(rank), .address = launch.master_address, .port = port});
  }
  return members;
}

std::string address_of(const Launch& launch) {
  return launch.supervisor_ports.empty() ? transport::own_address({.launch = launch}) : launch.master_address;
}

transport::Socket listener_of(const Launch& launch) {
  return launch.supervisor_fd >= 0 ? transport::inherited(launch.supervisor_fd)
                                   : transport::listen_at(address_of(launch));
}

class Supervisor final : public membership::World {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options),
        signals_(watched_signals()),
        store_(transport::listen_at(address_of(options.launch))),
        listener_(listener_of(options.launch)),
        self_(self_of(options.launch)),
        mail_(std::move(listener_), options.launch.key()) {
    if (options.memory) memory_.emplace(*options.memory);
    if (memory_ && !memory_->has_name()) tell_of_nameless_memory();
    if (!options.memory) memory_.emplace();
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    signal_file_ = transport::Socket(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (options.launch.joins) {
      agent_.emplace(self_, contacts(), *this, membership::AgentOptions{}, base::now_ns());
    } else if (const std::optional<Membership> first = first_epoch()) {
      agent_.emplace(self_, *first, *this, membership::AgentOptions{});
      start_worker(*first);
    }
  }

  int run() {
    while (!exit_status_) {
      wait();
      read_signals();
      look_at_launcher();
      reap();
      read_mail();
      if (!exit_status_) agent_->on_time(base::now_ns());
    }
    stop_worker();
    if (agent_ && !left_) tell_the_end();
    const bool useless = *exit_status_ == 0 || *exit_status_ == transport::kReplaceableStatus;
    if (useless || memory_->snapshots().empty()) memory_->remove_name();
    // The run is over, so files that its killed supervisors left on this machine are removed, too.
    if (*exit_status_ == 0 && !left_ && options_.memory) SnapshotMemory::remove_left(*options_.memory);
    return *exit_status_;
  }

 private:
  void tell_of_nameless_memory() const {
    base::log_warning(
        text("no file can be made in ", options_.memory->folder.string(), " (", memory_->nameless_because(),
             "): snapshots lie in memory that ends with this rank, so a launcher that starts all "
             "ranks anew goes on from a checkpoint"));
  }

  // Ids follow from ranks if all members know the ports; otherwise they are random.
  Member self_of(const Launch& launch) const {
    const bool known = !launch.supervisor_ports.empty() && !launch.joins;
    const std::string address = address_of(launch);
    return {.id = known ? first_id(launch.rank) : random_id(),
            .host = launch.supervisor_ports.empty() ? address : "",
            .address = address,
            .port = transport::port_of(listener_),
            .store_port = transport::port_of(store_)};
  }

  std::vector<Member> contacts() const {
    if (!options_.contacts.empty()) return options_.contacts;
    std::vector<Member> others = members_of(options_.launch);
    others.erase(others.begin() + options_.launch.rank);
    return others;
  }

  // Meets the other ranks. nullopt if there is no first membership: the run ends then.
  std::optional<Membership> first_epoch() {
    if (!options_.launch.supervisor_ports.empty()) return Membership{.members = members_of(options_.launch)};
    const membership::Arrival own{
        .member = self_, .history = memory_->history(), .snapshots = memory_->snapshots()};
    Rendezvous& meeting = meeting_.emplace(options_.launch, options_.join_timeout_ns, own);
    for (bool goes_on = true; goes_on && !exit_status_;) {
      std::array<pollfd, 2> entries{{{signal_file_.fd(), POLLIN, 0}, {meeting.fd(), POLLIN, 0}}};
      constexpr int kPauseMs = 500;
      poll(entries.data(), entries.size(), kPauseMs);
      read_signals();
      look_at_launcher();
      if (stop_asked_ns_ > 0 && base::now_ns() - stop_asked_ns_ >= meeting_patience_ns())
        end_without_saving("stopped by a signal before all ranks had met");
      if (entries[1].revents != 0) goes_on = meeting.read();
    }
    if (exit_status_) return std::nullopt;
    if (const int status = meeting.status(); status != 0) {
      if (stop_asked_ns_ > 0) end_without_saving("stopped by a signal before all ranks had met");
      end(status, "");
      return std::nullopt;
    }
    const membership::FirstMembership opening = meeting.first_membership();
    if (stop_asked_ns_ > 0 && opening.membership.origin.step < 0) {
      end_without_saving("stopped by a signal before the run began");
      return std::nullopt;
    }
    memory_->set_history(opening.history);
    return opening.membership;
  }

  // Ranks don't continue without their launcher, which may start others in their place.
  void look_at_launcher() {
    if (!options_.launch.has_parent || getppid() == parent_) return;
    end(1, text("the launcher (process ", parent_, ") died: a rank does not go on without it"));
  }

  // The World interface.
  void send(const Member& to, const membership::Message& message) override {
    mail_.send({to.address, to.port}, membership::to_text(message));
  }

  std::vector<membership::HeldSnapshot> stop_worker() override {
    worker_.stop();
    return memory_->snapshots();
  }

  void start_worker(const Membership& epoch) override {
    const bool somebody_came = epoch.ranks() > ranks_;
    if (ranks_ > 0 && !somebody_came) ++losses_;
    tell_of(epoch);
    if (lacks_ranks_from_the_first(epoch) || makes_no_progress(epoch)) return;
    for (const Member& member : epoch.members) {
      if (member.id != self_.id) mail_.connect({member.address, member.port});
    }
    memory_->clear_flags();
    memory_->keep_only(epoch.origin.step, epoch.origin.membership);
    const Launch launch = launch_of(epoch);
    try {
      worker_.start([&] { return work(launch, epoch); });
    } catch (const base::RunError& error) {
      return end(1, error.what());
    }
    if (knows_ports(epoch) && launch.listening_fd >= 0) ::close(launch.listening_fd);
  }

  void ask_for_boundary() override { memory_->ask_for_boundary(); }

  bool take_tie(int64_t epoch) override {
    const fs::path path = options_.run_directory / "lock" / text("tie-", run_, "-", epoch);
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    const std::string own = base::hash_text(self_.id);
    const transport::Socket file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file.is_open()) return ::write(file.fd(), own.data(), own.size()) == static_cast<ssize_t>(own.size());
    try {
      return base::read_file(path) == own;
    } catch (const base::Error&) {
      return false;
    }
  }

  void warn(const std::string& line) override { base::log_warning(line); }
  void leave(membership::Leaving why, const std::string& reason) override {
    switch (why) {
      case membership::Leaving::kRunEnded: return end(*agent_->run_end(), "");
      case membership::Leaving::kNoQuorum: return end(1, text(reason, ": start again with --resume auto"));
      case membership::Leaving::kNotLetIn:
        if (options_.contacts.empty()) return leave(membership::Leaving::kLeftBehind, reason);
        return end(1, text("cannot join the run in ", options_.run_directory.string(), ": ", reason,
                           ", or SLUICE_SECRET is not the one of its ranks"));
      case membership::Leaving::kLeftBehind:
        base::log_info(reason);
        return end(transport::kReplaceableStatus, "");
    }
  }

  // The others treat this end as a loss. Its buddy has a copy of the snapshots that were sealed here.
  void leave_the_run() {
    left_ = true;
    base::log_warning(
        "this rank leaves the run, which goes on faster without it (watch.on_slow = \"leave\")");
    end(0, "");
  }

  // Only the first call has an effect.
  void end(int status, const std::string& reason) {
    if (exit_status_) return;
    exit_status_ = status;
    if (!reason.empty()) base::log_error(reason);
  }

  void tell_of(const Membership& epoch) {
    base::log(base::LogLevel::kDebug,
              text("membership ", epoch.number, " of ", epoch.ranks(), " ranks is ",
                   base::hash_text(base::hash_bytes(membership::to_json(epoch).dump()))));
    const bool tells = epoch.number > 0 && epoch.rank_of(self_.id) == 0;
    const int before = std::exchange(ranks_, epoch.ranks());
    if (!tells) return;
    const std::string from = epoch.origin.step >= 0
                                 ? text("after step ", epoch.origin.step)
                                 : std::string("from the newest checkpoint: no snapshot is whole");
    base::log_warning(text("membership ", epoch.number, " of ",
                           base::human_count(epoch.ranks(), "rank", "ranks"),
                           before > 0 ? text(" (", before, " before)") : "", " goes on ", from));
  }

  bool makes_no_progress(const Membership& epoch) {
    same_origin_ = epoch.number > 0 && epoch.origin.step == origin_step_ ? same_origin_ + 1 : 0;
    origin_step_ = epoch.origin.step;
    if (same_origin_ < kEpochsWithoutAStep) return false;
    end(1, text(kEpochsWithoutAStep,
                " memberships in a row were lost before a step was sealed: what the ranks say in rank-*.log "
                "is not "
                "chance; ranks that were ended as stuck, though their machine is merely slow, want a higher "
                "train.stall_s"));
    return true;
  }

  // Ranks that never met share no state to continue from: the run would restart from its beginning or an
  // old checkpoint, with fewer ranks than requested. (Our local launcher starts other ranks in their
  // place.)
  bool lacks_ranks_from_the_first(const Membership& epoch) {
    met_ = met_ || memory_->has_met();
    const int asked = options_.launch.world_size;
    const bool replaces = options_.launch.launcher == transport::Launcher::kSluice || options_.launch.joins;
    if (met_ || replaces || epoch.number == 0 || epoch.ranks() >= asked) return false;
    end(1, text("only ", epoch.ranks(), " of ", base::human_count(asked, "rank", "ranks"),
                " are left before all of them had met: see what the others say, and whether their machines "
                "reach each other at the addresses of MASTER_ADDR's network"));
    return true;
  }

  // Whether it is the local launcher's first membership, whose ranks meet at the launcher's port.
  bool knows_ports(const Membership& epoch) const {
    return epoch.number == 0 && !options_.launch.supervisor_ports.empty();
  }

  Launch launch_of(const Membership& epoch) const {
    if (knows_ports(epoch)) return options_.launch;
    Launch launch = options_.launch;
    launch.rank = epoch.rank_of(self_.id);
    launch.world_size = epoch.ranks();
    launch.local_rank = launch.local_size = 0;
    for (int rank = 0; rank < epoch.ranks(); ++rank) {
      if (epoch.members[static_cast<size_t>(rank)].host != self_.host) continue;
      launch.local_rank += rank < launch.rank ? 1 : 0;
      ++launch.local_size;
    }
    launch.master_address = epoch.members[0].address;
    launch.master_port = epoch.members[0].store_port;
    launch.listening_fd = launch.rank == 0 ? store_.fd() : -1;
    launch.agent_store = false;
    launch.run = text(options_.launch.run, " epoch ", epoch.number);
    return launch;
  }

  // The child's side of fork: runs the worker.
  int work(const Launch& launch, const Membership& epoch) {
    const sigset_t mask = with_stop_blocked(before_);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    signal_file_.close();
    mail_.close();
    const bool stop_asked = stop_asked_ns_ > 0;
    options_.work(launch, {epoch, &*memory_, &plans_, run_, options_.launch.key(), since_ns_, losses_,
                           same_origin_, stop_asked});
    return 1;
  }

  void wait() {
    std::vector<pollfd> entries{{signal_file_.fd(), POLLIN, 0}};
    mail_.watch(entries);
    const int64_t next = agent_->next_ns();
    constexpr int64_t kLongestNs = 1'000'000'000;
    const int64_t left_ns =
        std::clamp<int64_t>(next == INT64_MAX ? kLongestNs : next - base::now_ns(), 0, kLongestNs);
    poll(entries.data(), entries.size(), static_cast<int>((left_ns + 999'999) / 1'000'000));
  }

  // Forwards stop signals to the worker, except Ctrl-C, which the terminal sends to the worker itself.
  void read_signals() {
    signalfd_siginfo info{};
    while (read(signal_file_.fd(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      const bool again = stop_asked_ns_ > 0 && base::now_ns() - stop_asked_ns_ >= kAgainNs;
      if (stop_asked_ns_ == 0) stop_asked_ns_ = base::now_ns();
      if (!worker_.runs()) stop_without_worker(again);
      if (signal != SIGINT || info.ssi_code != SI_KERNEL) worker_.send(signal);
    }
  }

  // A rank that has not joined yet is not needed: the others' save decides how the run ends. A member first
  // waits for the next membership, whose workers save the state.
  void stop_without_worker(bool again) {
    if (!agent_) return stop_before_the_meeting(again);
    if (again) return end(1, "stopped by a second signal between two memberships; nothing was saved");
    if (agent_->is_member())
      return base::log_info("told to stop between two memberships: the next one saves and ends");
    base::log_info("stopped by a signal before it had joined the run");
    const bool by_hand = !options_.contacts.empty();
    end(by_hand ? 1 : transport::kReplaceableStatus, "");
  }

  // After a restart by the launcher, ranks may hold steps that no checkpoint has, complete only with all
  // ranks' slices. So they meet once more, and the first membership's workers save them.
  void stop_before_the_meeting(bool again) {
    const bool may_hold_steps = options_.memory && options_.memory->takes_up;
    if (!may_hold_steps) return end_without_saving("stopped by a signal before the run began");
    if (again) return end_without_saving("stopped by a second signal before all ranks had met");
    base::log_info(
        "told to stop before all ranks have met: they meet, save what they hold in memory, and end");
  }
  int64_t meeting_patience_ns() const {
    return memory_->snapshots().empty() ? kMeetingNs : options_.join_timeout_ns;
  }
  void end_without_saving(const std::string& reason) {
    end(1,
        text(reason, "; nothing was saved",
             memory_->snapshots().empty()
                 ? ""
                 : ", but the newest steps stay in this machine's memory: start again with --resume auto"));
  }

  void reap() {
    if (meeting_ && meeting_->is_over()) meeting_.reset();
    const std::optional<int> ended = worker_.reap();
    if (!ended) return;
    const int status = *ended;
    const bool lost = WIFSIGNALED(status) || WEXITSTATUS(status) == transport::kReplaceableStatus;
    if (!lost) return end(WEXITSTATUS(status), "");
    if (memory_->is_done()) return end(0, "");
    if (memory_->is_leaving()) return leave_the_run();
    if (agent_->run_end()) return end(*agent_->run_end(), "");
    if (WIFSIGNALED(status)) {
      base::log_warning(text("the worker was killed by signal ", WTERMSIG(status), " (",
                             strsignal(WTERMSIG(status)), ")",
                             WTERMSIG(status) == SIGKILL ? memory_kills_.explain() : ""));
    }
    agent_->on_worker_end(base::now_ns());
  }

  void read_mail() {
    transport::Mail::News news = mail_.serve();
    for (const std::string& written : news.messages) {
      if (exit_status_) return;
      // A leaving rank promises nothing any more, even if its worker has not ended yet.
      if (memory_->is_leaving()) return leave_the_run();
      try {
        agent_->on_message(membership::message_from_text(written), base::now_ns());
      } catch (const base::InputError& error) {
        base::log_warning(error.what());
      }
    }
    for (const transport::Place& place : news.gone) {
      const std::vector<Member> others = agent_->others();
      for (const Member& member : others) {
        const bool is_it = member.address == place.first && member.port == place.second;
        // Within a machine, the end of a connection means that the process at its other end has ended.
        const auto certainty =
            member.address == self_.address ? membership::Gone::kForGood : membership::Gone::kSeemsSo;
        if (is_it && !exit_status_) agent_->on_gone(member.id, certainty, base::now_ns());
      }
    }
  }

  // Tells the other members of this end, so that none of them takes it for a loss.
  void tell_the_end() {
    if (agent_->has_left()) return;
    agent_->on_run_end(*exit_status_);
    constexpr int64_t kLingerNs = 2'000'000'000;
    const int64_t deadline = base::now_ns() + kLingerNs;
    while (!mail_.is_sent() && base::now_ns() < deadline) {
      wait();
      mail_.serve();
    }
  }

  const SupervisorOptions& options_;
  const std::string run_ =
      base::hash_text(base::hash_bytes(transport::proof_of(options_.launch.key(), "run")));
  const sigset_t signals_;
  sigset_t before_{};
  transport::Socket signal_file_;
  const pid_t parent_ = getppid();
  const transport::Socket store_;  // the store port of this rank's workers
  transport::Socket listener_;     // until it is moved into mail_
  const Member self_;
  transport::Mail mail_;
  std::optional<SnapshotMemory> memory_;
  base::MemoryKills memory_kills_;
  PlanMemory plans_;
  std::optional<Rendezvous> meeting_;
  std::optional<membership::Agent> agent_;
  ChildProcess worker_;
  int64_t stop_asked_ns_ = 0;  // 0: no stop signal has come
  int ranks_ = 0;              // the previous membership's
  const int64_t since_ns_ = base::now_ns();
  int64_t losses_ = 0;  // losses that have ended a membership
  int64_t origin_step_ = -2;
  int same_origin_ = 0;
  std::optional<int> exit_status_;
  bool met_ = false;   // all ranks of some membership have met
  bool left_ = false;  // by its own decision; the run goes on
};

}  // namespace

int64_t WorkerContext::mtbf_ns() const {
  return rank_failures == 0 ? 0 : (base::now_ns() - since_ns) / rank_failures;
}

int supervise(const SupervisorOptions& options) { return Supervisor(options).run(); }

}  // namespace sluice::survive
