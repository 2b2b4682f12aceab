// sluice lengths: the length distribution of corpora's documents.
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/outputs.h"
#include "corpus/length_chart.h"

namespace sluice::cli {

using base::text;

namespace {

struct LengthsArguments {
  std::vector<std::filesystem::path> paths;
  std::filesystem::path svg;
  std::filesystem::path out;
  bool json = false;
};

std::vector<corpus::NamedLengths> read_all(const std::vector<std::filesystem::path>& paths) {
  std::vector<corpus::NamedLengths> all;
  for (const std::filesystem::path& path : paths) {
    corpus::NamedLengths named{path.string(),
                               corpus::LengthDistribution(corpus::read_lengths(path, corpus_places()))};
    if (named.lengths.empty())
      throw base::InputError(text(path.string(), " holds no documents: build it again"));
    all.push_back(std::move(named));
  }
  return all;
}

// The distribution of all paths together, and each path's own if there are several.
base::Json summary(const std::vector<corpus::NamedLengths>& all) {
  corpus::LengthDistribution together;
  for (const corpus::NamedLengths& each : all) together.add(each.lengths);
  base::Json json = corpus::to_json(together);
  json["sources"] = base::Json::array();
  for (const corpus::NamedLengths& each : all) {
    json["sources"].push_back(
        {{"path", each.name}, {"count", each.lengths.documents()}, {"tokens", each.lengths.tokens()}});
  }
  return json;
}

void run(const LengthsArguments& arguments) {
  const std::vector<corpus::NamedLengths> all = read_all(arguments.paths);
  if (!arguments.svg.empty()) base::write_file_atomically(arguments.svg, corpus::lengths_svg(all));
  if (!arguments.out.empty()) base::write_file_atomically(arguments.out, corpus::lengths_text(summary(all)));
  if (arguments.json) {
    std::cout << base::json_text(summary(all)) << "\n";
    return;
  }
  std::cout << corpus::lengths_table(all);
  for (const corpus::NamedLengths& each : all) {
    std::cout << "\n" << each.name << "\n" << corpus::lengths_histogram(each);
  }
}

}  // namespace

void add_lengths(CLI::App& app) {
  CLI::App* lengths =
      app.add_subcommand("lengths", "Length distribution of corpora or of files with one length a line");
  auto arguments = std::make_shared<LengthsArguments>();
  lengths
      ->add_option("paths", arguments->paths,
                   "Corpora (prefix or directory), lengths.json, or text files, also s3://BUCKET/NAME")
      ->required();
  add_output(*lengths, "--svg", arguments->svg, Output::kFile, "Draw the histograms into this file");
  add_output(*lengths, "--out", arguments->out, Output::kFile, "Write lengths.json here");
  lengths->add_flag("--json", arguments->json, "Print the content of lengths.json instead of tables");
  lengths->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli
