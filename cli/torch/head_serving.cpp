#include "cli/torch/head_serving.h"

#include <algorithm>

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

// The row of a text of one token: no batch is planned for that.
std::vector<double> numbers_of_token(run::Evaluator& evaluator, int32_t token) {
  const at::Tensor numbers = evaluator.logits({token}).to(at::kDouble).reshape({-1});
  return {numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel()};
}

}  // namespace

bool ends_in_head(const run::ModelSource& model) {
  return model.shape().head.kind != model::HeadKind::kVocabulary;
}

serve::ServedHead served_head(const run::ModelSource& model) {
  const model::Shape& shape = model.shape();
  serve::ServedHead head{.width = shape.head_numbers()};
  if (shape.head.kind == model::HeadKind::kRows) return head;
  if (shape.head.kind == model::HeadKind::kTokens) {
    throw base::InputError(base::text(model.name(),
                                      " ends in numbers of every token, and endpoints give those of texts: "
                                      "serve a classifier, a reward model or an embedding model, or ask "
                                      "`sluice eval --scores`"));
  }
  model::HeadLabels labels = model::head_labels(*shape.config.json, shape.head.numbers);
  head.output = serve::ServedHead::Output::kNumbers;
  head.activation = activation_of(labels.problem, shape.head.numbers);
  head.labels = std::move(labels.names);
  return head;
}

serve::HeadEngine::Compute head_numbers_of(run::Evaluator& evaluator) {
  return [&evaluator](const std::vector<std::vector<int32_t>>& texts) {
    std::vector<std::vector<int32_t>> planned;
    for (const std::vector<int32_t>& text : texts) {
      if (text.size() > 1) planned.push_back(text);
    }
    const std::vector<std::vector<double>> of_planned =
        planned.empty() ? std::vector<std::vector<double>>() : evaluator.text_numbers(planned);
    std::vector<std::vector<double>> numbers;
    auto next = of_planned.begin();
    for (const std::vector<int32_t>& text : texts)
      numbers.push_back(text.size() > 1 ? *next++ : numbers_of_token(evaluator, text.front()));
    return numbers;
  };
}

}  // namespace sluice::cli
