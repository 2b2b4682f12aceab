#include "serve/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::serve {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(MetricsEndpoint, ShowsTheNewestPage) {
  MetricsEndpoint endpoint("127.0.0.1:0", "log.metrics");
  httplib::Client client("127.0.0.1", endpoint.port());
  endpoint.show("sluice_loss 3\n");
  EXPECT_EQ(client.Get("/metrics")->body, "sluice_loss 3\n");
  endpoint.show("sluice_loss 2\n");
  EXPECT_EQ(client.Get("/metrics")->body, "sluice_loss 2\n");
  EXPECT_EQ(client.Get("/else")->status, 404);
}

TEST(MetricsEndpoint, AnAddressThatCannotBeHadIsNamed) {
  const auto made = [](const std::string& address) {
    return [address] { MetricsEndpoint(address, "log.metrics"); };
  };
  for (const char* address :
       {"", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:port", ":9464", "127.0.0.1:70000"})
    EXPECT_THAT(made(address), ThrowsMessage<base::InputError>(HasSubstr("give an address and a port")))
        << address;
  const MetricsEndpoint first("127.0.0.1:0", "log.metrics");
  EXPECT_THAT(made(base::text("127.0.0.1:", first.port())),
              ThrowsMessage<base::InputError>(HasSubstr("where another program listens")));
}

}  // namespace
}  // namespace sluice::serve
