#include "run/head_loss.h"

#include "session/head_labels.h"

namespace sluice::run {

std::shared_ptr<const layers::NumberLoss> label_loss(const model::Model& model) {
  const std::shared_ptr<const corpus::LabelRule> rule = session::label_rule(model);
  if (!rule) return nullptr;
  switch (rule->form) {
    case corpus::LabelForm::kClass: return layers::class_cross_entropy();
    case corpus::LabelForm::kClasses: return layers::binary_cross_entropy();
    case corpus::LabelForm::kFigures: return layers::squared_error();
    case corpus::LabelForm::kNone: break;
  }
  return nullptr;
}

}  // namespace sluice::run
