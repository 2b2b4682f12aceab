// A place for files or a file in it: a path of the file system or, as s3://bucket/name, an object's name in a
// bucket. A value, cheap to copy.
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

  // "step-4" of "runs/a/step-4".
  std::string filename() const;
  Location parent() const;
  Location operator/(std::string_view name) const;
  // Another file beside it: `name` + `suffix`.
  Location with_suffix(std::string_view suffix) const;

  // For people, and for locate().
  std::string string() const;
  // In the file system of this machine.
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
  // False where nothing can be renamed. REQUIRES: in the same store.
  bool rename(const Location& to) const;
  int64_t moved_bytes() const;

 private:
  Store& store() const;
  std::string key() const;  // what the store calls it

  std::filesystem::path path_;
  std::shared_ptr<Store> store_;  // null: the file system
  std::string name_;              // in it
};

// Whether `text` names something in a bucket.
bool is_s3(std::string_view text);

// What `text` names: s3://BUCKET[/NAME], else a path. InputError when it is neither.
Location locate(const std::string& text, const S3Access& access);
// The same with an access that is chosen already: how modules that know of no environment are told of
// buckets.
using Locate = std::function<Location(const std::string& text)>;

// Whether both are the same place, by whatever name.
bool same_place(const Location& a, const Location& b);

}  // namespace sluice::storage
