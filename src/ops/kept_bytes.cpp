#include "ops/kept_bytes.h"

#include <exception>

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::ops {
namespace {

// A file begins with its key and the hash of its bytes, each on a line.
std::string head_of(std::string_view key, std::string_view bytes) {
  return base::text(key, "\n", base::hash_text(base::hash_bytes(bytes)), "\n");
}

}  // namespace

std::filesystem::path KeptBytes::path_of(std::string_view key) const {
  return folder_ / base::hash_text(base::hash_bytes(key));
}

std::optional<std::string> KeptBytes::read(std::string_view key) const {
  std::error_code ignored;
  if (folder_.empty() || !std::filesystem::is_regular_file(path_of(key), ignored)) return std::nullopt;
  try {
    const std::string file = base::read_file(path_of(key));
    const size_t end_of_key = file.find('\n'), end_of_hash = file.find('\n', end_of_key + 1);
    if (end_of_key == std::string::npos || end_of_hash == std::string::npos) return std::nullopt;
    std::string bytes = file.substr(end_of_hash + 1);
    if (std::string_view(file).substr(0, end_of_hash + 1) != head_of(key, bytes)) return std::nullopt;
    return bytes;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void KeptBytes::write(std::string_view key, std::string_view bytes) const {
  if (folder_.empty()) return;
  try {
    base::make_directories(folder_);
    base::write_file_atomically(path_of(key), base::text(head_of(key, bytes), bytes));
  } catch (const std::exception&) {  // another run makes them again
  }
}

}  // namespace sluice::ops
