// Texts that people bring: JSON and TOML by themselves, and files of documents.
#include <bzlib.h>
#include <zlib.h>
#include <zstd.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/toml.h"
#include "corpus/documents.h"
#include "corpus/token_texts.h"
#include "inputs.h"
#include "mutate.h"
#include "program.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;
using base::Json;
using base::JsonDialect;
using base::Rng;
using base::text;

const std::string kJson = R"({"text": "one \"two\" \\ \/ \b\f\n\r\t \u00e9 \ud83d\ude00 \u2028 é😀",
 "numbers": [0, -0, 1, -17, 2.5, 1e3, -1.25E-7, 9223372036854775807, 18446744073709551615, 1e400, 123456789012345678901],
 "words": [true, false, null], "nested": {"a": {"b": [[], {}, [[1]], {"c": {"d": ""}}]}, "a": 2, "": 3},
 "many": {"k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 4, "k5": 5, "k6": 6, "k7": 7, "k8": 8, "k9": 9, "k10": 0, "k11": 1,
 "k12": 2, "k13": 3, "k14": 4, "k15": 5, "k16": 6, "k17": 7, "k3": "again"}, "missing": [NaN, Infinity, -Infinity]}
)";

const std::string kTokenizer =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "é": 3}, "merges": ["a b"]},
 "added_tokens": [{"id": 4, "content": "<e>", "special": true}, {"id": 5, "content": "<pad>"}]})";

const std::string kToml = R"(# a comment
title = "a \"b\" \\ \u00e9 \t"
[owner]
name = 'literal \ '
born = 1979-05-27T07:32:00-08:00
"quoted.key" = [1, 0x1F, 0o17, 0b11, 1_000]
[a.b.c]
many = """
two
lines \
   joined"""
raw = '''x'y'''
float = [1.5, 6.02e23, -0.0, inf, nan]
inline = {x = 1, y = {z = [true, false]}}
[[list]]
v = 1
[[list]]
v = 2
[list.sub]
w = "é😀"
)";

// Deeper texts are refused, and the library takes what stands behind a NUL for nothing.
bool comparable(const std::string& bytes) {
  return bytes.find('\0') == bytes.npos &&
         std::ranges::count(bytes, '[') + std::ranges::count(bytes, '{') < base::kDeepestJson;
}

void read_json(const std::string& bytes) {
  Json strict, python;
  const auto fault = base::read_json_text(bytes, JsonDialect::kStrict, strict);
  const auto other = base::read_json_text(bytes, JsonDialect::kPython, python);
  require(fault.has_value() || !other.has_value(), "Python reads less than the standard has");
  if (fault) {
    const auto lines = 1 + std::ranges::count(bytes, '\n');
    require(fault->line >= 1 && fault->line <= lines && fault->column >= 1 && !fault->what.empty(),
            "a fault has no place");
  } else {
    require(strict == python, "Python reads a text of the standard otherwise");
    Json again;
    require(!base::read_json_text(base::json_text(strict), JsonDialect::kStrict, again) && again == strict,
            "a text changes when it is read again");
  }
  if (!comparable(bytes)) return;
  require(Json::accept(bytes) == !fault,
          text("the library judges otherwise: ", fault ? fault->what : "accepted"));
  if (!fault) require(Json::parse(bytes) == strict, "the library reads it otherwise");
  if (fault) throw base::InputError(described(*fault, "case"));
}

bool equal(const toml::table& a, const toml::table& b) {
  return base::toml_text(a) == base::toml_text(b);  // NaN is not equal to itself
}

void read_toml(const std::string& bytes) {
  const toml::table table = base::parse_toml(bytes, "case.toml");
  // toml++ negates what it prints, and the least integer has no negative.
  if (bytes.find("9223372036854775808") != bytes.npos || bytes.find("0x8000000000000000") != bytes.npos)
    return;
  require(equal(base::parse_toml(base::toml_text(table), "again"), table),
          "a table changes when it is read again");
}

