#include "transport/launch.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace sluice::transport {
namespace {

constexpr int kFirstDerivedPort = 20'000;
constexpr int kDerivedPorts = 10'000;  // stays below Linux's range of ephemeral ports

class Variables {
 public:
  Variables(const Environment& environment, Launcher launcher)
      : environment_(environment), launcher_(launcher) {}

  std::optional<std::string> find(const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }

  std::string required(const std::string& name) const {
    const std::optional<std::string> value = find(name);
    if (!value)
      throw base::InputError(
          base::text(name_of(launcher_), " did not set ", name, ": set it, or start with --nproc"));
    return *value;
  }

  int integer(const std::string& name) const { return parse(name, required(name)); }
  int integer(const std::string& name, int otherwise) const {
    const std::optional<std::string> value = find(name);
    return value ? parse(name, *value) : otherwise;
  }
  // A list separated by commas; empty if the variable is not set.
  std::vector<int> integers(const std::string& name) const {
    std::vector<int> values;
    const std::string list = find(name).value_or("");
    if (list.empty()) return values;
    for (const std::string& value : base::split(list, ',')) values.push_back(parse(name, value));
    return values;
  }

 private:
  int parse(const std::string& name, const std::string& value) const {
    const std::optional<int64_t> number = base::parse_integer(value);
    if (!number || *number < 0 || *number > INT32_MAX) {
      throw base::InputError(base::text(name, " of ", name_of(launcher_), " is '", value,
                                        "', not a count: unset or correct it"));
    }
    return static_cast<int>(*number);
  }

  const Environment& environment_;
  Launcher launcher_;
};

// Tasks on node `node` according to Slurm's list "4(x2),3": four on each of two nodes, then three. Returns
// nullopt if the list ends earlier.
std::optional<int> tasks_of_node(const std::string& list, int node) {
  for (const std::string& run : base::split(list, ',')) {
    const size_t times = run.find("(x");
    const auto tasks = base::parse_integer(run.substr(0, times));
    const auto nodes = times == std::string::npos
                           ? std::optional<int64_t>(1)
                           : base::parse_integer(run.substr(times + 2, run.find(')') - times - 2));
    if (!tasks || !nodes || *tasks < 1 || *tasks > INT32_MAX) return std::nullopt;
    if (node < *nodes) return static_cast<int>(*tasks);
    node -= static_cast<int>(*nodes);
  }
  return std::nullopt;
}

// The first host of a Slurm node list: "rack[0-1]gpu[03-05,9],login" -> "rack0gpu03".
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string::npos) return "";
    host += list.substr(at + 1, list.find_first_of("-,]", at + 1) - at - 1);
    at = close;
  }
  return host;
}

int derived_port(const std::string& job) {
  if (const auto number = base::parse_integer(job); number && *number >= 0) {
    return kFirstDerivedPort + static_cast<int>(*number % kDerivedPorts);
  }
  uint64_t sum = 0;
  for (const char c : job) sum = sum * 31 + static_cast<unsigned char>(c);
  return kFirstDerivedPort + static_cast<int>(sum % kDerivedPorts);
}

Launch from_sluice(const Variables& variables) {
  return {.launcher = Launcher::kSluice,
          .rank = variables.integer("SLUICE_RANK"),
          .world_size = variables.integer("SLUICE_WORLD_SIZE"),
          .local_rank = variables.integer("SLUICE_LOCAL_RANK"),
          .local_size = variables.integer("SLUICE_LOCAL_SIZE"),
          .master_address = variables.required("SLUICE_MASTER_ADDR"),
          .master_port = variables.integer("SLUICE_MASTER_PORT"),
          .listening_fd = variables.integer("SLUICE_LISTENING_FD", -1),
          .supervisor_ports = variables.integers("SLUICE_SUPERVISORS"),
          .supervisor_fd = variables.integer("SLUICE_SUPERVISOR_FD", -1),
          .joins = variables.integer("SLUICE_JOINS", 0) != 0};
}

