// Bytes that were expensive to make, kept on disk for later runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::ops {

// One file a key. Nothing here fails: a file that is damaged, of another key or unreadable is absent, and
// what cannot be written is not kept. Files may be deleted at any time. Safe for several processes.
class KeptBytes {
 public:
  // An empty folder keeps nothing.
  explicit KeptBytes(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view bytes) const;

 private:
  std::filesystem::path path_of(std::string_view key) const;
  std::filesystem::path folder_;
};

}  // namespace sluice::ops
