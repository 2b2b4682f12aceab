#include "report/completions.h"

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/printable.h"
#include "base/text.h"
#include "report/metric_ranges.h"

namespace sluice::report {

namespace fs = std::filesystem;
using base::text;

namespace {

fs::path file_in(const fs::path& directory) { return directory / "completions.jsonl"; }

// At most the first `most` bytes, cut between characters.
std::string beginning(const std::string& words, size_t most) {
  if (words.size() <= most) return words;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xC0) == 0x80) --end;
  return words.substr(0, end) + "…";
}

std::string ending(const std::string& words, size_t most) {
  if (words.size() <= most) return words;
  size_t begin = words.size() - most;
  while (begin < words.size() && (static_cast<unsigned char>(words[begin]) & 0xC0) == 0x80) ++begin;
  return "…" + words.substr(begin);
}

std::string reward_text(std::optional<double> reward) {
  if (!reward) return "-";
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3f", *reward);
  return digits;
}

// A cell of a Markdown table: one line, and no character that ends the cell or begins HTML.
std::string cell(const std::string& words) {
  std::string escaped;
  for (const char c : words) {
    switch (c) {
      case '\n': escaped += "<br>"; break;
      case '|': escaped += "\\|"; break;
      case '<': escaped += "&lt;"; break;
      case '&': escaped += "&amp;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

fs::path cut_before(const fs::path& path, int64_t first_step) {
  if (!fs::exists(path)) return path;
  std::string kept;
  for (const Completion& completion : read_completions(path.parent_path())) {
    if (completion.step < first_step) kept += base::json_text(to_json(completion)) + "\n";
  }
  base::write_file_atomically(path, kept);
  return path;
}

}  // namespace

base::Json to_json(const Completion& completion) {
  base::Json json = {{"step", completion.step},
                     {"prompt", completion.prompt},
                     {"completion", completion.completion},
                     {"tokens", completion.tokens},
                     {"finish_reason", completion.finish_reason}};
  if (completion.reward) json["reward"] = *completion.reward;
  return json;
}

std::vector<Completion> read_completions(const fs::path& directory) {
  const fs::path path = file_in(directory);
  std::vector<Completion> completions;
  if (!fs::exists(path)) return completions;
  const std::string content = base::read_file(path);
  int64_t number = 0;
  for (size_t begin = 0, end = 0; (end = content.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string place = text(path.string(), ":", ++number);
    const base::Json line = base::parse_json(content.substr(begin, end - begin), place);
    completions.push_back({.step = base::require_in(line, "step", kMetricCounts, place),
                           .prompt = base::require<std::string>(line, "prompt", place),
                           .completion = base::require<std::string>(line, "completion", place),
                           .reward = line.contains("reward")
                                         ? std::optional(base::require<double>(line, "reward", place))
                                         : std::nullopt,
                           .tokens = base::require_in(line, "tokens", kMetricCounts, place),
                           .finish_reason = base::require<std::string>(line, "finish_reason", place)});
  }
  return completions;
}

CompletionsWriter::CompletionsWriter(const fs::path& directory, int64_t first_step)
    : lines_(cut_before(file_in(directory), first_step)) {}

void CompletionsWriter::write(const std::vector<Completion>& completions) {
  std::string lines;
  for (const Completion& completion : completions) lines += base::json_text(to_json(completion)) + "\n";
  lines_.append(lines);
}

std::vector<std::string> completion_lines(const std::vector<Completion>& completions) {
  constexpr size_t kPromptBytes = 60, kCompletionBytes = 160;
  std::vector<std::string> lines;
  for (const Completion& completion : completions) {
    lines.push_back(text("  reward ", reward_text(completion.reward), "  ",
                         ending(base::printable(completion.prompt), kPromptBytes), " | ",
                         beginning(base::printable(completion.completion), kCompletionBytes)));
  }
  return lines;
}

std::string completions_markdown(const std::vector<Completion>& completions) {
  std::string table = "| prompt | completion | reward | tokens | finish_reason |\n|---|---|---|---|---|\n";
  for (const Completion& completion : completions) {
    table += text("| ", cell(completion.prompt), " | ", cell(completion.completion), " | ",
                  reward_text(completion.reward), " | ", completion.tokens, " | ", completion.finish_reason,
                  " |\n");
  }
  return table;
}

}  // namespace sluice::report
