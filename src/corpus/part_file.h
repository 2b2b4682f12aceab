// part.json beside the corpus of a part of a build: of what it is a part, and what it counted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "corpus/build.h"

namespace sluice::corpus {

inline constexpr const char* kPartFile = "part.json";

// `what`: equal for all parts of a build, and for them only.
base::Json part_json(const BuildResult& result, const std::string& what);

struct PartFile {
  BuildResult result;  // without prefix, lengths and inputs
  std::string what;
  bool leaves_out_duplicates = false;
};

// Of the corpus with this prefix; nothing where it is no part. InputError when it is damaged.
std::optional<PartFile> read_part_file(const std::filesystem::path& prefix);

}  // namespace sluice::corpus
