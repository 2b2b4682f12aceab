// Prompts from a file, and what was said behind them: in a file of each rank while it is being said, so that
// a command started anew says the rest, and in one when all is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace sluice::cli {

struct Prompt {
  int64_t index = 0;
  std::string name;  // "prompts.jsonl:3", for people
  std::string text;
  std::vector<int64_t> ids;  // where the file has these instead
  std::string chat;          // or messages: the JSON object that they stand in
  std::string model;         // the adapter that answers; empty: the model itself
};

// InputError naming the line that is no prompt, or a file without one.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);
std::string hash_of(const std::vector<Prompt>& prompts);

class CompletionsFile {
 public:
  // `about` is what all files of one generation have in common. InputError when there are files of another.
  CompletionsFile(std::filesystem::path path, int rank, base::Json about);

  // Whether all lines of a prompt were there when this was made.
  bool has(int64_t index) const { return written_.contains(index); }
  // All lines of a prompt, which then outlive this process.
  void add(const std::vector<base::Json>& lines);
  // Makes the one file of all ranks' lines, by prompt, and removes theirs. RunError when a prompt is missing.
  void join(size_t prompts);

 private:
  std::vector<std::filesystem::path> parts() const;
  // Whole prompts of a part, as lines.
  std::vector<base::Json> read(const std::filesystem::path& part) const;

  std::filesystem::path path_;
  std::filesystem::path own_;  // this rank's lines, once there are some
  base::Json about_;
  std::set<int64_t> written_;
};

}  // namespace sluice::cli