Launch from_torchrun(const Variables& variables) {
  const std::string agent_store = variables.find("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  const int world_size = variables.integer("WORLD_SIZE");
  const int attempt = variables.integer("TORCHELASTIC_RESTART_COUNT", 0);
  return {
      .launcher = Launcher::kTorchrun,
      .rank = variables.integer("RANK"),
      .world_size = world_size,
      .local_rank = variables.integer("LOCAL_RANK"),
      .local_size = variables.integer("LOCAL_WORLD_SIZE", world_size),
      .master_address = variables.required("MASTER_ADDR"),
      .master_port = variables.integer("MASTER_PORT"),
      .agent_store = agent_store == "True" || agent_store == "true" || agent_store == "1",
      .attempt = attempt,
      .run = base::text(variables.find("TORCHELASTIC_RUN_ID").value_or("torchrun"), " attempt ", attempt)};
}

// Fills in the address, port and name under which the ranks of an MPI job meet.
Launch meeting_of_mpi(Launch launch, const Variables& variables, const std::string& job) {
  if (!launch.single_host() || variables.find("MASTER_ADDR")) {
    launch.master_address = variables.required("MASTER_ADDR");
  }
  launch.master_port = variables.integer("MASTER_PORT", derived_port(job));
  launch.run = job;
  return launch;
}

Launch from_open_mpi(const Variables& variables) {
  const Launch launch{.launcher = Launcher::kMpi,
                      .rank = variables.integer("OMPI_COMM_WORLD_RANK"),
                      .world_size = variables.integer("OMPI_COMM_WORLD_SIZE"),
                      .local_rank = variables.integer("OMPI_COMM_WORLD_LOCAL_RANK"),
                      .local_size = variables.integer("OMPI_COMM_WORLD_LOCAL_SIZE")};
  return meeting_of_mpi(launch, variables, variables.find("PMIX_NAMESPACE").value_or("mpi"));
}

Launch from_pmi(const Variables& variables) {
  const int rank = variables.integer("PMI_RANK");
  const int size = variables.integer("PMI_SIZE");
  const bool knows_host = variables.find("MPI_LOCALRANKID").has_value();
  const Launch launch{.launcher = Launcher::kMpi,
                      .rank = rank,
                      .world_size = size,
                      .local_rank = knows_host ? variables.integer("MPI_LOCALRANKID") : rank,
                      .local_size = knows_host ? variables.integer("MPI_LOCALNRANKS") : size};
  return meeting_of_mpi(launch, variables, variables.find("PMI_JOBID").value_or("mpi"));
}

// The host of rank 0: MASTER_ADDR, otherwise the first node. Ranks of a single node may also meet at its
// loopback.
std::string meeting_of_slurm(const Variables& variables, bool single_host) {
  if (const auto address = variables.find("MASTER_ADDR")) return *address;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST"}) {
    const auto nodes = variables.find(name);
    if (!nodes) continue;
    const std::string host = first_host(*nodes);
    if (host.empty()) {
      throw base::InputError(
          base::text(name, " = '", *nodes, "' names no host: set MASTER_ADDR to the host of rank 0"));
    }
    return host;
  }
  if (const auto node = variables.find("SLURM_LAUNCH_NODE_IPADDR")) return *node;
  return single_host ? Launch{}.master_address : variables.required("SLURM_NODELIST");
}

// srun's tasks belong to job steps. A batch script does not, and its variables count the whole job's tasks.
bool is_in_a_step(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.contains(name); };
  return has("SLURM_STEP_ID") || has("SLURM_STEPID") || has("SLURM_STEP_NUM_TASKS");
}

