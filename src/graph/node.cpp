#include "graph/node.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace sluice::graph {

namespace {

using cost::CellKind;

// In the order of NodeKind.
constexpr std::array kTraits = {
    Traits{"pull-inter", "pull-inter", Stream::kLinkInter, PayloadKind::kLinkRound},
    Traits{"pull-intra", "pull-intra", Stream::kLinkIntra, PayloadKind::kLinkRound},
    Traits{"forward", "F", Stream::kCompute, PayloadKind::kCell, CellKind::kForward},
    Traits{"backward", "BW", Stream::kCompute, PayloadKind::kCell, CellKind::kBackward},
    Traits{"backward-input", "B", Stream::kCompute, PayloadKind::kCell, CellKind::kBackwardInput},
    Traits{"backward-weight", "W", Stream::kCompute, PayloadKind::kCell, CellKind::kBackwardWeight},
    Traits{"send-activation", "act", Stream::kActivation, PayloadKind::kTransfer},
    Traits{"send-gradient", "grad", Stream::kGradient, PayloadKind::kTransfer},
    Traits{"push-intra", "push-intra", Stream::kLinkIntra, PayloadKind::kLinkRound},
    Traits{"push-inter", "push-inter", Stream::kLinkInter, PayloadKind::kLinkRound},
    Traits{"reduce-scalars", "scalars", Stream::kControl, PayloadKind::kNone},
    Traits{"update", "update", Stream::kCompute, PayloadKind::kNone},
    Traits{"offload", "out", Stream::kHost, PayloadKind::kCopy},
    Traits{"fetch", "in", Stream::kHost, PayloadKind::kCopy},
};
static_assert(kTraits.size() == static_cast<size_t>(NodeKind::kFetch) + 1);
static_assert(std::variant_size_v<Payload> == static_cast<size_t>(PayloadKind::kCopy) + 1);

// Avoids streams, because traces write hundreds of thousands of labels.
std::string numbered(std::string_view name, int64_t number) {
  return std::string(name) + std::to_string(number);
}

std::string where(const PassOnStage& at) { return " " + place_of(at); }

// Blocks are counted after the embedding, which is operation 0.
std::string blocks(int64_t begin, int64_t end) { return numbered(" L", begin - 1) + numbered("-", end - 1); }

std::string detail(const Node& /*node*/, const LinkRound& link) { return numbered(" r", link.round); }
std::string detail(const Node& /*node*/, const Transfer& transfer) { return where(transfer); }
std::string detail(const Node& /*node*/, const Copy& copy) {
  return where(copy) + blocks(copy.block, copy.block + 1);
}
std::string detail(const Node& /*node*/, const Cell& cell) {
  std::string text = where(cell);
  if (cell.embedding) text += " E";
  const int64_t begin = cell.run.begin + (cell.embedding ? 1 : 0);
  const int64_t end = cell.run.end - (cell.head ? 1 : 0);
  if (begin < end) text += blocks(begin, end);
  if (cell.head) text += " H";
  return text;
}
std::string detail(const Node& node, std::monostate /*none*/) {
  const bool of_a_rank = node.kind == NodeKind::kUpdate && !node.members.empty();
  return of_a_rank ? numbered(" rank ", node.members.front()) : "";
}

}  // namespace

const char* name_of(Stream stream) {
  switch (stream) {
    case Stream::kCompute: return "compute";
    case Stream::kActivation: return "activation";
    case Stream::kGradient: return "gradient";
    case Stream::kLinkInter: return "link-inter";
    case Stream::kLinkIntra: return "link-intra";
    case Stream::kControl: return "control";
    case Stream::kHost: return "host";
    case Stream::kFsdp: return "fsdp";
  }
  SLUICE_ASSERT(false, "unknown stream");
}

const Traits& traits(NodeKind kind) { return kTraits[static_cast<size_t>(kind)]; }

NodeKind node_kind(CellKind kind) {
  const auto of_kind = [&](const Traits& of) { return of.payload == PayloadKind::kCell && of.cell == kind; };
  return static_cast<NodeKind>(std::ranges::find_if(kTraits, of_kind) - kTraits.begin());
}

const PassOnStage* pass_on_stage(const Payload& payload) {
  return std::visit(
      [](const auto& of) -> const PassOnStage* {
        if constexpr (std::is_base_of_v<PassOnStage, std::decay_t<decltype(of)>>) return &of;
        return nullptr;
      },
      payload);
}

std::string place_of(const PassOnStage& at) {
  std::string place = numbered("p", at.pipeline) + numbered(" s", at.stage);
  if (at.lanes > 1 || at.lane > 0) place += numbered(" l", at.lane);
  if (at.lanes > 1) place += numbered("-", at.lane + at.lanes);
  return place + numbered(" m", at.micro_batch);
}

std::string label(const Node& node) {
  return traits(node.kind).mark +
         std::visit([&](const auto& payload) { return detail(node, payload); }, node.payload);
}

}  // namespace sluice::graph
