#include "corpus/byte_source.h"

#include <bzlib.h>
#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "corpus/documents.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

std::string bzip2(const std::string& bytes) {
  std::string out(bytes.size() + bytes.size() / 100 + 600, '\0');
  auto size = static_cast<unsigned>(out.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(bytes.data()),
                                     static_cast<unsigned>(bytes.size()), 5, 0, 0),
            BZ_OK);
  out.resize(size);
  return out;
}

const std::pair<const char*, std::function<std::string(const std::string&)>> kFormats[] = {
    {".gz", gzip}, {".zst", zstd}, {".bz2", bzip2}};

void spit(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string content_of(const std::filesystem::path& path) {
  ByteSource source(path);
  std::string all;
  for (std::string_view bytes = source.next(); !bytes.empty(); bytes = source.next()) all += bytes;
  return all;
}

// Some MiB that compress by half.
std::string many_bytes() {
  base::Rng rng(3);
  std::string bytes;
  while (bytes.size() < (size_t{5} << 20) / 2) bytes += static_cast<char>('a' + rng.below(16));
  return bytes;
}

TEST(ByteSource, GivesWhatWasCompressedInPieces) {
  const TemporaryDirectory directory;
  const std::string bytes = many_bytes();
  for (const auto& [suffix, compress] : kFormats) {
    // Two streams, as pigz and pbzip2 write them, under a name that says nothing.
    spit(directory / "data", compress(bytes) + compress("end"));
    EXPECT_TRUE(content_of(directory / "data") == bytes + "end") << suffix;
  }
  spit(directory / "data", bytes);
  EXPECT_TRUE(content_of(directory / "data") == bytes);
  spit(directory / "data", "");
  EXPECT_EQ(content_of(directory / "data"), "");
}

TEST(ByteSource, PaddingBehindStreamsIsPassedOver) {
  const TemporaryDirectory directory;
  const std::string zeros(3000, '\0');
  for (const auto& [suffix, compress] : kFormats) {
    spit(directory / "data", compress("one") + zeros + compress("two") + zeros);
    EXPECT_EQ(content_of(directory / "data"), "onetwo") << suffix;
    spit(directory / "data", compress("one") + zeros + "garbage");
    EXPECT_THROW(content_of(directory / "data"), base::InputError) << suffix;
  }
}

TEST(ByteSource, SkippableFramesOfZstd) {
  const TemporaryDirectory directory;
  const std::string skippable = std::string("\x5A\x2A\x4D\x18\x04\0\0\0", 8) + "size";
  spit(directory / "data", skippable + zstd("one") + skippable + zstd("two") + skippable);
  EXPECT_EQ(content_of(directory / "data"), "onetwo");
  spit(directory / "data", skippable);
  EXPECT_EQ(content_of(directory / "data"), "");
}

// zstd --long=30.
TEST(ByteSource, LargeWindowsOfZstd) {
  const TemporaryDirectory directory;
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  const std::string bytes = many_bytes();
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
  while (from.pos < from.size) ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue);
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0);
  ZSTD_freeCCtx(context);
  spit(directory / "data", out.substr(0, to.pos));
  EXPECT_TRUE(content_of(directory / "data") == bytes);
}

TEST(ByteSource, DamagedAndCutFilesAreNamed) {
  const TemporaryDirectory directory;
  for (const auto& [suffix, compress] : kFormats) {
    const std::string good = compress(many_bytes());
    std::string flipped = good;
    flipped[flipped.size() / 2] ^= 1;
    for (const std::string& bad : {good.substr(0, good.size() / 2), good.substr(0, 12), flipped}) {
      spit(directory / "data", bad);
      std::string fault;
      try {
        if (content_of(directory / "data") != many_bytes()) fault = "other bytes";
      } catch (const base::InputError& error) {
        fault = error.what();
      }
      // zstd's own default writes no checksum: a flipped bit may decode to other bytes.
      if (suffix == std::string(".zst") && fault == "other bytes") continue;
      EXPECT_THAT(fault, HasSubstr("data cannot be decompressed: ")) << suffix;
    }
  }
}

std::vector<std::string> documents_of(const std::filesystem::path& path, DocumentCounts& counts) {
  std::vector<std::string> documents;
  for (const InputFile& file : find_inputs({path}, {}).files) {
    for_each_document(file, {}, counts, [&](std::string_view whole) { documents.emplace_back(whole); });
  }
  return documents;
}

TEST(Documents, CompressedFilesInDirectoriesAreRead) {
  const TemporaryDirectory directory;
  for (const auto& [suffix, compress] : kFormats) {
    spit(directory / (std::string("a.txt") + suffix), compress("a text"));
    spit(directory / (std::string("b.jsonl") + suffix), compress("{\"text\": \"b\"}\n{\"text\": \"c\"}\n"));
    spit(directory / (std::string("d.tar") + suffix), compress(std::string("x\0y", 3)));
  }
  spit(directory / "e.rst", "of no wanted ending");
  DocumentCounts counts;
  EXPECT_THAT(documents_of(directory.path(), counts),
              ElementsAre("a text", "a text", "a text", "b", "c", "b", "c", "b", "c"));
  EXPECT_THAT(
      find_inputs({directory.path()}, {}).other_endings,
      ElementsAre(std::pair(".bz2", 1), std::pair(".gz", 1), std::pair(".rst", 1), std::pair(".zst", 1)));
}

TEST(Documents, JsonIsFoundUnderAnyName) {
  const TemporaryDirectory directory;
  const auto documents = [&](const std::string& name, const std::string& bytes) {
    spit(directory / name, bytes);
    DocumentCounts counts;
    return documents_of(directory / name, counts);
  };
  const std::string lines = "{\"text\": \"a\\\\\\\"\"}\n{\"id\": {\"x\": [1]}, \"text\": \"b}\"}\n";
  const std::string list = "[\n  {\"text\": \"a\\\\\\\"\"},\n  {\n    \"text\": \"b}\"\n  }\n]\n";
  for (const char* name : {"data.json", "data.jsonl", "data.ndjson", "data.txt", "data"}) {
    EXPECT_THAT(documents(name, lines), ElementsAre("a\\\"", "b}")) << name;
  }
  for (const char* name : {"data.json", "data.jsonl", "data.txt", "data"}) {
    EXPECT_THAT(documents(name, list), ElementsAre("a\\\"", "b}")) << name;
  }
  EXPECT_THAT(documents("data.json", "{\n\"text\": \"one\"\n}"), ElementsAre("one"));
  // Text stays text, also where it looks like JSON without documents.
  EXPECT_THAT(documents("data.txt", "{\"id\": 1}\n{}\n"), ElementsAre("{\"id\": 1}\n{}\n"));
  for (const char* text : {"[1]\n", "[{\"id\": 1}]", "[{x", "[", " "}) {
    EXPECT_THAT(documents("data.txt", text), ElementsAre(text));
  }
}

}  // namespace
}  // namespace sluice::corpus
