// Writes data/calibrations/h100-*.json: a layer's costs on H100, by DistCA's measurements (data/measured) of
// FlashAttention 2 and of NCCL inside a node. Products are by data/rates/rates.json, the rest by data sheets.
//
//   h100_calibrations [FOLDER]
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/calibration.h"

namespace {

using namespace sluice;

constexpr int kNodeGpus = 8;

cost::Calibration calibration_of(const std::string& size) {
  strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  cluster.name = "h100-flash-attention-2";
  const cost::DeviceRates& device = cost::rates_of_devices(cluster);
  cluster.intra_node = device.collective;
  const std::vector<int> degrees = {1, 2, 4, 8};
  cost::CostModel::Options options =
      cost::analytic_options(model::named_model("llama-" + size), cost::rates_of(cluster),
                             {.device_bytes = cluster.device_memory_bytes / 10 * 9, .element_bytes = 2},
                             degrees, cluster.topology());
  return {
      "nodes of eight H100 80 GB",
      base::text(
          "attention: ", device.attention.front().name, ", ", device.attention.front().source,
          "; links in a node: ", device.collective_source, "; products: ", device.product_source,
          "; host: ", cost::host_rates().source,
          "; memory, update and links between nodes: the data sheets that the cluster preset h100x8 names"),
      std::move(options)};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "data/calibrations";
  for (const char* size : {"7b", "13b", "32b"}) {
    const cost::Calibration calibration = calibration_of(size);
    const cost::CostModel cost(calibration.options);
    const base::Json json = cost::to_json(calibration, cost.schemes(kNodeGpus), kNodeGpus);
    base::write_json(folder + "/h100-" + size + ".json", json);
  }
}
