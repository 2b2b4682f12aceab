// A file's bytes in order. What gzip, zstd or bzip2 wrote, known by its first bytes and not by its name,
// comes decompressed, a piece at a time: any number of streams laid end to end, with zstd's skippable frames
// before, between and behind them, and with zero bytes behind each, as tapes and tar pad them.
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
  // Decompresses from the front of `input`, removing what it used, into the `size` bytes at `out`; returns
  // how many it wrote. At the end of one of several streams laid end to end it goes on with the next one.
  // InputError when the bytes are not the format's.
  virtual size_t run(std::string_view& input, char* out, size_t size) = 0;
  // Whether the last stream that was begun has ended.
  virtual bool at_end() const = 0;
};

class ByteSource {
 public:
  // InputError when the file cannot be read.
  explicit ByteSource(const std::filesystem::path& path);

  bool compressed() const { return decompressor_ != nullptr; }
  // The next bytes, valid until the next call; empty at the end. A file that is not compressed comes whole.
  // InputError naming the file when it is damaged or cut off.
  std::string_view next();
  // Of the file, as it is on disk, so far.
  int64_t read_bytes() const { return static_cast<int64_t>(file_.size() - rest_.size()); }

 private:
  std::filesystem::path path_;
  base::MappedFile file_;
  std::string_view rest_;  // of the file
  std::unique_ptr<Decompressor> decompressor_;
  std::string piece_;
};

// Of a file's first bytes, decompressed: "an xz archive: decompress it first", for formats that are not read
// as documents; else null.
const char* other_format(std::string_view bytes);

// `path` without .gz, .zst or .bz2 at its end.
std::filesystem::path without_compression_suffix(const std::filesystem::path& path);

}  // namespace sluice::corpus