Launch from_slurm(const Variables& variables) {
  Launch launch{.launcher = Launcher::kSlurm, .rank = variables.integer("SLURM_PROCID")};
  launch.world_size = variables.find("SLURM_STEP_NUM_TASKS") ? variables.integer("SLURM_STEP_NUM_TASKS")
                                                             : variables.integer("SLURM_NTASKS");
  launch.local_rank = variables.integer("SLURM_LOCALID");
  const std::string tasks =
      variables.find("SLURM_STEP_TASKS_PER_NODE")
          .value_or(variables.find("SLURM_TASKS_PER_NODE").value_or(base::text(launch.world_size)));
  const int here = tasks_of_node(tasks, variables.integer("SLURM_NODEID", 0)).value_or(launch.world_size);
  launch.local_size = std::min(here, launch.world_size);
  launch.master_address = meeting_of_slurm(variables, launch.single_host());
  launch.master_port = variables.find("MASTER_PORT") ? variables.integer("MASTER_PORT")
                                                     : derived_port(variables.required("SLURM_JOB_ID"));
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}) {
    launch.run += base::text(variables.find(name).value_or(""), ".");
  }
  return launch;
}

// A batch script is one process, even in a job of several tasks.
Launch from_batch_script(const Variables& variables) {
  const int tasks = variables.integer("SLURM_NTASKS", 1);
  if (tasks == 1) return {};
  throw base::InputError(
      base::text("this job has ", tasks,
                 " tasks (SLURM_NTASKS), and a batch script that runs the program "
                 "itself starts one of them: put srun in front of it, or start local ranks with --nproc N"));
}

Launcher launcher_of(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.contains(name); };
  if (has("SLUICE_RANK")) return Launcher::kSluice;
  if (has("TORCHELASTIC_RUN_ID") || (has("RANK") && has("WORLD_SIZE"))) return Launcher::kTorchrun;
  if (has("OMPI_COMM_WORLD_RANK")) return Launcher::kMpi;
  // srun may provide PMI itself; then Slurm's own variables say more.
  const bool slurm = has("SLURM_PROCID");
  if (has("PMI_RANK") && !(slurm && has("SLURM_STEP_NUM_TASKS") && has("PMI_SIZE") &&
                           environment.at("SLURM_STEP_NUM_TASKS") == environment.at("PMI_SIZE"))) {
    return Launcher::kMpi;
  }
  return slurm ? Launcher::kSlurm : Launcher::kNone;
}

Launch read(const Environment& environment, Launcher launcher) {
  const Variables variables(environment, launcher);
  switch (launcher) {
    case Launcher::kNone: return {};
    case Launcher::kSluice: return from_sluice(variables);
    case Launcher::kTorchrun: return from_torchrun(variables);
    case Launcher::kMpi:
      return environment.contains("OMPI_COMM_WORLD_RANK") ? from_open_mpi(variables) : from_pmi(variables);
    case Launcher::kSlurm:
      return is_in_a_step(environment) ? from_slurm(variables) : from_batch_script(variables);
  }
  SLUICE_ASSERT(false, "unknown launcher");
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::kNone: return "no launcher";
    case Launcher::kSluice: return "sluice";
    case Launcher::kTorchrun: return "torchrun";
    case Launcher::kMpi: return "MPI";
    case Launcher::kSlurm: return "Slurm";
  }
  SLUICE_ASSERT(false, "unknown launcher");
}

Launch launch_from(const Environment& environment) {
  Launch launch = read(environment, launcher_of(environment));
  if (const auto secret = environment.find("SLUICE_SECRET"); secret != environment.end()) {
    launch.secret = secret->second;
  }
  // An IPv6 address may have brackets, as in front of a port.
  std::string& address = launch.master_address;
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  // RANK and WORLD_SIZE may be set by hand in a shell that ends before its ranks.
  launch.has_parent = launch.launcher != Launcher::kNone &&
                      (launch.launcher != Launcher::kTorchrun || environment.contains("TORCHELASTIC_RUN_ID"));
  if (launch.rank >= launch.world_size || launch.local_rank >= launch.world_size) {
    throw base::InputError(base::text(name_of(launch.launcher), " says rank ", launch.rank, " (local rank ",
                                      launch.local_rank, ") of ", launch.world_size,
                                      ": ranks count from 0 and stay below the number of ranks"));
  }
  return launch;
}

void use_batch_scheduling() {
  const sched_param parameters{};
  // Only speed depends on this, so a refusal (in some containers) is not an error.
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &parameters));
}

}  // namespace sluice::transport
