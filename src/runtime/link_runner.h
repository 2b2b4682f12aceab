// Executes pull and push of one rank: copies slices into the wire's buffer, exchanges them, copies them out
// and sums. What goes where was decided in `link`; here are only buffers and the world's communicators.
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

// The exchanges of one strategy for one rank, by link round and piece (graph::link_pieces). Made once a
// strategy.
struct LinkWires {
  std::vector<std::vector<link::RoundWire>> pull;
  std::vector<std::vector<link::RoundWire>> push;
  std::vector<std::vector<link::RoundDifference>> differences;  // of pull, where it has some
  int64_t pulled_elements = 0;                                  // received by this rank in pull
  int64_t pushed_elements = 0;                                  // sent by this rank in push

  // Bytes of these by codecs, elements taking so many as they are; `differs`: holders have the step's before.
  int64_t pulled_bytes(strategy::PullCodec codec, bool differs, int64_t wide) const;
  int64_t pushed_bytes(const strategy::LevelCodecs& codecs, int64_t wide) const;
};
// How parameters travel that holders have nothing of.
strategy::Codec whole_codec(strategy::PullCodec codec, int64_t wide);

// Asserts that pull brings exactly the rank's shards less what it owns, and push takes as much home.
LinkWires link_wires(const model::ParameterTable& table, const graph::LinkPlan& plan, int rank,
                     bool differences = false);

// By bucket, what a pull in differences moves between: codes, factors, and parameters that are not coded.
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
  // The same with what travels coded; `seed` is another one for each of a step's exchanges, and step.
  void run_coded(const link::WireLevel& level, const Memories& memories, comm::DType dtype,
                 strategy::Codec codec, uint64_t seed);

  // A pull in differences; `dtype`: of what is not coded.
  void run(const link::DifferenceLevel& level, const DifferenceMemories& memories, comm::DType dtype,
           strategy::PullCodec codec);

  // Enlarges buffers that are too small for a strategy's transfers on one level, `level` of link::RoundWire:
  // a step then takes as much memory behind a step of another strategy as behind one of its own.
  struct Codecs {
    strategy::PullCodec pull = strategy::PullCodec::kNone;
    strategy::Codec push = strategy::Codec::kNone;
  };
  void make_room(const LinkWires& wires, link::WireLevel link::RoundWire::*level, const Precision& precision,
                 const Codecs& codecs, c10::Device device);

  // Of the buffers; release() lets go of them, before exchanges of other sizes.
  int64_t bytes() const;
  void release();

 private:
  void exchange(const std::vector<int64_t>& send_bytes, const std::vector<int64_t>& receive_bytes);

  comm::Communicator& communicator_;
  MakeLinkMover make_mover_;
  std::unique_ptr<LinkMover> mover_;  // made for the device of the first run
  at::Tensor send_;                   // bytes
  at::Tensor receive_;                // bytes
  at::Tensor wide_;                   // what is coded, or was
};

// What pull and push move in the step that `store` has open.
LinkRunner::Memories pull_memories(ParameterStore& store);
// `came`: by bucket, what is coded of the rank's shards.
DifferenceMemories difference_memories(ParameterStore& store, const std::vector<CodedNumbers>& came);
LinkRunner::Memories push_memories(ParameterStore& store);

}  // namespace sluice::runtime
