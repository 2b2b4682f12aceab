#include "session/public_models.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "model/hugging_face.h"
#include "session/embedded.h"

namespace sluice::session {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOfPapers[] = {"llama-7b", "llama-13b", "llama-32b"};

const base::Json& public_models() {
  static const base::Json models = base::parse_python_json(model_files().front().content, "data/models.json");
  return models;
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const auto& [name, config] : public_models().items()) names.push_back(name);
  names.insert(names.end(), std::begin(kOfPapers), std::end(kOfPapers));
  return names;
}

model::Model model_to_plan(const std::string& name) {
  std::error_code ignored;
  if (fs::exists(name, ignored)) {
    const fs::path path = fs::is_directory(name) ? fs::path(name) / "config.json" : fs::path(name);
    return model::model_to_plan_from_hugging_face(base::read_python_json(path), path.string());
  }
  const std::string known = lower_case(name);
  if (const auto found = public_models().find(known); found != public_models().end())
    return model::model_to_plan_from_hugging_face(*found, "the public model " + known);
  if (std::ranges::find(kOfPapers, known) != std::end(kOfPapers)) return model::named_model(known);
  const std::string nearest = base::nearest_word(known, known_models());
  throw base::InputError(
      base::text("[planning] model '", name, "' is no folder and no known model: ",
                 nearest.empty() ? "" : base::text("did you mean '", nearest, "'? "), "known are ",
                 base::join(known_models(), ", "),
                 "; or give a Hugging Face folder, or a model of the hub as ORGANISATION/NAME"));
}

}  // namespace sluice::session