// Runs `read`; what it refuses must name the place.
void require_place(const std::string& place, const std::function<void()>& read) {
  try {
    read();
  } catch (const base::InputError& error) {
    require(std::string(error.what()).find(place) != std::string::npos,
            text("no '", place, "' in: ", error.what()));
    throw;
  }
}

// What is left out is named by its file and a place in it, and nothing is lost without a count.
void read_documents(const fs::path& path) {
  require_place(path.string(), [&] {
    corpus::DocumentCounts counts;
    int64_t visited = 0;
    corpus::for_each_document({.path = path}, {}, counts, [&](std::string_view) { ++visited; });
    require(visited == counts.documents, "documents are counted otherwise than visited");
    for (const std::string& refusal : counts.refused.first) {
      const std::string place = path.string() + ":";
      require(refusal.starts_with(place) && refusal.size() > place.size() &&
                  std::isdigit(refusal[place.size()]) != 0,
              text("a refusal names no line: ", refusal));
    }
    require(counts.refused.first.size() == std::min<size_t>(3, static_cast<size_t>(counts.refused.count)),
            "refusals are counted otherwise than kept");
  });
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  require(deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, "gzip");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "gzip");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string bzip2(std::string bytes) {
  std::string out(bytes.size() + 1000, '\0');
  auto size = static_cast<unsigned>(out.size());
  require(BZ2_bzBuffToBuffCompress(out.data(), &size, bytes.data(), static_cast<unsigned>(bytes.size()), 1, 0,
                                   0) == BZ_OK,
          "bzip2");
  out.resize(size);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return std::string("\x50\x2A\x4D\x18\x04\0\0\0size", 12) + out;
}

std::vector<std::pair<std::string, std::string>> document_files() {
  std::string lines, elements, pretty;
  for (int i = 0; i < 40; ++i) {
    const std::string object = text("{\"id\": ", i, ", \"text\": \"document ", i * i,
                                    " é \\u00e9 \\\"q\\\"\", \"meta\": {\"a\": [", i, ", NaN]}}");
    lines += object + (i % 7 == 0 ? "\r\n" : "\n");
    elements += (i == 0 ? "[\n" : ",\n") + object;
    pretty += text("{\n  \"id\": ", i, ",\n  \"text\": \"document\",\n  \"more\": [\n{}\n]\n}\n");
  }
  const std::string padding(700, '\0');
  return {{"lines.jsonl", "\xEF\xBB\xBF" + lines},
          {"list.json", elements + "]\n"},
          {"pretty.json", pretty},
          {"plain.txt", "one\ntwo é\r\n\r\nthree 😀\n"},
          {"noted", lines},
          {"lines.jsonl.gz", gzip(lines) + padding + gzip(lines) + padding},
          {"lines.jsonl.bz2", bzip2(lines) + bzip2(lines)},
          {"lines.jsonl.zst", zstd(lines) + zstd(lines) + padding},
          {"plain.txt.gz", gzip("a text\nof lines\n")}};
}

}  // namespace

std::vector<Input> reader_inputs(const fs::path& scratch) {
  const fs::path folder = scratch / "documents";
  fs::create_directories(folder);
  std::vector<Input> inputs = {
      {"JSON", [](Rng& rng) { read_json(damage(kJson, rng)); }},
      {"JSON of the standard",
       [](Rng& rng) {
         Json sound;
         require(!base::read_json_text(kJson, JsonDialect::kPython, sound), "the sound JSON is none");
         sound.erase("missing");
         sound["numbers"].erase(9);
         read_json(damage(base::json_text(sound, 1), rng));
       }},
      {"tokenizer.json",
       [](Rng& rng) {
         require_place("tokenizer.json",
                       [&] { corpus::token_texts(damage(kTokenizer, rng), "tokenizer.json"); });
       }},
      {"TOML", [](Rng& rng) { require_place("case.toml:", [&] { read_toml(damage(kToml, rng)); }); }}};
  for (const auto& [name, bytes] : document_files()) {
    base::write_file_atomically(folder / name, bytes);
    inputs.push_back({name, damaged_file(folder / name, read_documents)});
  }
  return inputs;
}

}  // namespace sluice::fuzz
