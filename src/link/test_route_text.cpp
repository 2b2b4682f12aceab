#include "link/test_route_text.h"

#include <sstream>

namespace sluice::link {
namespace {

void print(std::ostream& out, const char* level, const std::vector<Transfer>& transfers) {
  for (const auto& [bucket, slice, source, destination] : transfers) {
    out << "  " << level << ' ' << source << (source == destination ? " = " : " -> ") << destination
        << "  bucket " << bucket << " [" << slice.begin << ", " << slice.end << ")\n";
  }
}

}  // namespace

std::string to_text(const Route& route) {
  std::ostringstream out;
  out << route.world_size << " ranks, " << route.topology.node_ranks() << " a node\n";
  for (size_t index = 0; index < route.rounds.size(); ++index) {
    const RouteRound& round = route.rounds[index];
    out << "round " << index << ": buckets";
    for (const int bucket : round.buckets) out << ' ' << bucket;
    out << '\n';
    print(out, "inter", round.inter);
    print(out, "intra", round.intra);
  }
  return out.str();
}

}  // namespace sluice::link
