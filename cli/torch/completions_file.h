// Prompts from a file, and the outputs for them. Each rank appends to a file of its own, so that a restarted
// command generates only the rest. At the end the files are joined into one.
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
  std::string name;  // "prompts.jsonl:3", for messages
  std::string text;
  std::vector<int64_t> ids;  // token ids, if the file has them instead
  std::string chat;          // or messages: the JSON object that contains them
  std::string model;         // the adapter that answers; empty: the model itself
};

// InputError naming a line that is not a prompt, or a file without prompts.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);
std::string hash_of(const std::vector<Prompt>& prompts);

class CompletionsFile {
 public:
  // `about`: the model and options that all files of one generation share. InputError if files differ in it.
  CompletionsFile(std::filesystem::path path, int rank, base::Json about);

  // Whether all lines of a prompt were in the files at construction.
  bool has(int64_t index) const { return written_.contains(index); }
  // Writes all lines of a prompt; they outlive this process.
  void add(const std::vector<base::Json>& lines);
  // Joins all ranks' lines into one file, by prompt, and removes theirs. RunError if a prompt is missing.
  void join(size_t prompts);

 private:
  std::vector<std::filesystem::path> parts() const;
  // The complete prompts of a rank's file, as lines.
  std::vector<base::Json> read(const std::filesystem::path& part) const;

  std::filesystem::path path_;
  std::filesystem::path own_;  // this rank's file, which exists once it has lines
  base::Json about_;
  std::set<int64_t> written_;
};

}  // namespace sluice::cli
