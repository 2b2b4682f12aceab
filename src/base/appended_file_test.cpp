#include "base/appended_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / text("sluice-appended-", ::getpid());
  fs::path file = path / "run" / "lines";

  Folder() { fs::create_directories(file.parent_path()); }
  ~Folder() { fs::remove_all(path); }
};

TEST(AppendedFile, GoesOnWithWhatIsThere) {
  const Folder folder;
  write_file_atomically(folder.file, "one\n");
  AppendedFile file(folder.file);
  file.append("two\n");
  EXPECT_EQ(read_file(folder.file), "one\ntwo\n");
  EXPECT_FALSE(file.take_restored());
}

TEST(AppendedFile, ADeletedFileComesBackWithAllItsLines) {
  const Folder folder;
  AppendedFile file(folder.file);
  file.append("one\n");
  fs::remove(folder.file);
  file.append("two\n");
  EXPECT_EQ(read_file(folder.file), "one\ntwo\n");
  EXPECT_TRUE(file.take_restored());
  EXPECT_FALSE(file.take_restored());
}

TEST(AppendedFile, ADeletedFolderComesBack) {
  const Folder folder;
  AppendedFile file(folder.file);
  file.append("one\n");
  fs::remove_all(folder.file.parent_path());
  file.append("two\n");
  EXPECT_EQ(read_file(folder.file), "one\ntwo\n");
}

TEST(AppendedFile, WhatSomebodyPutInItsPlaceIsGoneOnWith) {
  const Folder folder;
  AppendedFile file(folder.file);
  file.append("one\n");
  write_file_atomically(folder.file, "another\n");
  file.append("two\n");
  EXPECT_EQ(read_file(folder.file), "another\ntwo\n");
  EXPECT_FALSE(file.take_restored());
}

}  // namespace
}  // namespace sluice::base
