// A bucket as a store, against a server in memory: what is sent, and what is said when the server refuses.
#include "storage/s3_store.h"

#ifdef SLUICE_S3

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "storage/location.h"
#include "storage/test_bucket.h"

namespace sluice::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

class Bucket : public testing::Test {
 protected:
  Location place(const std::string& name) const {
    return Location(open_bucket("bucket", server_.access()), name);
  }
  // Answers the first `times` requests like this.
  void refuse(MemoryBucket::Answer answer, int times = 1000) {
    server_.instead = [answer, times](const MemoryBucket::Request&) mutable {
      return times-- > 0 ? std::optional(answer) : std::nullopt;
    };
  }

  MemoryBucket server_;
};

TEST_F(Bucket, WhatIsWrittenIsRead) {
  const Location file = place("runs/a/caf\u00e9 1+2.json");
  file.write("content");
  EXPECT_EQ(file.read(), "content");
  EXPECT_EQ(file.status()->bytes, 7);
  EXPECT_TRUE(file.is_file());
  EXPECT_FALSE(place("runs/a").is_file());
  EXPECT_THAT(server_.objects(), ElementsAre(Pair("runs/a/caf%C3%A9%201%2B2.json", "content")))
      << "names are encoded";
  file.remove();
  EXPECT_FALSE(file.is_file());
  file.remove();  // removing a file that does not exist is no error
  EXPECT_EQ(file.moved_bytes(), place("x").moved_bytes() + 14)
      << "a sign of life: seven bytes there and back";
}

TEST_F(Bucket, AFileIsReadInParts) {
  const std::string bytes = "0123456789";
  server_.put("file", bytes);
  const auto source = place("file").open();
  ASSERT_EQ(source->size(), 10);
  source->fetch({2, 5});
  source->fetch({7, 10});
  EXPECT_EQ(std::memcmp(source->data() + 2, "234", 3), 0);
  EXPECT_EQ(std::memcmp(source->data() + 7, "789", 3), 0);
  std::array<std::byte, 4> own{};
  source->read({0, 4}, own.data());
  EXPECT_EQ(std::memcmp(own.data(), "0123", 4), 0);
  EXPECT_TRUE(source->release({0, 10})) << "must be fetched again";
  source->fetch({0, 10});
  EXPECT_EQ(std::memcmp(source->data(), bytes.data(), 10), 0);
}

// A reader holds one version from its opening on.
TEST_F(Bucket, AFileThatIsReplacedOrRemovedWhileItIsReadIsNotMixed) {
  server_.put("file", "0123456789");
  const auto source = place("file").open();
  server_.put("file", "9876543210");
  EXPECT_THAT(
      [&] {
        source->fetch({0, 4});
      },
      ThrowsMessage<base::InputError>(
          HasSubstr("s3://bucket/file has been replaced while it was read: begin again")));
  place("file").remove();
  EXPECT_THAT(
      [&] {
        source->fetch({0, 4});
      },
      ThrowsMessage<base::InputError>(HasSubstr("has been removed while it was read")));
  EXPECT_THAT([&] { place("file").open(); },
              ThrowsMessage<base::InputError>(HasSubstr("cannot read s3://bucket/file: there is none")));
}

TEST_F(Bucket, DirectoriesAreListedOverSeveralPages) {
  for (const char* name : {"a/1", "a/2", "a/in/x", "a/in/y", "a/3", "b/1", "ab"}) server_.put(name, "xx");
  std::vector<std::string> names;
  for (const Entry& entry : place("a").entries())
    names.push_back(entry.name + (entry.is_directory ? "/" : ""));
  EXPECT_THAT(names, ElementsAre("1", "2", "3", "in/"));
  EXPECT_EQ(place("a").entries().front().bytes, 2);
  EXPECT_TRUE(place("none").entries().empty());
  place("a").remove_tree();
  EXPECT_THAT(server_.objects(), ElementsAre(Pair("ab", "xx"), Pair("b/1", "xx")));
  EXPECT_FALSE(place("ab").rename(place("c"))) << "nothing is renamed in a bucket";
}

// Larger than one part: parts are sent side by side, and the object appears when all are there.
TEST_F(Bucket, LargeFilesAreSentInPartsAndAppearAtOnce) {
  std::string bytes(40 << 20, 'a');
  for (size_t i = 0; i < bytes.size(); i += 4099) bytes[i] = static_cast<char>('b' + i % 20);
  const auto sink = place("large").create(std::ssize(bytes));
  sink->write(bytes.data(), 1000);
  sink->write(bytes.data() + 1000, bytes.size() - 1000);
  EXPECT_TRUE(server_.objects().empty());
  sink->finish();
  EXPECT_TRUE(server_.objects().at("large") == bytes);
  EXPECT_EQ(server_.uploads(), 0U);
}

