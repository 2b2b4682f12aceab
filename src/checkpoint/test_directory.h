// A directory for one test, removed at its end; and the message of a failing call.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace sluice::checkpoint {

class TestDirectory {
 public:
  TestDirectory() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            (std::string("sluice-") + test->name() + "-" + std::to_string(::getpid()));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The message of the Failure that `call` throws; "" when it throws nothing.
template <typename Failure, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  return "";
}

}  // namespace sluice::checkpoint
