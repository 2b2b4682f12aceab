// Files by name, wherever they lie: in a directory of a file system (storage/directory.h) or in a bucket
// (storage/s3_store.h). A file is whole under its name or not there at all.
//
// All functions may be called by several threads at once. base::RunError naming the file and the reason when
// a place cannot be reached, read or written; base::InputError where that is the user's to set right.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"

namespace sluice::storage {

// A file opened for reading by parts. In a bucket it stays the one that was opened: base::InputError where
// it has been replaced or removed since.
class Source {
 public:
  virtual ~Source() = default;

  virtual int64_t size() const = 0;
  // The file's bytes: those that have been fetched, until they are released. They stay at this address.
  virtual const std::byte* data() const = 0;
  // Returns when the bytes are there, or on their way from a disk. Several threads may fetch disjoint parts.
  virtual void fetch(base::Interval bytes) = 0;
  // Writes the bytes to `out`, without keeping them here. Any thread.
  virtual void read(base::Interval bytes, std::byte* out) = 0;
  // The bytes are not needed for now. Whether they have to be fetched again before they are read again.
  virtual bool release(base::Interval bytes) = 0;
  // How many threads should fetch at once.
  virtual int readers() const = 0;
};

// A file that appears under its name only when complete. Without finish() nothing is left behind. One
// thread's.
class Sink {
 public:
  virtual ~Sink() = default;

  virtual void write(const void* data, size_t size) = 0;
  // Durable when this returns.
  virtual void finish() = 0;
};

struct Entry {
  std::string name;  // without what it lies in
  bool is_directory = false;
  int64_t bytes = 0;    // of a file in a bucket; elsewhere 0
  std::string version;  // of a file in a bucket, as FileStatus's; elsewhere ""
};

struct FileStatus {
  int64_t bytes = 0;
  std::chrono::system_clock::time_point written;  // by the place's clock
  std::string version;                            // in a bucket: another one where the file has changed
};

// Names are separated by '/'; "" is the store's own directory.
class Store {
 public:
  virtual ~Store() = default;

  // For people, and for locate() (storage/location.h): "runs/a/step-4", "s3://bucket/a/step-4".
  virtual std::string text(const std::string& name) const = 0;

  // What lies in a directory, sorted by name; nothing when there is none of that name.
  virtual std::vector<Entry> entries(const std::string& directory) = 0;
  // Of a file; nothing when there is none of that name.
  virtual std::optional<FileStatus> status(const std::string& file) = 0;

  // base::InputError when there is no such file.
  virtual std::unique_ptr<Source> open(const std::string& file) = 0;
  // `bytes`: how long it will be, about.
  virtual std::unique_ptr<Sink> create(const std::string& file, int64_t bytes) = 0;

  // Where directories exist by themselves, makes one and its parents.
  virtual void make_directory(const std::string& directory) = 0;
  // What is not there is removed already.
  virtual void remove(const std::string& file) = 0;
  virtual void remove_tree(const std::string& directory) = 0;
  // At once, all of it. False, and nothing happens, where that cannot be done.
  virtual bool rename(const std::string& from, const std::string& to) = 0;

  // Bytes of files that have come or gone over a network so far: a sign of life of who waits for a slow one.
  virtual int64_t moved_bytes() const { return 0; }
};

}  // namespace sluice::storage
