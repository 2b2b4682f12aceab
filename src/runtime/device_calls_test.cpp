// CUDA calls of a step: it allocates no memory after the first steps, and waits for the GPU only where the
// step's design says so. CUPTI, which libtorch includes, counts the calls.
#include <gtest/gtest.h>

#ifdef SLUICE_CUDA
#include <cupti.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

#include "base/text.h"
#include "graph/step_graph.h"
#include "ops/device.h"
#include "runtime/test_cluster.h"

namespace sluice::runtime {
namespace {

using Counts = std::map<std::string, int64_t>;  // by function of CUDA's runtime or driver

// Counts every call of CUDA's runtime and driver in this process while it lives. At most one may live.
class CallCounter {
 public:
  CallCounter() {
    const auto subscribe = function<decltype(&cuptiSubscribe)>("cuptiSubscribe");
    const auto enable = function<decltype(&cuptiEnableDomain)>("cuptiEnableDomain");
    if (subscribe == nullptr || enable == nullptr) throw std::runtime_error("there is no CUPTI");
    check(subscribe(&subscriber_, &CallCounter::count, this), "subscribing");
    for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API}) {
      check(enable(1, subscriber_, domain), "counting");
    }
  }
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;
  ~CallCounter() { function<decltype(&cuptiUnsubscribe)>("cuptiUnsubscribe")(subscriber_); }

  Counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  template <typename Function>
  static Function function(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }
  static void check(CUptiResult result, const char* what) {
    if (result != CUPTI_SUCCESS)
      throw std::runtime_error(base::text("CUPTI: ", what, " failed with ", static_cast<int>(result)));
  }
  static void CUPTIAPI count(void* self, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*id*/,
                             const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite != CUPTI_API_ENTER) return;
    auto* counter = static_cast<CallCounter*>(self);
    const std::lock_guard lock(counter->mutex_);
    ++counter->counts_[call->functionName];
  }

  std::mutex mutex_;
  Counts counts_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
};

int64_t sum_of(const Counts& counts, std::initializer_list<const char*> prefixes) {
  int64_t sum = 0;
  for (const auto& [name, count] : counts) {
    for (const char* prefix : prefixes) sum += name.rfind(prefix, 0) == 0 ? count : 0;
  }
  return sum;
}

Counts difference(Counts later, const Counts& earlier) {
  for (const auto& [name, count] : earlier) later[name] -= count;
  return later;
}

// The calls of `counted` steps after some warm-up steps, all on the same batch.
Counts calls_of_steps(RunOptions options, int64_t counted) {
  constexpr int64_t kWarmUp = 3;
  CallCounter counter;
  Counts before, behind;
  options.steps = kWarmUp + counted + 1;
  options.plan = [&](int64_t step, const std::vector<strategy::Sequence>& /*sequences*/,
                     const strategy::Strategy& strategy, int64_t max_tokens) {
    if (step == kWarmUp) before = counter.counts();
    if (step == kWarmUp + counted) behind = counter.counts();
    return dealt_plan(step, random_batch(3, 0, 9, 64), strategy, max_tokens);
  };
  run_in_process(options);
  return difference(behind, before);
}

TEST(DeviceCalls, StepsOfOneRankAllocateNothingAndHardlyWait) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  constexpr int64_t kSteps = 4;
  RunOptions options;
  options.device = c10::Device(c10::kCUDA, 0);
  options.dtype = comm::DType::kBFloat16;
  const Counts calls = calls_of_steps(options, kSteps);
  std::string all;
  for (const auto& [name, count] : calls) {
    if (count != 0) all += base::text("\n  ", name, " ", count);
  }
  EXPECT_GT(sum_of(calls, {"cudaLaunchKernel", "cuLaunchKernel"}), 0) << all;
  EXPECT_EQ(sum_of(calls, {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cuMemAlloc",
                           "cuMemCreate", "cuMemMap", "cuMemFree", "cuMemUnmap", "cuMemRelease"}),
            0)
      << all;
  EXPECT_EQ(sum_of(calls, {"cudaDeviceSynchronize", "cuCtxSynchronize"}), 0) << all;
  // The norm of the gradients, before the update is scaled by it; the losses; each stream, at the step's end.
  EXPECT_LE(sum_of(calls, {"cudaStreamSynchronize"}), (2 + graph::kStreams) * kSteps) << all;
}

}  // namespace
}  // namespace sluice::runtime
#endif
