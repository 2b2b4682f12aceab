// A file's bytes in order. Files of gzip, zstd or bzip2 are recognized by their first bytes, not by name, and
// are decompressed a piece at a time. They may hold several streams end to end, with zstd's skippable frames
// anywhere between streams and with zero bytes behind each stream, as tapes and tar pad them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/file.h"

namespace sluice::corpus {

// One stream of a compression format.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Decompresses from the front of `input`, removes the bytes it used, and writes up to `size` bytes to
  // `out`. Returns the number of bytes written. If another stream follows the end of one, decompression
  // continues there. InputError if the bytes are not in this format.
  virtual size_t run(std::string_view& input, char* out, size_t size) = 0;
  // Whether the stream that was begun last has ended.
  virtual bool at_end() const = 0;
};

class ByteSource {
 public:
  // InputError if the file cannot be read.
  explicit ByteSource(const std::filesystem::path& path);

  bool compressed() const { return decompressor_ != nullptr; }
  // The next bytes, valid until the next call; empty at the end. A file that is not compressed is returned
  // whole. InputError naming the file if it is damaged or cut off.
  std::string_view next();
  // Bytes read so far from the file as it is on disk, compressed or not.
  int64_t read_bytes() const { return static_cast<int64_t>(file_.size() - rest_.size()); }

 private:
  std::filesystem::path path_;
  base::MappedFile file_;
  std::string_view rest_;  // the file's unread bytes
  std::unique_ptr<Decompressor> decompressor_;
  std::string piece_;
};

// Describes archives that cannot be read as documents, by a file's first bytes (decompressed): "an xz
// archive: decompress it first". Null for everything else.
const char* other_format(std::string_view bytes);

// `path` without .gz, .zst or .bz2 at its end.
std::filesystem::path without_compression_suffix(const std::filesystem::path& path);

}  // namespace sluice::corpus