TEST_F(Bucket, AnUnfinishedFileLeavesNothingBehind) {
  {
    const auto sink = place("large").create(20 << 20);
    const std::string bytes(17 << 20, 'a');
    sink->write(bytes.data(), bytes.size());
  }
  EXPECT_TRUE(server_.objects().empty());
  EXPECT_EQ(server_.uploads(), 0U) << "parts that stay cost money";
  { place("small").create(3)->write("abc", 3); }
  EXPECT_TRUE(server_.objects().empty());
}

TEST_F(Bucket, APartThatFailsFailsTheFile) {
  server_.instead = [](const MemoryBucket::Request& request) -> std::optional<MemoryBucket::Answer> {
    if (!request.parameter("partNumber")) return std::nullopt;
    return MemoryBucket::Answer{.status = 403, .body = "<Code>AccessDenied</Code>"};
  };
  const std::string bytes(17 << 20, 'a');
  const auto sink = place("large").create(std::ssize(bytes));
  sink->write(bytes.data(), bytes.size());
  EXPECT_THAT([&] { sink->finish(); }, ThrowsMessage<base::InputError>(HasSubstr("check the credentials")));
}

TEST_F(Bucket, FaultsThatMayPassAreTriedAgainAFewTimes) {
  server_.put("file", "content");
  refuse({.status = 503, .body = "<Code>SlowDown</Code>"}, 2);
  EXPECT_EQ(place("file").status()->bytes, 7);
  refuse({.status = 503, .body = "<Code>SlowDown</Code><Message>Reduce your request rate.</Message>"});
  EXPECT_THAT([&] { place("").entries(); },
              ThrowsMessage<base::RunError>(
                  AllOf(HasSubstr("s3://bucket: GET was answered 503 SlowDown, Reduce your request rate."),
                        HasSubstr("3 attempts: try again later"))));
}

TEST_F(Bucket, RefusalsNameTheWayOut) {
  const auto told = [&](MemoryBucket::Answer answer) {
    refuse(std::move(answer));
    const size_t before = server_.requests().size();
    std::string why;
    try {
      place("dir/file").write("x");
    } catch (const base::Error& error) {
      why = error.what();
    }
    EXPECT_EQ(server_.requests().size(), before + 1) << "the same request would be refused again";
    return why;
  };
  EXPECT_THAT(told({.status = 403, .body = "<Code>AccessDenied</Code>"}),
              AllOf(HasSubstr("s3://bucket/dir/file: PUT was answered 403 AccessDenied"),
                    HasSubstr("check the credentials")));
  EXPECT_THAT(told({.status = 404, .body = "<Code>NoSuchBucket</Code>"}),
              HasSubstr("make the bucket, or name another"));
  EXPECT_THAT(told({.status = 301, .headers = "x-amz-bucket-region: eu-west-1\r\n"}),
              HasSubstr("the bucket is in region eu-west-1: set AWS_REGION to it"));
  EXPECT_THAT(told({.status = 403, .body = "<Code>RequestTimeTooSkewed</Code>"}),
              HasSubstr("set this machine's clock"));
  EXPECT_THAT(told({.status = 400, .body = "<Code>Other</Code>"}), HasSubstr("check bucket and AWS_REGION"));
}

TEST_F(Bucket, CredentialsThatExpireAreReadAgain) {
  S3Access access = server_.access();
  int read = 0;
  access.credentials = [&] {
    return S3Credentials{.key_id = "id", .secret = "s", .session_token = base::text("token", ++read)};
  };
  server_.instead = [](const MemoryBucket::Request& request) -> std::optional<MemoryBucket::Answer> {
    if (request.headers.at("x-amz-security-token") == "token2") return std::nullopt;
    return MemoryBucket::Answer{.status = 400, .body = "<Code>ExpiredToken</Code>"};
  };
  open_bucket("bucket", access)->remove("file");
  EXPECT_EQ(read, 2);
}

TEST_F(Bucket, AServerThatIsNotThereIsNamed) {
  S3Access access = server_.access();
  access.endpoint = "http://127.0.0.1:1";
  access.attempts = 2;
  EXPECT_THAT([&] { open_bucket("bucket", access)->status("file"); },
              ThrowsMessage<base::RunError>(AllOf(HasSubstr("s3://bucket/file: HEAD failed after 2 attempts"),
                                                  HasSubstr("check AWS_ENDPOINT_URL and the network"))));
}

}  // namespace
}  // namespace sluice::storage

#endif
