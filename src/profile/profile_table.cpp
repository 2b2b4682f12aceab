#include "profile/profile_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/text.h"

namespace sluice::profile {

namespace {

using base::text;

std::string number(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4g", value);
  return digits;
}

double largest_error(const cost::Fit& fit) {
  double largest = 0;
  for (const double residual : fit.residuals) largest = std::max(largest, std::abs(residual));
  return largest;
}

std::string fits_table(const std::vector<KindFit>& fits) {
  std::vector<std::vector<std::string>> rows{
      {"", "a ns/token²", "b ns/token", "c ns", "longest measured", "worst error"}};
  for (const KindFit& kind : fits) {
    const double longest_ns = std::ranges::max(kind.samples, {}, &cost::Sample::time_ns).time_ns;
    rows.push_back({kind.kind, number(kind.fit.a_ns), number(kind.fit.b_ns), number(kind.fit.c_ns),
                    base::human_duration(std::llround(longest_ns)),
                    base::human_percent(largest_error(kind.fit))});
  }
  return base::table_text(rows, "lrrrrr");
}

std::string link_text(const cost::LinkTimes& link) {
  return text(base::human_duration(link.latency_ns), " and ",
              base::human_bytes(static_cast<double>(link.bytes_per_s)), " a second");
}

}  // namespace

std::string profile_table(const ProbeResult& found) {
  const cost::CostModel::Options& model = found.calibration.options;
  std::string result = text(found.calibration.hardware, ", ", found.calibration.source, "\n");
  for (const auto& [tp, fits] : found.fits_by_tp) {
    result +=
        text("\ntp ", tp, ", one layer, and the model's ends:\n", fits_table(fits),
             "activations: ", model.kinds_by_tp.at(tp)[1].saved_bytes_per_token, " bytes a token and layer, ",
             model.kinds_by_tp.at(tp)[1].deferred_bytes_per_token, " more for a deferred weight gradient\n");
  }
  result +=
      text("\nexchange inside a node: ", link_text(model.intra),
           "\nexchange between nodes: ", link_text(model.inter),
           "\noptimiser: ", number(model.update_ps_per_element / 1e3), " ns an element\nmemory of a rank: ",
           base::human_bytes(static_cast<double>(model.memory.device_bytes)), "\n");
  return result;
}

}  // namespace sluice::profile
