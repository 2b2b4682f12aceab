// Some responses of each rollout with their rewards, for people: lines of completions.jsonl, a table in the
// log, a text in TensorBoard, and a section of the report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/appended_file.h"
#include "base/json_fwd.h"

namespace sluice::report {

struct Completion {
  int64_t step = 0;  // the first that trains on its rollout
  std::string prompt;
  std::string completion;
  std::optional<double> reward;  // none: nothing rewards it
  int64_t tokens = 0;
  std::string finish_reason;  // "stop" or "length"
};

base::Json to_json(const Completion& completion);

// The lines of directory/completions.jsonl, in their order; empty if there is no such file. A last line that
// is cut off is left out. InputError naming file, line and key if a line is damaged.
std::vector<Completion> read_completions(const std::filesystem::path& directory);

// Appends lines to directory/completions.jsonl. A resumed run drops those of steps that it is about to
// repeat. RunError on a full disk or an unwritable directory.
class CompletionsWriter {
 public:
  CompletionsWriter(const std::filesystem::path& directory, int64_t first_step);
  void write(const std::vector<Completion>& completions);

 private:
  base::AppendedFile lines_;
};

// For the log, a line each: the reward, the end of the prompt and the beginning of the completion.
std::vector<std::string> completion_lines(const std::vector<Completion>& completions);
// A table in Markdown, as TensorBoard shows texts.
std::string completions_markdown(const std::vector<Completion>& completions);

}  // namespace sluice::report
