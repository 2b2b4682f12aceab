// A place for files, or a file in one: a path in the file system, or an object's name in a bucket
// (s3://bucket/name). A value, cheap to copy.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3_access.h"
#include "storage/store.h"

namespace sluice::storage {

class Location {
 public:
  Location() = default;
  Location(const std::filesystem::path& path);  // not explicit: every path is a location
  Location(std::shared_ptr<Store> store, std::string name);

  // The last part of the name: "step-4" for "runs/a/step-4".
  std::string filename() const;
  Location parent() const;
  Location operator/(std::string_view name) const;
  // A file beside this one: `name` + `suffix`.
  Location with_suffix(std::string_view suffix) const;

  // The text for people, and for locate().
  std::string string() const;
  // Whether it is in this machine's file system.
  bool is_path() const { return store_ == nullptr; }
  // REQUIRES: is_path().
  const std::filesystem::path& path() const { return path_; }

  std::vector<Entry> entries() const;
  std::optional<FileStatus> status() const;
  bool is_file() const { return status().has_value(); }
  std::unique_ptr<Source> open() const;
  std::unique_ptr<Sink> create(int64_t bytes) const;
  std::string read() const;
  void write(std::string_view bytes) const;
  void make_directory() const;
  void remove() const;
  void remove_tree() const;
  // Returns false if the store cannot rename. REQUIRES: `to` is in the same store.
  bool rename(const Location& to) const;
  int64_t moved_bytes() const;

 private:
  Store& store() const;
  std::string key() const;  // its name in the store

  std::filesystem::path path_;
  std::shared_ptr<Store> store_;  // null: the file system
  std::string name_;              // in the store
};

// Whether `text` is meant to name a bucket or an object.
bool is_s3(std::string_view text);

// Parses `text`: s3://BUCKET[/NAME] or a path. InputError if it is neither.
Location locate(const std::string& text, const S3Access& access);
// A locate() with its S3Access bound: modules that do not know the environment receive it to reach
// buckets.
using Locate = std::function<Location(const std::string& text)>;

// Whether both are the same place, even under different names.
bool same_place(const Location& a, const Location& b);

}  // namespace sluice::storage
