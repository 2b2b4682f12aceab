#include "report/next_commands.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/text.h"

namespace sluice::report {

using base::text;

namespace {

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string("_./-+:@%").find(static_cast<char>(c)) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string trial(EndOfRun::Output output, const std::string& model) {
  if (output == EndOfRun::Output::kText) return text("sluice generate --model ", model, " --prompt TEXT");
  if (output == EndOfRun::Output::kEmbeddings) return text("sluice embed FILE --model ", model);
  return text("sluice eval --model ", model, " --corpus PREFIX --scores FILE");
}

}  // namespace

std::string next_commands(const EndOfRun& end) {
  const bool finished = end.steps_done >= end.steps;
  const auto checkpoint = [&](int64_t steps) {
    return (end.directory / "checkpoints" / text("step-", steps)).string();
  };
  const std::string run = quoted(end.directory.string());
  const std::string best = end.best_step ? quoted(checkpoint(*end.best_step)) : "";
  const std::string& model = end.best_step ? best : run;
  const std::string train =
      text("sluice train --config ", quoted((end.directory / "config.toml").string()), " --resume auto",
           end.local_ranks > 0 ? text(" --nproc ", end.local_ranks) : "",
           finished ? text(" --set train.steps=", 2 * end.steps) : "");
  std::vector<std::string> lines{
      text("the model is ", checkpoint(end.steps_done),
           finished ? "" : text(", after ", end.steps_done, " of ", end.steps, " steps"))};
  const auto add = [&](const char* purpose, const std::string& command) {
    lines.push_back(text("  ", purpose, command));
  };
  if (end.best_step) lines.push_back(text("the best by its evaluation is ", checkpoint(*end.best_step)));
  if (!finished) add("train on  ", train);
  add("try it    ", trial(end.output, model));
  if (end.output != EndOfRun::Output::kTokenNumbers) add("serve it  ", text("sluice serve --model ", model));
  add("export it ",
      text("sluice export ", model, " --out FOLDER",
           end.model == EndOfRun::Model::kAdapters ? " (with --adapters: the adapters alone)" : ""));
  if (finished) add("train on  ", train);
  return base::join(lines, "\n");
}

}  // namespace sluice::report
