#include "run/run_device.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cost/snapshot_cost.h"
#include "ops/device.h"
#include "ops/tensor_memory.h"
#include "run/calibration.h"
#include "run/precision.h"
#include "run/slice_snapshot.h"
#include "run/snapshot_size.h"
#include "runtime/communicators.h"
#include "transport/device_transport.h"

namespace sluice::run {

using base::text;

namespace {

// The first non-empty description among all ranks, sent to all ranks.
std::string first_of(survive::Control& control, const std::string& own) {
  const std::vector<int64_t> sizes = control.gather(static_cast<int64_t>(own.size()));
  const auto first = std::ranges::find_if(sizes, [](int64_t size) { return size > 0; });
  if (first == sizes.end()) return "";
  const int rank = static_cast<int>(first - sizes.begin());
  return text(rank > 0 ? text("rank ", rank, ": ") : "", control.broadcast(own, rank));
}

ops::AttentionShape attention_of(const model::Model& model) {
  const model::LatentAttention* const latent = model.latent();
  return {.heads = model.heads(),
          .kv_heads = model.kv_heads(),
          .dimensions = model.head_dim(),
          .value_dimensions = latent == nullptr ? 0 : latent->values,
          .capped = model.caps_scores(),
          .windowed = model.window() > 0};
}

}  // namespace

RunDevice::RunDevice(const RunOptions& options, const AgreedConfig& agreed, const base::Json& earlier,
                     Peers& peers)
    : between_hosts_(peers.transport()) {
  const config::RunConfig& config = agreed.config;
  survive::Control& control = peers.control();
  control.together("asking the device", [&] {
    chosen_ = profile::rank_device(config.train, config.memory, options.launch, agreed.cards, control.rank());
    if (device().is_cpu()) ops::count_host_tensors();
    if (config.train.deterministic) ops::make_deterministic();
    ops::prepare_device(device());
    untracked_bytes_ = ops::untracked_device_bytes(device());
    set_aside_snapshots(options, agreed);
  });
  at::set_num_threads(chosen_.threads);  // for all threads: another thread's later value would reach this one
  chosen_.memory_bytes = std::ranges::min(control.gather(chosen_.memory_bytes));
  chosen_.host_bytes = std::ranges::min(control.gather(chosen_.host_bytes));
  keeps_memory_ = config.memory.device_gib > 0;
  if (const auto calibration = earlier_calibration(earlier)) {
    const cost::MemoryModel& memory = calibration->options.memory;
    if (!keeps_memory_) chosen_.memory_bytes = memory.device_bytes;
    keeps_memory_ = true;
    if (config.memory.host_gib == 0 && memory.host_bytes > 0) chosen_.host_bytes = memory.host_bytes;
  }
  std::vector<std::string> faults;
  const ops::AttentionShape attention = attention_of(agreed.table.model);
  const c10::ScalarType type = runtime::scalar_type(precision_of(config.train).compute);
  attention_scratch_ = ops::attention_scratch(attention, type, device());
  faults.push_back(ops::unfused_because(attention, type, device()));
  if (device().is_cuda()) faults.push_back(connect(control));
  std::erase(faults, "");
  degraded_ = first_of(control, base::join(faults, "; "));
  if (control.rank() > 0) return;
  base::log(device().is_cpu() ? base::LogLevel::kDebug : base::LogLevel::kInfo,
            text("computes on ", name(), " in ", comm::name_of(precision_of(config.train).compute), ", ",
                 base::human_count(chosen_.threads, "thread", "threads"), " a rank"));
  if (!degraded_.empty()) base::log_warning(text("slower than it could be: ", degraded_));
}

// Connects the devices. Returns why GPUs are not connected directly; empty if they are.
std::string RunDevice::connect(survive::Control& control) {
  transport::DeviceTransportOptions connection;
  connection.device = device().index();
  connection.most_blocks = runtime::most_blocks();
  const auto connecting = control.activity().shared("connecting the devices");
  transport::DeviceTransport made = transport::device_transport(between_hosts_, connection);
  between_devices_ = std::move(made.transport);
  return made.detour.empty() ? "" : text("between GPUs by way of host memory: ", made.detour);
}

// A background save copies the owner slices to host memory, and so do snapshots for later memberships. The
// machine's memory has to hold them, too.
void RunDevice::set_aside_snapshots(const RunOptions& options, const AgreedConfig& agreed) {
  const config::RunConfig& config = agreed.config;
  const int ranks = options.launch.world_size, rank = options.launch.rank;
  const runtime::Precision precision = precision_of(config.train);
  int64_t bytes = 0;
  if (config.checkpoint.every > 0 && config.checkpoint.async)
    bytes += SliceSnapshot::bytes(agreed.table, precision, ranks, rank);
  if (options.worker_context)
    bytes += cost::kSnapshotCopies * snapshot_bytes(agreed.table, {.precision = precision}, ranks, rank);
  if (bytes == 0) return;
  if (config.memory.host_gib == 0) chosen_.host_bytes = std::max<int64_t>(1, chosen_.host_bytes - bytes);
  if (!device().is_cpu() || config.memory.device_gib > 0) return;
  if (chosen_.memory_bytes <= bytes) {
    throw base::InfeasibleError(
        text("a rank may use ", base::human_bytes(static_cast<double>(chosen_.memory_bytes)),
             ", which snapshots of parameters would take: set ",
             "checkpoint.async = false or elastic.enabled = false, or use more ranks"));
  }
  chosen_.memory_bytes -= bytes;
}

// A run that resumes has a memory figure that is already reduced.
int64_t RunDevice::taken_bytes(survive::Control& control) const {
  if (device().is_cpu() || keeps_memory_) return 0;
  const int64_t own = ops::untracked_device_bytes(device()) - untracked_bytes_;
  return std::max<int64_t>(0, std::ranges::max(control.gather(own)));
}

}  // namespace sluice::run
