#include "cli/torch/completions_file.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "corpus/json_objects.h"

namespace sluice::cli {
namespace {

using base::InputError;
using base::Json;
using base::text;

Prompt prompt_of(const std::string& line, int64_t index, const std::string& name) {
  Prompt prompt{.index = index, .name = name};
  const Json json = base::parse_python_json(line, name);
  if (json.is_object() && json.contains("ids")) {
    prompt.ids = base::require<std::vector<int64_t>>(json, "ids", name);
  } else if (json.is_object() && json.contains("messages")) {
    prompt.chat = line;
  } else if (json.is_object() && json.contains("prompt")) {
    prompt.text = base::require<std::string>(json, "prompt", name);
  } else {
    throw InputError(text(
        name,
        " is no prompt: write a JSON object with \"prompt\", a text, \"messages\", a chat, or \"ids\", a "
        "list of token ids, on each line"));
  }
  prompt.model = base::get_or<std::string>(json, "model", "", name);
  return prompt;
}

// The first line describes the generation; each further line has all outputs for one prompt.
constexpr const char* kAbout = "about";
constexpr const char* kTexts = "texts";

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& path) {
  std::vector<Prompt> prompts;
  corpus::JsonObjects objects(path.string(), [&](std::string_view record, int64_t line) {
    prompts.push_back(prompt_of(std::string(record), std::ssize(prompts), text(path.string(), ":", line)));
  });
  objects.feed(base::read_file(path));
  objects.finish();
  if (prompts.empty()) throw InputError(text(path.string(), " has no prompt: write one a line"));
  return prompts;
}

std::string hash_of(const std::vector<Prompt>& prompts) {
  std::string all;
  for (const Prompt& prompt : prompts) {
    all += prompt.text + '\0' + prompt.chat + '\0';
    if (!prompt.model.empty()) all += prompt.model + '\0';
    for (const int64_t id : prompt.ids) all += text(id, ' ');
  }
  return base::hash_text(base::hash_bytes(all));
}

CompletionsFile::CompletionsFile(std::filesystem::path path, int rank, Json about)
    : path_(std::move(path)), own_(path_.string() + text(".part-", rank)), about_(std::move(about)) {
  for (const std::filesystem::path& part : parts()) {
    for (const Json& prompt : read(part)) written_.insert(prompt.at(kTexts).at(0).at("index").get<int64_t>());
  }
}

std::vector<std::filesystem::path> CompletionsFile::parts() const {
  std::vector<std::filesystem::path> found;
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (!std::filesystem::is_directory(folder))
    throw InputError(
        text("--out is ", path_.string(), ", but there is no folder ", folder.string(), ": make it"));
  const std::string begin = path_.filename().string() + ".part-";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && base::parse_integer(name.substr(begin.size())))
      found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<Json> CompletionsFile::read(const std::filesystem::path& part) const {
  std::istringstream lines(base::read_file(part));
  std::vector<Json> prompts;
  std::string line;
  bool first = true;
  while (std::getline(lines, line)) {
    // A line that is cut off, because its process was ended, counts as no prompt.
    Json json;
    base::read_json_text(line, base::JsonDialect::kStrict, json);
    if (first &&
        (!json.is_object() || base::json_text(json.value(kAbout, Json())) != base::json_text(about_))) {
      throw InputError(text(part.string(),
                            " is of another model, other prompts or options: remove it, or go on with "
                            "those of ",
                            line.substr(0, 400)));
    }
    if (!first && json.is_object() && json.contains(kTexts)) prompts.push_back(std::move(json));
    first = false;
  }
  return prompts;
}

void CompletionsFile::add(const std::vector<Json>& lines) {
  if (!std::filesystem::exists(own_))
    base::write_file_atomically(own_, base::json_text({{kAbout, about_}}) + "\n");
  std::ofstream file(own_, std::ios::app);
  // A newline comes first, in case the previous line was cut off.
  file << "\n" << base::json_text({{kTexts, lines}}) << "\n" << std::flush;
  if (!file)
    throw base::RunError(text("cannot write ", own_.string(), ": free some room there, and start again"));
}

void CompletionsFile::join(size_t prompts) {
  std::map<int64_t, Json> all;
  const std::vector<std::filesystem::path> found = parts();
  for (const std::filesystem::path& part : found) {
    for (Json& prompt : read(part)) {
      const auto index = prompt.at(kTexts).at(0).at("index").get<int64_t>();
      all[index] = std::move(prompt);
    }
  }
  if (all.size() != prompts) {
    throw base::RunError(text("of ", prompts, " prompts ", prompts - all.size(), " have no text beside ",
                              path_.string(), ": start the command again"));
  }
  std::string lines;
  for (const auto& [index, prompt] : all) {
    for (const Json& written : prompt.at(kTexts)) lines += base::json_text(written) + "\n";
  }
  base::write_file_atomically(path_, lines);
  for (const std::filesystem::path& part : found) std::filesystem::remove(part);
}

}  // namespace sluice::cli
