// The printer of step graphs: aligned columns, members as rank ranges, dependencies by seq.
#include "base/text.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "graph/step_graph.h"

namespace sluice::graph {

namespace {

// "0-3,6": ascending numbers with runs joined.
std::string ranges(const std::vector<int>& numbers) {
  std::string result;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!result.empty()) result += ",";
    result += last == i ? base::text(numbers[i]) : base::text(numbers[i], "-", numbers[last]);
    i = last + 1;
  }
  return result;
}

std::string waits(const StepGraph& graph, const Node& node) {
  std::vector<int> seqs;
  for (const int on : node.dependencies) seqs.push_back(static_cast<int>(graph.node(on).seq));
  std::ranges::sort(seqs);
  return ranges(seqs);
}

}  // namespace

std::string to_text(const StepGraph& graph) {
  std::ostringstream out;
  out << "step " << graph.step << ": " << graph.nodes.size() << " nodes on " << graph.world_size
      << " ranks, makespan " << graph.makespan_ns << " ns\n";
  out << " seq      start        end  node                      ranks     after\n";
  for (const int id : graph.in_order()) {
    const Node& node = graph.node(id);
    const std::string after = waits(graph, node);
    out << std::setw(4) << node.seq << std::setw(11) << node.start_ns << std::setw(11) << node.end_ns << "  "
        << std::left << std::setw(26) << label(node);
    if (after.empty() && node.bytes == 0) {
      out << ranges(node.members);
    } else {
      out << std::setw(10) << ranges(node.members) << after;
      if (node.bytes > 0) out << (after.empty() ? "" : "  ") << node.bytes << " B";
    }
    out << std::right << "\n";
  }
  return out.str();
}

}  // namespace sluice::graph
