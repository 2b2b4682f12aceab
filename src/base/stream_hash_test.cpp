#include "base/stream_hash.h"

#include <gtest/gtest.h>

#include <string>

#include "base/hash.h"

namespace sluice::base {
namespace {

TEST(StreamHash, PartsHashAsTheWhole) {
  std::string bytes;
  StreamHash hash;
  EXPECT_EQ(hash.value(), hash_bytes(bytes));
  for (size_t part = 1; part < 3000; part = 2 * part + 1) {
    const std::string more(part, static_cast<char>(part));
    hash.add(more.data(), more.size());
    bytes += more;
    EXPECT_EQ(hash.value(), hash_bytes(bytes));
  }
}

}  // namespace
}  // namespace sluice::base
