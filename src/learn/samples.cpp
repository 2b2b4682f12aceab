#include "learn/samples.h"

#include <algorithm>

#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"

namespace sluice::learn {
namespace {

constexpr int64_t kDocuments = 3;      // their beginnings are prompts
constexpr int64_t kPromptTokens = 16;  // per prompt
constexpr int64_t kSampleTokens = 64;

// The first documents' beginnings.
std::vector<std::vector<int32_t>> beginnings(const corpus::Blend& blend) {
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t document = 0; document < std::min(blend.documents(), kDocuments); ++document) {
    const int64_t tokens = std::min(kPromptTokens, blend.length(document) / 2);
    if (tokens < 1) continue;
    blend.read(document, 0, tokens, prompts.emplace_back(static_cast<size_t>(tokens)).data());
  }
  return prompts;
}

}  // namespace

Samples::Samples(run::RunContext& run, RolloutGenerator& generator) : run_(run), generator_(generator) {
  const corpus::Tokenizer& tokenizer = generator.tokenizer();
  for (const std::string& text : run.config().train.sample_prompts) {
    std::vector<int32_t>& prompt = prompts_.emplace_back();
    if (tokenizer.begin_id() >= 0) prompt.push_back(tokenizer.begin_id());
    for (const int32_t id : tokenizer.encode(text)) prompt.push_back(id);
    if (prompt.empty())
      throw base::InputError("[config] train.sample_prompts has a text without a token: give it some text");
    const int64_t room = run.config().data.context_length - 1;
    if (std::ssize(prompt) > room) prompt.resize(static_cast<size_t>(room));
  }
  if (!prompts_.empty()) return;
  const session::DataPhase& data = run.start().data().phases.front();
  prompts_ = beginnings(data.validation.empty() ? data.training : data.validation.front().blend);
}

bool Samples::due(int64_t steps_done, bool last) const {
  const int64_t every = run_.config().train.sample_every;
  return every > 0 && (last || steps_done % every == 0);
}

void Samples::log(int64_t after_step) {
  const std::vector<uint64_t> numbers(prompts_.size(), 0);
  const auto outputs =
      generator_.generate(prompts_, numbers, 1, kSampleTokens, RolloutGenerator::SamplingMode::kGreedy);
  if (run_.rank() != 0) return;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    base::log_info(base::text("after step ", after_step, ": sample  ",
                              base::printable(generator_.text_of(prompts_[i])), " | ",
                              base::printable(generator_.text_of(outputs[i].front().tokens, prompts_[i]))));
  }
}

}  // namespace sluice::learn
