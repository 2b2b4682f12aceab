#include "model/families/head.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace sluice::model {
namespace {

using base::Json;
using base::text;

constexpr std::string_view kVocabulary = "ForCausalLM", kMasked = "ForMaskedLM",
                           kSequences = "ForSequenceClassification", kTokens = "ForTokenClassification";
constexpr const char* kBias = "token_classification_bias";
constexpr base::Range<int64_t> kHeadNumbers{1, 1 << 20};

enum class Classes : uint8_t { kNone, kOfSequences, kOfBoth };

// The classes that transformers 5.23 has beside a family's ForCausalLM.
struct FamilyClasses {
  std::string_view model_type;
  Classes classes = Classes::kOfBoth;
  std::string_view stem = "";  // stem of their names, if not ForCausalLM's
};
constexpr FamilyClasses kClasses[] = {{"llama"},
                                      {"mistral"},
                                      {"qwen2"},
                                      {"qwen3"},
                                      {"phi3"},
                                      {"smollm3"},
                                      {"olmo2", Classes::kOfSequences},
                                      {"olmo3", Classes::kOfSequences},
                                      {"ministral"},
                                      {"seed_oss"},
                                      {"exaone4"},
                                      {"arcee"},
                                      {"starcoder2"},
                                      {"stablelm"},
                                      {"nemotron"},
                                      {"gemma2"},
                                      {"gemma3_text", Classes::kOfSequences, "Gemma3Text"},
                                      {"mixtral"},
                                      {"qwen2_moe"},
                                      {"qwen3_moe"},
                                      {"gpt_oss"},
                                      {"deepseek_v2", Classes::kOfSequences},
                                      {"deepseek_v3"},
                                      {"qwen3_5_text", Classes::kOfSequences, "Qwen3_5Text"},
                                      {"qwen3_next"},
                                      {"modernbert", Classes::kOfBoth, "ModernBert"},
                                      {"bert", Classes::kOfBoth, "Bert"}};

std::string stem_of(const Family& family) {
  const auto* const own = std::ranges::find(kClasses, family.model_type, &FamilyClasses::model_type);
  if (own != std::end(kClasses) && !own->stem.empty()) return std::string(own->stem);
  const std::string_view whole = family.architecture;
  return std::string(whole.substr(0, whole.size() - (whole.ends_with(kVocabulary) ? kVocabulary.size() : 0)));
}

Classes classes_of(const Family& family) {
  const auto* const own = std::ranges::find(kClasses, family.model_type, &FamilyClasses::model_type);
  return own == std::end(kClasses) ? Classes::kNone : own->classes;
}

// As transformers counts: the labels, or num_labels, or two.
int64_t numbers_of(Reader& config) {
  const int64_t usual = config.count_or(2, "num_labels", kHeadNumbers);
  const Json* const names = config.find(kClassNames);
  if (names == nullptr) return usual;
  if (!names->is_object() || names->empty())
    config.refuse(kClassNames, *names, "an object of number and name");
  for (size_t number = 0; number < names->size(); ++number) {
    const Json* const name = base::find(*names, text(number));
    if (name == nullptr || !name->is_string())
      config.refuse(kClassNames, *names, text("a name for each number from 0 to ", names->size() - 1));
  }
  return static_cast<int64_t>(names->size());
}

}  // namespace

bool has_class(const Family& family, HeadKind kind) {
  switch (kind) {
    case HeadKind::kSequence: return classes_of(family) != Classes::kNone;
    case HeadKind::kTokens: return classes_of(family) == Classes::kOfBoth;
    case HeadKind::kVocabulary:
    case HeadKind::kRows: return true;
  }
  return false;
}

std::string class_of(const Family& family, HeadKind kind) {
  switch (kind) {
    case HeadKind::kSequence: return stem_of(family) + std::string(kSequences);
    case HeadKind::kTokens: return stem_of(family) + std::string(kTokens);
    case HeadKind::kRows: return stem_of(family) + "Model";
    case HeadKind::kVocabulary: break;
  }
  return std::string(family.architecture);
}

bool is_encoder(const Family& family) { return family.architecture.ends_with(kMasked); }

const char* name_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::kLast: return "last";
    case Pooling::kCls: return "cls";
    case Pooling::kMean: break;
  }
  return "mean";
}

std::string pooling_fault(const Family& family, HeadKind kind, Pooling pooling) {
  if (kind != HeadKind::kSequence) return "";
  const std::string name = class_of(family, kind);
  if (!is_encoder(family))
    return pooling == Pooling::kLast ? "" : text(name, " takes the last token: give last");
  if (family.model_type == "bert")
    return pooling == Pooling::kCls ? "" : text(name, " takes the first token: give cls");
  return pooling == Pooling::kLast ? text(name, " takes the first token or the mean of all: give cls or mean")
                                   : "";
}

const char* pooling_key(HeadKind kind) {
  return kind == HeadKind::kRows ? kSentencePooling : "classifier_pooling";
}

namespace {

// The pooling of models that end in rows.
Pooling read_pooling(Reader& config, const Family& family) {
  const Pooling absent = is_encoder(family) ? Pooling::kMean : Pooling::kLast;
  const std::string found = config.text_or(name_of(absent), kSentencePooling);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kCls, Pooling::kMean}) {
    if (found == name_of(pooling)) return pooling;
  }
  config.refuse(kSentencePooling, found, "last, cls or mean");
}

}  // namespace

HeadStyle read_head(Reader& config, const Family& family) {
  const Json* const classes = config.find("architectures");
  const bool whole = classes == nullptr || *classes == Json::array({std::string(family.architecture)});
  // The layers that predict masked tokens are left out.
  if (whole && is_encoder(family)) return {.kind = HeadKind::kRows, .pooling = read_pooling(config, family)};
  if (classes == nullptr) return {};
  for (const HeadKind kind : {HeadKind::kSequence, HeadKind::kTokens, HeadKind::kRows}) {
    if (*classes != Json::array({class_of(family, kind)})) continue;
    if (kind == HeadKind::kRows) return {.kind = kind, .pooling = read_pooling(config, family)};
    const bool biased = kind == HeadKind::kTokens && (!config.says(kBias) || config.has(kBias));
    return {.kind = kind, .numbers = numbers_of(config), .bias = biased};
  }
  const bool also = !family.also.empty() && *classes == Json::array({std::string(family.also)});
  if (!also) config.only("architectures", Json::array({std::string(family.architecture)}));
  return {};
}

}  // namespace sluice::model
