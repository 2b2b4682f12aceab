// Files by name in a store: a directory of a file system (storage/directory.h) or a bucket
// (storage/s3_store.h). A file is complete under its name, or does not exist.
//
// All functions are thread-safe. If a place cannot be reached, read or written, they throw base::RunError
// naming the file and the reason, or base::InputError if the user can correct it.
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

// A file opened for reading in parts. In a bucket it stays the object that was opened: base::InputError if
// that has been replaced or removed since.
class Source {
 public:
  virtual ~Source() = default;

  virtual int64_t size() const = 0;
  // The file's bytes, at a fixed address. Only bytes that were fetched and not yet released are valid.
  virtual const std::byte* data() const = 0;
  // Returns once the bytes are there, or being read from a disk. Several threads may fetch disjoint parts.
  virtual void fetch(base::Interval bytes) = 0;
  // Reads the bytes into `out`, without keeping them here. Callable from any thread.
  virtual void read(base::Interval bytes, std::byte* out) = 0;
  // Gives up the bytes for now. Returns whether they must be fetched again before they are read.
  virtual bool release(base::Interval bytes) = 0;
  // The recommended number of threads that fetch at once.
  virtual int readers() const = 0;
};

// A file that appears under its name only when complete. Without finish() nothing is left behind. Only one
// thread may use it.
class Sink {
 public:
  virtual ~Sink() = default;

  virtual void write(const void* data, size_t size) = 0;
  // The file is durable when this returns.
  virtual void finish() = 0;
};

struct Entry {
  std::string name;  // relative to its directory
  bool is_directory = false;
  int64_t bytes = 0;    // for files in a bucket; otherwise 0
  std::string version;  // FileStatus::version for files in a bucket; otherwise ""
};

struct FileStatus {
  int64_t bytes = 0;
  std::chrono::system_clock::time_point written;  // by the clock of the store
  std::string version;                            // in a bucket: differs once the file has changed
};

// Names have parts separated by '/'; "" is the store's own directory.
class Store {
 public:
  virtual ~Store() = default;

  // The text for people, and for locate() (storage/location.h): "runs/a/step-4", "s3://bucket/a/step-4".
  virtual std::string text(const std::string& name) const = 0;

  // The entries of a directory, sorted by name; empty if there is no such directory.
  virtual std::vector<Entry> entries(const std::string& directory) = 0;
  // The status of a file; nullopt if there is no such file.
  virtual std::optional<FileStatus> status(const std::string& file) = 0;

  // base::InputError if there is no such file.
  virtual std::unique_ptr<Source> open(const std::string& file) = 0;
  // `bytes` is the expected size.
  virtual std::unique_ptr<Sink> create(const std::string& file, int64_t bytes) = 0;

  // Creates a directory and its parents; no effect where directories do not exist by themselves.
  virtual void make_directory(const std::string& directory) = 0;
  // Removing a file that does not exist is no error.
  virtual void remove(const std::string& file) = 0;
  virtual void remove_tree(const std::string& directory) = 0;
  // Renames all of it atomically. Returns false, without any effect, if the store cannot do that.
  virtual bool rename(const std::string& from, const std::string& to) = 0;

  // Bytes of files sent and received over a network so far: a sign of life for waits on a slow network.
  virtual int64_t moved_bytes() const { return 0; }
};

}  // namespace sluice::storage
