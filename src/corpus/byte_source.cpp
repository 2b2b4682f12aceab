#include "corpus/byte_source.h"

#include <bzlib.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// The libraries count in 32 bits.
template <typename Count>
Count clipped(size_t size) {
  return static_cast<Count>(std::min<size_t>(size, std::numeric_limits<int32_t>::max()));
}

// For streams of zlib and bzip2: pointers and counts into the caller's buffers, the latter not const.
template <typename Stream>
void point_to(Stream& stream, std::string_view input, char* out, size_t size) {
  using Byte = std::remove_reference_t<decltype(*stream.next_out)>;
  stream.next_in = reinterpret_cast<Byte*>(const_cast<char*>(input.data()));
  stream.avail_in = clipped<decltype(stream.avail_in)>(input.size());
  stream.next_out = reinterpret_cast<Byte*>(out);
  stream.avail_out = clipped<decltype(stream.avail_out)>(size);
}

class Gzip final : public Decompressor {
 public:
  Gzip() {
    constexpr int kGzipHeader = 16;
    SLUICE_ASSERT(::inflateInit2(&stream_, kGzipHeader + MAX_WBITS) == Z_OK, "zlib");
  }
  ~Gzip() override { ::inflateEnd(&stream_); }

  size_t run(std::string_view& input, char* out, size_t size) override {
    if (ended_) ::inflateReset(&stream_);
    point_to(stream_, input, out, size);
    const auto offered = stream_.avail_in;
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      throw InputError(text("gzip: ", stream_.msg == nullptr ? "damaged" : stream_.msg));
    }
    ended_ = result == Z_STREAM_END;
    input.remove_prefix(offered - stream_.avail_in);
    return static_cast<size_t>(reinterpret_cast<char*>(stream_.next_out) - out);
  }
  bool at_end() const override { return ended_; }

 private:
  z_stream stream_{};
  bool ended_ = false;
};

class Bzip2 final : public Decompressor {
 public:
  Bzip2() { begin(); }
  ~Bzip2() override { ::BZ2_bzDecompressEnd(&stream_); }

  size_t run(std::string_view& input, char* out, size_t size) override {
    if (ended_) {
      ::BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    point_to(stream_, input, out, size);
    const auto offered = stream_.avail_in;
    const int result = ::BZ2_bzDecompress(&stream_);
    if (result != BZ_OK && result != BZ_STREAM_END) throw InputError(text("bzip2: error ", result));
    ended_ = result == BZ_STREAM_END;
    input.remove_prefix(offered - stream_.avail_in);
    return static_cast<size_t>(stream_.next_out - out);
  }
  bool at_end() const override { return ended_; }

 private:
  void begin() {
    stream_ = {};
    SLUICE_ASSERT(::BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK, "bzip2");
    ended_ = false;
  }

  bz_stream stream_{};
  bool ended_ = false;
};

class Zstd final : public Decompressor {
 public:
  Zstd() {
    // Archives are written with --long=31; a window that large takes 2 GiB.
    ::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                             ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

  size_t run(std::string_view& input, char* out, size_t size) override {
    ZSTD_inBuffer from{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out, size, 0};
    const size_t result = ::ZSTD_decompressStream(stream_.get(), &to, &from);
    if (::ZSTD_isError(result) != 0) throw InputError(text("zstd: ", ::ZSTD_getErrorName(result)));
    ended_ = result == 0;
    input.remove_prefix(from.pos);
    return to.pos;
  }
  bool at_end() const override { return ended_; }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_{::ZSTD_createDStream()};
  bool ended_ = false;
};

std::unique_ptr<Decompressor> decompressor_of(std::string_view bytes) {
  if (bytes.starts_with("\x1F\x8B")) return std::make_unique<Gzip>();
  // zstd frames, and skippable frames, with which pzstd's files begin
  const bool skippable = bytes.size() >= 4 && (static_cast<uint8_t>(bytes[0]) & 0xF0) == 0x50 &&
                         bytes.substr(1).starts_with("\x2A\x4D\x18");
  if (bytes.starts_with("\x28\xB5\x2F\xFD") || skippable) return std::make_unique<Zstd>();
  if (bytes.starts_with("BZh")) return std::make_unique<Bzip2>();
  return nullptr;
}

}  // namespace

ByteSource::ByteSource(const std::filesystem::path& path)
    : path_(path),
      file_(path),
      rest_(reinterpret_cast<const char*>(file_.data()), file_.size()),
      decompressor_(decompressor_of(rest_)) {}

std::string_view ByteSource::next() {
  if (!decompressor_) return std::exchange(rest_, {});
  piece_.resize(kReadBytes);
  size_t written = 0;
  try {
    while (written < piece_.size()) {
      if (decompressor_->at_end()) rest_.remove_prefix(std::min(rest_.find_first_not_of('\0'), rest_.size()));
      if (rest_.empty() && decompressor_->at_end()) break;
      const size_t before = rest_.size();
      const size_t more = decompressor_->run(rest_, piece_.data() + written, piece_.size() - written);
      written += more;
      if (more == 0 && rest_.size() == before) throw InputError("the file is cut off");
    }
  } catch (const InputError& error) {
    throw InputError(text(path_.string(), " cannot be decompressed: ", error.what(), ": fetch it again"));
  }
  return std::string_view(piece_).substr(0, written);
}

const char* other_format(std::string_view bytes) {
  constexpr size_t kTarAt = 257;
  using namespace std::string_view_literals;
  struct Format {
    std::string_view magic;
    const char* what;
  };
  constexpr Format kFormats[] = {{"\xFD"
                                  "7zXZ\0"sv,
                                  "xz: decompress it first, as with xz -d"},
                                 {"\x04\x22\x4D\x18"sv, "lz4: decompress it first, as with lz4 -d"},
                                 {"PK\x03\x04"sv, "a zip archive: unpack it first"},
                                 {"7z\xBC\xAF\x27\x1C"sv, "a 7z archive: unpack it first"},
                                 {"PAR1"sv, "a Parquet table: give its name the ending .parquet"},
                                 {"ARROW1\0"sv, "an Arrow table: give its name the ending .arrow"}};
  for (const auto& [magic, what] : kFormats) {
    if (bytes.starts_with(magic)) return what;
  }
  const bool tar = bytes.size() > kTarAt && bytes.substr(kTarAt).starts_with("ustar");
  return tar ? "a tar archive: unpack it first" : nullptr;
}

std::filesystem::path without_compression_suffix(const std::filesystem::path& path) {
  constexpr std::array kSuffixes = {".gz", ".zst", ".bz2"};
  const std::string suffix = path.extension().string();
  const bool known = std::find(kSuffixes.begin(), kSuffixes.end(), suffix) != kSuffixes.end();
  return known ? std::filesystem::path(path).replace_extension() : path;
}

}  // namespace sluice::corpus
