// The file system as a store: names are paths.
#pragma once

#include "storage/store.h"

namespace sluice::storage {

// Sources are mapped files, sinks are base::AtomicFile.
class FileSystem : public Store {
 public:
  std::string text(const std::string& name) const override { return name; }
  std::vector<Entry> entries(const std::string& directory) override;
  std::optional<FileStatus> status(const std::string& file) override;
  std::unique_ptr<Source> open(const std::string& file) override;
  std::unique_ptr<Sink> create(const std::string& file, int64_t bytes) override;
  void make_directory(const std::string& directory) override;
  void remove(const std::string& file) override;
  void remove_tree(const std::string& directory) override;
  bool rename(const std::string& from, const std::string& to) override;
};

}  // namespace sluice::storage
