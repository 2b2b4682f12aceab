// A bucket as a store, against the server whose address and keys the environment gives (s3_test.py starts
// it).
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "storage/location.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return variables;
}

Location place(const std::map<std::string, std::string>& variables = environment()) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return locate(std::string("s3://bucket/tests/") + test->name(), s3_access_from(variables));
}

std::vector<std::string> names_in(const Location& directory) {
  std::vector<std::string> names;
  for (const Entry& entry : directory.entries())
    names.push_back(entry.name + (entry.is_directory ? "/" : ""));
  return names;
}

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 2654435761U) >> 13);
  return bytes;
}

TEST(S3Store, KeepsFilesByName) {
  const Location root = place();
  EXPECT_TRUE(root.entries().empty());
  EXPECT_FALSE((root / "file").status());
  const std::string odd = "odd name+=&%?ü'~";
  (root / odd).write("odd");
  (root / "empty").write("");
  for (const char* name : {"a", "b", "c", "d", "e/1", "e/2", "f/1"}) (root / name).write(name);
  EXPECT_THAT(names_in(root), ElementsAre("a", "b", "c", "d", "e/", "empty", "f/", odd));  // on several pages
  EXPECT_EQ((root / odd).read(), "odd");
  EXPECT_EQ((root / "empty").read(), "");
  EXPECT_EQ((root / "e" / "2").read(), "e/2");
  EXPECT_EQ((root / "e" / "2").status()->bytes, 3);
  const auto age = std::chrono::system_clock::now() - (root / "a").status()->written;
  EXPECT_LT(std::chrono::abs(age), std::chrono::hours(1));
  (root / "a").write("other");
  EXPECT_EQ((root / "a").read(), "other");
  EXPECT_FALSE((root / "a").rename(root / "z"));
  (root / "a").remove();
  (root / "a").remove();
  EXPECT_THROW((root / "a").read(), base::InputError);
  (root / "e").remove_tree();
  EXPECT_THAT(names_in(root), ElementsAre("b", "c", "d", "empty", "f/", odd));
  root.remove_tree();
  EXPECT_TRUE(root.entries().empty());
}

TEST(S3Store, LargeFilesGoInPartsAndAreReadByParts) {
  const Location file = place() / "large";
  const std::string bytes = some_bytes((size_t{40} << 20) + 12'345);
  {
    const auto sink = file.create(static_cast<int64_t>(bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += 7'000'001)
      sink->write(bytes.data() + at, std::min<size_t>(7'000'001, bytes.size() - at));
    EXPECT_FALSE(file.is_file());
    sink->finish();
  }
  const auto source = file.open();
  ASSERT_EQ(source->size(), static_cast<int64_t>(bytes.size()));
  std::vector<base::Interval> parts;
  for (int64_t part = 0; part < 4; ++part) parts.push_back(base::even_part(source->size(), 4, part));
  {
    std::vector<std::jthread> readers;
    for (const base::Interval part : parts) readers.emplace_back([&source, part] { source->fetch(part); });
  }
  const auto content = [&](base::Interval part) {
    return std::string(reinterpret_cast<const char*>(source->data() + part.begin),
                       static_cast<size_t>(part.size()));
  };
  EXPECT_TRUE(content({0, source->size()}) == bytes);
  EXPECT_TRUE(source->release(parts[1]));
  EXPECT_FALSE(content(parts[1]) ==
               bytes.substr(static_cast<size_t>(parts[1].begin), content(parts[1]).size()));
  source->fetch(parts[1]);
  EXPECT_TRUE(content({0, source->size()}) == bytes);
  file.remove();
}

TEST(S3Store, AnOpenFileStaysTheOneThatWasOpened) {
  const Location file = place() / "file";
  file.write("first");
  const auto source = file.open();
  std::byte bytes[5];
  source->read({1, 4}, bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes), 3), "irs");
  const std::string version = file.status()->version;
  EXPECT_EQ(place().entries().front().version, version);
  EXPECT_EQ(place().entries().front().bytes, 5);
  file.write("other");
  EXPECT_NE(file.status()->version, version);
  try {
    source->read({0, 5}, bytes);
    ADD_FAILURE() << "another file is read";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file has been replaced while it was read"));
  }
  file.remove();
  EXPECT_THROW(source->fetch({0, 5}), base::InputError);
}

TEST(S3Store, WhatIsNotFinishedLeavesNothing) {
  const Location file = place() / "half";
  {
    const auto sink = file.create(0);
    const std::string bytes = some_bytes(size_t{20} << 20);
    sink->write(bytes.data(), bytes.size());
  }
  EXPECT_FALSE(file.is_file());
}

template <typename Failure>
std::string fault(const Location& location) {
  try {
    location.entries();
  } catch (const Failure& error) {
    return error.what();
  }
  return "";
}

TEST(S3Store, SaysWhoIsNotLetIn) {
  auto variables = environment();
  variables["AWS_SECRET_ACCESS_KEY"] += "x";
  EXPECT_THAT(fault<base::InputError>(place(variables)),
              testing::AllOf(HasSubstr("SignatureDoesNotMatch"), HasSubstr("check the credentials")));
}

TEST(S3Store, SaysThatThereIsNoSuchBucket) {
  EXPECT_THAT(fault<base::InputError>(locate("s3://none-such/x", s3_access_from(environment()))),
              testing::AllOf(HasSubstr("NoSuchBucket"), HasSubstr("name another")));
}

TEST(S3Store, SaysThatNobodyAnswers) {
  auto variables = environment();
  variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1";
  variables["AWS_MAX_ATTEMPTS"] = "2";
  EXPECT_THAT(fault<base::RunError>(place(variables)),
              testing::AllOf(HasSubstr("failed after 2 attempts"), HasSubstr("AWS_ENDPOINT_URL")));
}

}  // namespace
}  // namespace sluice::storage
