// sluice models: families of models, and the features of Sluice that work with each.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "model/family_table.h"

namespace sluice::cli {

namespace {

struct ModelsArguments {
  bool json = false;
  bool markdown = false;
};

void print_models(const ModelsArguments& options) {
  if (options.json) {
    std::cout << base::json_text(model::family_rows_json()) << "\n";
    return;
  }
  if (options.markdown) {
    std::cout << model::family_rows_markdown();
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"model_type", "family", "trains", "LoRA", "generates", "plans", "missing"}};
  for (const model::FamilyRow& row : model::family_rows())
    rows.push_back({row.model_type, row.title, "yes", row.lora ? "yes" : "no", row.generates ? "yes" : "no",
                    "yes", row.missing});
  std::cout
      << base::table_text(rows, "lllllll")
      << "other model_types plan where the costs of all their keys are known; `sluice inspect FOLDER` says "
         "which key is not\n";
}

}  // namespace

void add_models(CLI::App& app) {
  CLI::App* command = app.add_subcommand("models", "Families of models, and what Sluice does with each");
  auto options = std::make_shared<ModelsArguments>();
  CLI::Option* const json = command->add_flag("--json", options->json, "As a JSON list");
  command->add_flag("--markdown", options->markdown, "As the table of the documentation")->excludes(json);
  command->callback([options] { print_models(*options); });
}

}  // namespace sluice::cli
