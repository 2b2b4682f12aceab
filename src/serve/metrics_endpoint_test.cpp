#include "serve/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "serve/test_client.h"

namespace sluice::serve {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(MetricsEndpoint, ShowsTheNewestPage) {
  MetricsEndpoint endpoint("127.0.0.1:0", "log.metrics");
  const auto get = [&](const std::string& path) {
    return exchange(endpoint.port(), "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  };
  endpoint.show("sluice_loss 3\n");
  EXPECT_THAT(get("/metrics"), EndsWith("\r\n\r\nsluice_loss 3\n"));
  endpoint.show("sluice_loss 2\n");
  EXPECT_THAT(get("/metrics"), EndsWith("\r\n\r\nsluice_loss 2\n"));
  EXPECT_THAT(get("/else"), StartsWith("HTTP/1.1 404"));
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
