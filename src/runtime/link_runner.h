// Executes pull and push of one rank: copies slices into the wire's buffer, exchanges them, copies them out
// and sums them. `link` decides where slices go; this file has only buffers and communicators.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/transport.h"
#include "graph/step_graph.h"
#include "link/wire.h"
#include "runtime/link_mover.h"
#include "runtime/parameter_store.h"

namespace sluice::runtime {

// The exchanges of one strategy for one rank, by link round and piece (graph::link_pieces). Made once for
// each strategy.
struct LinkWires {
  std::vector<std::vector<link::RoundWire>> pull;
  std::vector<std::vector<link::RoundWire>> push;
  std::vector<std::vector<link::RoundDifference>> differences;  // for pull, if it sends differences
  int64_t pulled_elements = 0;                                  // received by this rank in pull
  int64_t pushed_elements = 0;                                  // sent by this rank in push

  // Bytes of these when coded; `wide`: of an uncoded element; `differs`: holders have the last step's copies.
  int64_t pulled_bytes(strategy::PullCodec codec, bool differs, int64_t wide) const;
  int64_t pushed_bytes(const strategy::LevelCodecs& codecs, int64_t wide) const;
};
// The codec of parameters that are sent whole because holders have no earlier copy.
strategy::Codec whole_codec(strategy::PullCodec codec, int64_t wide);

// Asserts that pull brings exactly the rank's shards minus its own slices, and that push sends as much back.
LinkWires link_wires(const model::ParameterTable& table, const graph::LinkPlan& plan, int rank,
                     bool differences = false);

// By bucket, the memories of a pull in differences: codes, factors, and parameters that are not coded.
struct DifferenceMemories {
  LinkMemories codes;
  LinkMemories factors;
  LinkMemories exact;
};

// One level's exchange: its communicator and the buffers that it keeps from step to step. Used by one
// thread at a time.
class LinkRunner {
 public:
  explicit LinkRunner(comm::Communicator& communicator, MakeLinkMover make_mover = make_link_mover)
      : communicator_(communicator), make_mover_(std::move(make_mover)) {}

  using Memories = LinkMemories;
  // Packs, exchanges and unpacks `level`.
  void run(const link::WireLevel& level, const Memories& memories, comm::DType dtype);
  // The same with coded elements; `seed` must differ for each exchange of a step, and between steps.
  void run_coded(const link::WireLevel& level, const Memories& memories, comm::DType dtype,
                 strategy::Codec codec, uint64_t seed);

  // A pull in differences; `dtype`: of elements that are not coded.
  void run(const link::DifferenceLevel& level, const DifferenceMemories& memories, comm::DType dtype,
           strategy::PullCodec codec);

  // Enlarges buffers that are too small for a strategy's transfers on one level, `level` of link::RoundWire.
  // A step then takes the same memory whichever strategy the step before had.
  struct Codecs {
    strategy::PullCodec pull = strategy::PullCodec::kNone;
    strategy::Codec push = strategy::Codec::kNone;
  };
  void make_room(const LinkWires& wires, link::WireLevel link::RoundWire::*level, const Precision& precision,
                 const Codecs& codecs, c10::Device device);

  // Size of the buffers; release() frees them, before exchanges of other sizes.
  int64_t bytes() const;
  void release();

 private:
  void exchange(const std::vector<int64_t>& send_bytes, const std::vector<int64_t>& receive_bytes);

  comm::Communicator& communicator_;
  MakeLinkMover make_mover_;
  std::unique_ptr<LinkMover> mover_;  // made for the device of the first run
  at::Tensor send_;                   // bytes
  at::Tensor receive_;                // bytes
  at::Tensor wide_;                   // elements before coding, or decoded
};

// Memories for pull and push in the step that `store` has open.
LinkRunner::Memories pull_memories(ParameterStore& store);
// `came`: by bucket, the rank's coded differences for its shards.
DifferenceMemories difference_memories(ParameterStore& store, const std::vector<CodedNumbers>& came);
LinkRunner::Memories push_memories(ParameterStore& store);

}  // namespace sluice::runtime
