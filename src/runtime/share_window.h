// The parameters that a rank has at hand where lanes share them: those of the operation at work and of the
// next one, gathered, and the gradients of the one at work and of the one before, on their way into their
// sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

#include "ops/memory_account.h"
#include "runtime/parameter_store.h"
#include "runtime/share_channel.h"

namespace sluice::runtime {

// For one step. All members of a share group go through the same operations in the same order, those without
// tokens too. Around each operation it issues the gather of the next one, then the sum of the one before, and
// waits for both behind it (cost::pass_ns): never more than two operations are at hand.
class ShareWindow {
 public:
  struct Operation {
    std::vector<int> buckets;  // ascending
    bool gathers = true;       // it needs their parameters
    bool scatters = false;     // it makes gradients of them
  };

  // `whole_elements`: by bucket, of the shard that the group holds between its members. What is at hand
  // counts in `memory`.
  ShareWindow(ParameterStore& store, ShareChannel& channel, std::vector<int64_t> whole_elements,
              ops::MemoryAccount& memory)
      : store_(store),
        channel_(channel),
        whole_elements_(std::move(whole_elements)),
        memory_(memory),
        gathered_before_(channel.gathered_bytes()),
        scattered_before_(channel.scattered_bytes()) {}

  // The operation that follows the last one; `next` is the one behind it, null: it ends its pass.
  // `contributes`: by member, whether it has tokens; only those add gradients.
  void begin(const Operation& operation, const Operation* next, const std::vector<char>& contributes);
  // The whole shards of the operation at work, one-dimensional. Gradients start at zero.
  at::Tensor parameters(int bucket) const;
  const at::Tensor& gradients(int bucket) const { return gradients_.at(bucket); }
  void end();

  // Of this step: received from others, sent to others, and how long it has waited for either.
  int64_t gathered_bytes() const { return channel_.gathered_bytes() - gathered_before_; }
  int64_t scattered_bytes() const { return channel_.scattered_bytes() - scattered_before_; }
  int64_t waited_ns() const { return waited_ns_; }

 private:
  struct Gather {
    int bucket = 0;
    at::Tensor whole;
    ShareChannel::Passing passing;
  };
  struct Sum {
    int bucket = 0;
    at::Tensor parts;  // as they were made; undefined where the member has none
    at::Tensor received;
    std::vector<char> contributes;
    std::optional<ShareChannel::Passing> passing;
  };

  void wait(ShareChannel::Passing& passing, const at::Tensor& tensor);
  at::Tensor take(int64_t elements, const at::Tensor& like);
  void give_back(const at::Tensor& tensor);
  void start_gathers(const Operation& operation);
  void finish_gathers();
  void start_sums();
  void finish_sums();

  ParameterStore& store_;
  ShareChannel& channel_;
  std::vector<int64_t> whole_elements_;
  ops::MemoryAccount& memory_;
  int64_t gathered_before_;
  int64_t scattered_before_;
  int64_t waited_ns_ = 0;
  Operation operation_;
  bool last_ = false;
  std::vector<char> contributes_;
  std::map<int, at::Tensor> parameters_;  // by bucket, of the operations at hand
  std::map<int, at::Tensor> gradients_;   // by bucket, of the operation at work
  std::vector<Gather> gathers_;           // under way
  std::vector<Sum> sums_;                 // of the operation before
};

}  // namespace sluice::runtime
