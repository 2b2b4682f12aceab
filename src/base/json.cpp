#include "base/json.h"

#include <algorithm>

#include "base/file.h"

namespace sluice::base {

namespace {

constexpr size_t kExcerptSize = 200;

// Cut between characters.
std::string beginning(std::string_view whole) {
  if (whole.size() <= kExcerptSize) return std::string(whole);
  size_t size = kExcerptSize;
  while (size > 0 && (static_cast<unsigned char>(whole[size]) & 0xC0) == 0x80) --size;
  return text(whole.substr(0, size), "…");
}

// How many lists and objects stand inside one another.
int64_t depth_of(std::string_view bytes) {
  int64_t depth = 0;
  int64_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      continue;
    }
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

}  // namespace

Json parse_json(const std::string& bytes, const std::string& name) {
  const int64_t depth = depth_of(bytes);
  if (depth > kDeepestJson) {
    throw InputError(
        text(name, ": ", depth, " values stand inside one another, at most ", kDeepestJson, " may"));
  }
  try {
    return Json::parse(bytes);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(text(name, " is not JSON: ", beginning(error.what())));
  }
}

std::string excerpt(const Json& value) { return beginning(value.dump()); }

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, value.dump(2) + "\n");
}

void require_schema(const Json& value, const std::string& schema, const std::string& name) {
  const auto found = get_or<std::string>(value, "schema", "", name);
  if (found != schema) {
    throw InputError(text(name, ": schema is '", found, "', expected '", schema, "'"));
  }
}

}  // namespace sluice::base
