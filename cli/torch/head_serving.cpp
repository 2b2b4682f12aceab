#include "cli/torch/head_serving.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/head_keys.h"

namespace sluice::cli {
namespace {

serve::ServedHead::Activation activation_of(const std::string& problem, int64_t numbers) {
  using enum serve::ServedHead::Activation;
  if (problem == "regression") return kNone;
  return problem == "multi_label_classification" || numbers == 1 ? kSigmoid : kSoftmax;
}

}  // namespace

bool ends_in_head(const run::ModelSource& model) { return !model.model().has_vocabulary(); }

serve::ServedHead served_head(const run::ModelSource& model) {
  const model::Model& own = model.model();
  serve::ServedHead head{.width = own.head_numbers()};
  if (own.head().kind == model::HeadKind::kRows) return head;
  if (own.head().kind == model::HeadKind::kTokens) {
    throw base::InputError(base::text(model.name(),
                                      " ends in numbers of every token, and endpoints give those of texts: "
                                      "serve a classifier, a reward model or an embedding model, or ask "
                                      "`sluice eval --scores`"));
  }
  model::HeadLabels labels = model::head_labels(*own.config(), own.head().numbers);
  head.output = serve::ServedHead::Output::kNumbers;
  head.activation = activation_of(labels.problem, own.head().numbers);
  head.labels = std::move(labels.names);
  return head;
}

serve::HeadEngine::Compute head_numbers_of(run::Evaluator& evaluator) {
  return [&evaluator](const serve::TokenTexts& texts) { return evaluator.text_numbers(texts); };
}

}  // namespace sluice::cli
