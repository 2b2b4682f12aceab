// Communication between all ranks of a probe: start together, agree on rank 0's results.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace sluice::profile {

// 0, 1, …, world size - 1.
std::vector<int> all_ranks(const comm::Transport& transport);

// Every function but bytes() is collective over all ranks.
class Ranks {
 public:
  // `name` is the communicator's. Messages pass through memory of `device`, as the transport requires.
  Ranks(comm::Transport& transport, const std::string& name, c10::Device device);

  void barrier();
  // Rank 0's value.
  int64_t agree(int64_t value);
  // Rank 0's text.
  std::string broadcast(const std::string& text);
  // Uninitialised bytes on the device.
  at::Tensor bytes(int64_t count) const;

 private:
  c10::Device device_;
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace sluice::profile
