#include <gtest/gtest.h>

#ifdef SLUICE_CUDA
#include <atomic>
#include <thread>

#include "base/error.h"
#include "transport/nccl_handle.h"

namespace sluice::transport {
namespace {

// A fake NCCL without a network, whose operations stop completing once a test says so. It is a global
// variable, because NCCL's functions have no context argument.
struct StuckNccl {
  std::atomic<int> joined{0};
  std::atomic<bool> ends_operations{true};
  std::vector<std::string> calls;  // used only by the thread that fails
};
StuckNccl stuck;

ncclComm_t fake_communicator(int64_t number) { return reinterpret_cast<ncclComm_t>(number << 4); }

NcclApi stuck_api() {
  NcclApi api;
  api.init = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
    *comm = fake_communicator(++stuck.joined);
    return ncclInProgress;
  };
  api.async_error = [](ncclComm_t, ncclResult_t* state) {
    *state = stuck.ends_operations ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
  };
  api.finalize = [](ncclComm_t) { return ncclSuccess; };
  api.destroy = [](ncclComm_t) { return ncclSuccess; };
  api.error_string = [](ncclResult_t) { return "stuck"; };
  api.last_error = [](ncclComm_t) { return ""; };
  api.group_start = [] {
    stuck.calls.emplace_back("group start");
    return ncclSuccess;
  };
  api.group_end = [] {
    stuck.calls.emplace_back("group end");
    return ncclSuccess;
  };
  api.abort = [](ncclComm_t) {
    stuck.calls.emplace_back("abort");
    return ncclSuccess;
  };
  return api;
}

TEST(Nccl, FailureEndsAllCommunicatorsTogetherAndWhoeverWaitsForOne) {
  const NcclApi api = stuck_api();
  NcclWatch watch;
  std::vector<std::shared_ptr<NcclHandle>> handles;
  for (const char* name : {"first", "second"}) {
    handles.push_back(std::make_shared<NcclHandle>(api, NcclHandle::Options{.name = name}, ncclUniqueId{}));
    ASSERT_EQ(handles.back()->join(std::chrono::seconds(60)), "");
    watch.add(handles.back());
  }
  stuck.ends_operations = false;
  std::atomic<bool> issued{false};
  std::string outcome;
  std::thread issuing([&] {
    outcome = handles[1]->call("'second' #0 exchange", std::chrono::hours(1), [&](ncclComm_t) {
      issued = true;
      return ncclInProgress;
    });
  });
  while (!issued) std::this_thread::yield();
  watch.fail("'first' #0 failed: a peer has gone");
  issuing.join();
  EXPECT_EQ(outcome, "'second' #0 exchange failed: the communicator has been aborted");
  EXPECT_EQ(stuck.calls, (std::vector<std::string>{"group start", "abort", "abort", "group end"}));
  EXPECT_THROW(watch.check(), base::RunError);
}

TEST(Nccl, KernelsTakeAsManyBlocksAsTheyMay) {
  static std::vector<int> asked;
  asked.clear();
  NcclApi api = stuck_api();
  api.init = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t* config) {
    *comm = fake_communicator(++stuck.joined);
    asked.push_back(config->maxCTAs);
    return ncclInProgress;
  };
  stuck.ends_operations = true;
  for (const int most_blocks : {0, 4}) {
    NcclHandle handle(api, {.name = "some", .most_blocks = most_blocks}, ncclUniqueId{});
    EXPECT_EQ(handle.join(std::chrono::seconds(60)), "");
  }
  EXPECT_EQ(asked, (std::vector<int>{NCCL_CONFIG_UNDEF_INT, 4}));
}

TEST(Nccl, LibraryBesideLibtorchComesBeforeTheSystems) {
  EXPECT_EQ(nccl_paths("/env/site-packages/torch/lib/libc10_cuda.so"),
            (std::vector<std::string>{"/env/site-packages/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"}));
}

}  // namespace
}  // namespace sluice::transport
#endif
