#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/device.h"
#include "runtime/link_mover.h"

namespace sluice::runtime {
namespace {

// Lists of one exchange, in the device's memory. They rarely change from step to step, so a list is uploaded
// again only if it differs from the last one.
template <typename Job>
class DeviceList {
 public:
  // REQUIRES: the current stream is that of all earlier calls.
  const Job* update(std::vector<Job> jobs, const c10::Device& device) {
    const auto bytes = static_cast<int64_t>(jobs.size() * sizeof(Job));
    if (same(jobs)) return data();
    jobs_ = std::move(jobs);
    const at::Tensor buffer = ops::upload_buffer(bytes, c10::ScalarType::Byte, device);
    if (bytes > 0) std::memcpy(buffer.mutable_data_ptr(), jobs_.data(), static_cast<size_t>(bytes));
    device_ = ops::upload(buffer, device);
    return data();
  }
  int64_t size() const { return static_cast<int64_t>(jobs_.size()); }

 private:
  const Job* data() const { return static_cast<const Job*>(device_.const_data_ptr()); }
  bool same(const std::vector<Job>& jobs) const {
    return device_.defined() && jobs.size() == jobs_.size() &&
           (jobs.empty() || std::memcmp(jobs.data(), jobs_.data(), jobs.size() * sizeof(Job)) == 0);
  }

  std::vector<Job> jobs_;
  at::Tensor device_;
};

void add_copy(std::vector<CopyJob>& jobs, const void* from, void* to, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kJobBytes) {
    jobs.push_back({static_cast<const std::byte*>(from) + begin, static_cast<std::byte*>(to) + begin,
                    std::min(kJobBytes, bytes - begin)});
  }
}

template <typename Element>
std::vector<CopyJob> copy_jobs(const std::vector<link::Copy>& copies,
                               const link::BucketMemory<Element>& memory, Element* wire) {
  std::vector<CopyJob> jobs;
  for (const link::Copy& copy : copies) {
    add_copy(jobs, locate(memory, wire, copy.from), locate(memory, wire, copy.to),
             copy.elements * static_cast<int64_t>(sizeof(Element)));
  }
  return jobs;
}

template <typename Element>
std::vector<SumJob> sum_jobs(const link::WireLevel& level, const link::BucketMemory<Element>& memory,
                             Element* wire) {
  constexpr int64_t kJobElements = kJobBytes / static_cast<int64_t>(sizeof(Element));
  std::vector<SumJob> jobs;
  for (const link::Sum& sum : level.sums) {
    Element* to = locate(memory, wire, sum.to);
    for (int64_t begin = 0; begin < sum.elements; begin += kJobElements) {
      jobs.push_back(
          {to + begin, std::min(kJobElements, sum.elements - begin), begin, sum.first_source, sum.sources});
    }
  }
  return jobs;
}

class DeviceLinkMover final : public LinkMover {
 public:
  DeviceLinkMover(const c10::Device& device, std::unique_ptr<LinkLaunches> launches)
      : device_(device), launches_(std::move(launches)) {}

  void pack(const link::WireLevel& level, const LinkMemories& memories, comm::DType dtype,
            void* send) override {
    visit_element(dtype, [&]<typename Element>() {
      copy(lists_of(level).pack,
           copy_jobs(level.pack, pointers<Element>(memories), static_cast<Element*>(send)));
    });
  }

  void unpack(const link::WireLevel& level, void* receive, const LinkMemories& memories,
              comm::DType dtype) override {
    visit_element(dtype, [&]<typename Element>() {
      const link::BucketMemory<Element> memory = pointers<Element>(memories);
      auto* wire = static_cast<Element*>(receive);
      copy(lists_of(level).unpack, copy_jobs(level.unpack, memory, wire));
      add(level, memory, wire, dtype);
    });
  }

 private:
  struct Lists {
    DeviceList<CopyJob> pack;
    DeviceList<CopyJob> unpack;
    DeviceList<SumJob> sums;
    DeviceList<const void*> sources;
  };

  static constexpr size_t kMostLists = 4096;

  // By the exchange's address. A later exchange at the same address has other jobs.
  Lists& lists_of(const link::WireLevel& level) {
    if (lists_.size() >= kMostLists) lists_.clear();
    return lists_[&level];
  }

  void copy(DeviceList<CopyJob>& list, std::vector<CopyJob> jobs) {
    const CopyJob* on_device = list.update(std::move(jobs), device_);
    launches_->copies(on_device, list.size());
  }

  template <typename Element>
  void add(const link::WireLevel& level, const link::BucketMemory<Element>& memory, Element* wire,
           comm::DType dtype) {
    if (level.sums.empty()) return;
    SLUICE_ASSERT(dtype != comm::DType::kBFloat16, "16-bit elements are copied, never summed");
    std::vector<const void*> sources;
    for (const link::Address& place : level.sources) sources.push_back(locate(memory, wire, place));
    Lists& lists = lists_of(level);
    const void* const* terms = lists.sources.update(std::move(sources), device_);
    const SumJob* jobs = lists.sums.update(sum_jobs(level, memory, wire), device_);
    launches_->sums(jobs, lists.sums.size(), terms, dtype);
  }

  c10::Device device_;
  std::unique_ptr<LinkLaunches> launches_;
  std::map<const link::WireLevel*, Lists> lists_;
};

}  // namespace

std::unique_ptr<LinkMover> device_link_mover(const c10::Device& device,
                                             std::unique_ptr<LinkLaunches> launches) {
  return std::make_unique<DeviceLinkMover>(device, std::move(launches));
}

}  // namespace sluice::runtime
