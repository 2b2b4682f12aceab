#include "graph/ping_pong.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace sluice::graph {
namespace {

int64_t clocked(const PingPongLayer& layer, int64_t layers, int micro_batches) {
  return ping_pong(std::vector<PingPongLayer>(static_cast<size_t>(layers), layer), micro_batches).makespan_ns;
}

// The time of a pass if all layers are alike (MegaScale-Infer, section 4.2, equations 2 to 5). Exact if the
// micro-batches keep the slower pool busy, m·max(T_a, T_e) >= T_a + T_e + 2·T_c, and no transfer takes longer
// than that pool. Otherwise each layer waits for its round trip.
int64_t ping_pong_ns(const PingPongLayer& layer, int64_t layers, int micro_batches) {
  const int64_t slower = std::max(layer.attention_ns, layer.experts_ns);
  const int64_t trip = layer.attention_ns + layer.there_ns + layer.experts_ns + layer.back_ns;
  if (micro_batches * slower >= trip) return trip + slower * (micro_batches * layers - 1);
  return trip * layers + slower * (micro_batches - 1);
}

TEST(PingPong, TakesWhatIsPublishedWhereMicroBatchesKeepThePoolBusy) {
  base::Rng rng(5);
  int busy = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t transfer = rng.between(1, 500);
    const PingPongLayer layer{rng.between(1, 1000), transfer, rng.between(1, 1000), transfer};
    const int64_t layers = rng.between(1, 20), slower = std::max(layer.attention_ns, layer.experts_ns);
    const auto micro_batches = static_cast<int>(rng.between(1, 6));
    const int64_t trip = layer.attention_ns + layer.experts_ns + 2 * transfer;
    const int64_t expected = ping_pong_ns(layer, layers, micro_batches);
    if (transfer > slower) {  // the wire is the slowest pool
      EXPECT_GE(clocked(layer, layers, micro_batches), expected);
    } else {
      EXPECT_EQ(clocked(layer, layers, micro_batches), expected)
          << layer.attention_ns << " " << layer.experts_ns << " " << transfer << ", " << layers << " layers, "
          << micro_batches;
    }
    busy += micro_batches * slower >= trip ? 1 : 0;
  }
  EXPECT_GT(busy, 800);
  EXPECT_LT(busy, 1900);
}

TEST(PingPong, OfLayersWithoutExpertsIsOnePoolsWork) {
  const std::vector<PingPongLayer> layers{{.attention_ns = 5}, {5, 1, 3, 1}, {.attention_ns = 7}};
  EXPECT_EQ(ping_pong(layers, 1).makespan_ns, 22);
  EXPECT_EQ(ping_pong(layers, 2).makespan_ns, 5 + 5 + 5 + 5 + 7 + 7);  // the trip is behind the other's work
}

}  // namespace
}  // namespace sluice::graph
