#include "ops/kept_bytes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/file.h"

namespace sluice::ops {
namespace {

namespace fs = std::filesystem;

class KeptBytesOnDisk : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  fs::path only_file() const { return fs::directory_iterator(folder_)->path(); }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("kept_bytes-" + std::to_string(::getpid()));
  const std::string bytes_ = std::string("plan\n\0with zeros", 16);
};

TEST_F(KeptBytesOnDisk, ComeBackForTheirKeyAlone) {
  const KeptBytes kept(folder_);
  EXPECT_EQ(kept.read("64 x 512"), std::nullopt);
  kept.write("64 x 512", bytes_);
  EXPECT_EQ(kept.read("64 x 512"), bytes_);
  EXPECT_EQ(kept.read("16 x 512"), std::nullopt);
}

TEST_F(KeptBytesOnDisk, DamagedFilesAreAbsentAndWrittenAnew) {
  const KeptBytes kept(folder_);
  kept.write("key", bytes_);
  const std::string whole = base::read_file(only_file());
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole.substr(0, 3), std::string(),
                                     whole + "x", "other" + whole.substr(3)}) {
    base::write_file_atomically(only_file(), damaged);
    EXPECT_EQ(kept.read("key"), std::nullopt) << damaged;
  }
  kept.write("key", bytes_);
  EXPECT_EQ(kept.read("key"), bytes_);
}

TEST_F(KeptBytesOnDisk, WhatCannotBeWrittenIsNotKept) {
  base::write_file_atomically(folder_, "a file where the folder would be");
  const KeptBytes kept(folder_);
  kept.write("key", bytes_);
  EXPECT_EQ(kept.read("key"), std::nullopt);
  const KeptBytes nowhere{fs::path()};
  nowhere.write("key", bytes_);
  EXPECT_EQ(nowhere.read("key"), std::nullopt);
}

}  // namespace
}  // namespace sluice::ops
