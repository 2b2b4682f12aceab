#include "watch/machine.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "watch/gpu_health.h"

namespace sluice::watch {
namespace {

constexpr int64_t kUnknown = Sample::kUnknown;

int64_t ns_of(const timeval& time) { return (int64_t{time.tv_sec} * 1'000'000 + time.tv_usec) * 1000; }

// Sum over all threads of the time between ready and running: the second number of each one's schedstat.
int64_t run_delay_ns() {
  std::error_code none;
  int64_t sum_ns = kUnknown;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(thread.path() / "schedstat");
    int64_t ran_ns = 0, delay_ns = 0;
    if (file >> ran_ns >> delay_ns) sum_ns = std::max<int64_t>(sum_ns, 0) + delay_ns;
  }
  return sum_ns;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  if (!(file >> all_pages >> resident_pages)) return kUnknown;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

// Bytes that the storage layer read and wrote for the process.
int64_t disk_bytes() {
  std::ifstream file("/proc/self/io");
  int64_t sum = kUnknown, value = 0;
  for (std::string key; file >> key >> value;) {
    if (key == "read_bytes:" || key == "write_bytes:") sum = std::max<int64_t>(sum, 0) + value;
  }
  return sum;
}

// Lines "eth0: <received> <7 more> <sent> …" after two header lines.
int64_t network_bytes() {
  std::ifstream file("/proc/self/net/dev");
  int64_t sum = kUnknown;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream name_in(line.substr(0, colon));
    std::string name;
    name_in >> name;
    if (name == "lo") continue;
    std::istringstream values(line.substr(colon + 1));
    int64_t received = 0, sent = 0, skipped = 0;
    values >> received;
    for (int i = 0; i < 7; ++i) values >> skipped;
    if (values >> sent) sum = std::max<int64_t>(sum, 0) + received + sent;
  }
  return sum;
}

// The growth of a counter. A sum over threads can shrink, because an ended thread's part is lost.
int64_t grown(int64_t now, int64_t before) {
  if (now == kUnknown || before == kUnknown) return kUnknown;
  return std::max<int64_t>(0, now - before);
}

}  // namespace

MachineCounts machine_counts() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {.processor_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime),
          .run_delay_ns = run_delay_ns(),
          .major_faults = usage.ru_majflt,
          .resident_bytes = resident_bytes(),
          .disk_bytes = disk_bytes(),
          .network_bytes = network_bytes()};
}

MachineWatch::MachineWatch(const std::string& pci_bus_id, std::chrono::steady_clock::duration least)
    : least_(least) {
  if (!pci_bus_id.empty()) gpu_ = GpuHealth::open(pci_bus_id);
}

MachineWatch::~MachineWatch() = default;

void MachineWatch::take(Sample& sample) {
  if (std::chrono::steady_clock::now() - since_ >= least_) look();
  for (const Figure figure : all_figures()) {
    if (newest_[figure] != kUnknown) sample[figure] = newest_[figure];
  }
}

void MachineWatch::look() {
  const auto now = std::chrono::steady_clock::now();
  const MachineCounts counts = machine_counts();
  const double passed_ns = static_cast<double>(std::chrono::nanoseconds(now - since_).count());
  const double share = static_cast<double>(counts.processor_ns - before_.processor_ns) / passed_ns;
  newest_ = {};
  newest_[Figure::kProcessors] = static_cast<int64_t>(share * 1e6);
  newest_[Figure::kRunDelay] = grown(counts.run_delay_ns, before_.run_delay_ns);
  newest_[Figure::kMajorFaults] = grown(counts.major_faults, before_.major_faults);
  newest_[Figure::kResident] = counts.resident_bytes;
  newest_[Figure::kDisk] = grown(counts.disk_bytes, before_.disk_bytes);
  newest_[Figure::kNetwork] = grown(counts.network_bytes, before_.network_bytes);
  if (gpu_ != nullptr) gpu_->take(newest_);
  before_ = counts;
  since_ = now;
}

}  // namespace sluice::watch
