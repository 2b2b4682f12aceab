#include "model/head_keys.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/config_json.h"
#include "model/families/head.h"
#include "model/hugging_face.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kNumbers = "label2id";
constexpr const char* kProblem = "problem_type";

}  // namespace

HeadLabels head_labels(const Json& config, int64_t numbers) {
  HeadLabels labels;
  const Json* const names = base::find(config, kClassNames);
  for (int64_t number = 0; number < numbers; ++number) {
    const Json* const name = names == nullptr ? nullptr : base::find(*names, text(number));
    labels.names.push_back(name != nullptr && name->is_string() ? name->get<std::string>()
                                                                : text("LABEL_", number));
  }
  const Json* const problem = base::find(config, kProblem);
  if (problem != nullptr && problem->is_string()) labels.problem = problem->get<std::string>();
  return labels;
}

Pooling usual_pooling(const Model& model, HeadKind kind) {
  if (!is_encoder(family_of(model.outline()))) return Pooling::kLast;
  if (kind == HeadKind::kRows) return Pooling::kMean;
  const Json* const found =
      model.config() != nullptr ? base::find(*model.config(), pooling_key(kind)) : nullptr;
  return found != nullptr && *found == name_of(Pooling::kMean) ? Pooling::kMean : Pooling::kCls;
}

Model with_head(const Model& model, const HeadStyle& head, const HeadLabels& labels) {
  const Family& family = family_of(model.outline());
  if (!has_class(family, head.kind)) {
    throw InputError(text("[config] head.kind asks for a class ", class_of(family, head.kind),
                          ", which transformers does not have, so nothing would load the model: choose a "
                          "model of another family"));
  }
  if (const std::string fault = pooling_fault(family, head.kind, head.pooling); !fault.empty())
    throw InputError(text("[config] head.pooling: ", fault));
  Json config = config_json(model);
  config.erase(kSentencePooling);
  const bool says = head.kind == HeadKind::kRows
                        ? head.pooling != usual_pooling(model, head.kind)
                        : head.kind == HeadKind::kSequence && family.model_type == "modernbert";
  if (says) config[pooling_key(head.kind)] = name_of(head.pooling);
  config["architectures"] = Json::array({class_of(family, head.kind)});
  for (const char* key : {kClassNames, kNumbers, kProblem, "num_labels"}) config.erase(key);
  if (head.numbers > 0) {
    config[kClassNames] = Json::object();
    config[kNumbers] = Json::object();
    for (int64_t number = 0; number < head.numbers; ++number) {
      const std::string name =
          labels.names.empty() ? text("LABEL_", number) : labels.names[static_cast<size_t>(number)];
      config[kClassNames][text(number)] = name;
      config[kNumbers][name] = number;
    }
  }
  if (!labels.problem.empty()) config[kProblem] = labels.problem;
  return model_from_hugging_face(config, "config.json");
}

}  // namespace sluice::model
