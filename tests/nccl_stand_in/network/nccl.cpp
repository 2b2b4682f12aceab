// NCCL's functions, as far as Sluice loads them. The library bears NCCL's name, so that a process that has
// loaded this one loads no other.
#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "network.h"

namespace {

using namespace sluice::nccl_stand_in;

struct Group {
  int depth = 0;
  std::vector<WorkPtr> kernels;
  std::vector<Member*> aborted;
};
Group& group() {
  thread_local Group own;
  return own;
}

Network& network() { return Network::of_process(); }
Member& member_of(ncclComm_t comm) { return *reinterpret_cast<Member*>(comm); }

Stream* stream_of(ncclComm_t comm, cudaStream_t stream) {
  return stream == nullptr ? network().default_stream(member_of(comm).device)
                           : reinterpret_cast<Stream*>(stream);
}

// One kernel for all messages of a communicator in a group.
void add_message(Work kernel) {
  if (!network().options().ignores_groups) {
    for (const WorkPtr& other : group().kernels) {
      if (other->member != kernel.member || other->kind != kernel.kind) continue;
      other->parts.push_back(kernel.parts.front());
      other->what = "exchange";
      return;
    }
  }
  group().kernels.push_back(std::make_shared<Work>(std::move(kernel)));
}

ncclResult_t ended(ncclResult_t result = ncclInProgress) {
  Group& own = group();
  if (own.depth > 0) return result;
  const auto [depth, kernels, aborted] = std::exchange(own, {});
  if (network().options().ignores_groups_of_aborts) {
    for (Member* member : aborted) network().abort({member});
  } else {
    network().abort(aborted);
  }
  return kernels.empty() ? ncclSuccess : network().issue(kernels);
}

ncclResult_t collective(Work kernel) {
  group().kernels.push_back(std::make_shared<Work>(std::move(kernel)));
  return ended();
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  const std::string text = "stand-in " + std::to_string(++made);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, text.c_str(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int members, ncclUniqueId id, int member,
                                    ncclConfig_t* config) {
  const char* ordered = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (config->blocking != 0 || ordered == nullptr || std::string(ordered) != "1") return ncclInvalidUsage;
  Member* joined = network().join(std::string(id.internal, sizeof id.internal), members,
                                  {.index = member, .device = current_device()}, config->commName);
  *comm = reinterpret_cast<ncclComm_t>(joined);
  return joined != nullptr ? ncclInProgress : ncclInvalidUsage;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return network().finalize(member_of(comm)); }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  network().destroy(member_of(comm));
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  group().aborted.push_back(&member_of(comm));
  return ended(ncclSuccess);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  network().options().before_state();
  *state = network().state(member_of(comm));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInProgress: return "in progress";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInvalidArgument: return "invalid argument";
    default: return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return network().fault(); }

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  --group().depth;
  return ended();
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add_message({.kind = Work::Kind::kMessages,
               .stream = stream_of(comm, stream),
               .member = &member_of(comm),
               .what = "send",
               .parts = {{.send = data, .bytes = static_cast<int64_t>(count), .peer = peer}}});
  return ended();
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add_message({.kind = Work::Kind::kMessages,
               .stream = stream_of(comm, stream),
               .member = &member_of(comm),
               .what = "receive",
               .parts = {{.receive = data, .bytes = static_cast<int64_t>(count), .peer = peer}}});
  return ended();
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective({.kind = Work::Kind::kAllGather,
                     .stream = stream_of(comm, stream),
                     .member = &member_of(comm),
                     .what = "all_gather",
                     .send = send,
                     .receive = receive,
                     .count = static_cast<int64_t>(count),
                     .type = type});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return collective({.kind = Work::Kind::kReduceScatter,
                     .stream = stream_of(comm, stream),
                     .member = &member_of(comm),
                     .what = "reduce_scatter",
                     .send = send,
                     .receive = receive,
                     .count = static_cast<int64_t>(count),
                     .type = type});
}

}  // extern "C"
