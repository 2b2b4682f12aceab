#include "config/run_config.h"

#include <algorithm>

#include "base/json.h"
#include "config/eval_adapters.h"
#include "model/head_keys.h"
#include "model/hugging_face.h"
#include "model/sentence_modules.h"
#include "model/tuning.h"
#include "model/wrapped.h"

namespace sluice::config {

int64_t longest_context(const RunConfig& config) {
  int64_t longest = config.data.context_length;
  for (const PhaseConfig& phase : config.phases) longest = std::max(longest, phase.data.context_length);
  return longest;
}

double margin_bytes(const MemoryConfig& memory, double whole, bool on_gpu) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  if (memory.margin_gib) return *memory.margin_gib * kGiB;
  return on_gpu ? 2 * kGiB : std::min(2 * kGiB, whole / 10);
}

int64_t word_bytes(ComputeType dtype) {
  switch (dtype) {
    case ComputeType::kBFloat16: return 2;
    case ComputeType::kFloat64: return 8;
    case ComputeType::kFloat32:
    case ComputeType::kAuto: return 4;
  }
  return 4;
}

void resolve_dtype(RunConfig& config, bool on_gpu) {
  ComputeType& dtype = config.train.dtype;
  if (dtype == ComputeType::kAuto) dtype = on_gpu ? ComputeType::kBFloat16 : ComputeType::kFloat32;
  if (config.model.resolved && config.model.resolved->base().coded())
    config.model.resolved =
        model::with_base(*config.model.resolved, {config.model.resolved->base().format, word_bytes(dtype)});
}

namespace {

// InputError if parameters are to travel as float32 although ranks compute with another type, in which they
// travel uncoded.
template <typename CodecType>
void require_as_computed(const std::optional<CodecType>& codec, ComputeType dtype, const char* key) {
  const bool wide = codec && *codec == CodecType::kNone;
  if (!wide || dtype == ComputeType::kFloat32 || dtype == ComputeType::kAuto) return;
  const char* computed = dtype == ComputeType::kBFloat16 ? "bfloat16" : "float64";
  throw base::InputError(base::text("[config] link.", key, " is float32, but ranks compute with ", computed,
                                    " (train.dtype), which is how parameters travel: leave it at \"auto\""));
}

}  // namespace

strategy::WireCodecs wire_codecs(const RunConfig& config) {
  using strategy::Codec;
  require_as_computed(config.link.pull, config.train.dtype, "pull");
  require_as_computed(config.link.gather, config.train.dtype, "gather");
  const auto pull = config.link.pull.value_or(strategy::PullCodec::kNone);
  if (config.train.master_dtype == MasterType::kBFloat16 && strategy::is_difference(pull)) {
    throw base::InputError(
        "[config] link.pull sends differences, but train.master_dtype is bfloat16, whose parameters travel "
        "as "
        "they are: leave link.pull at \"auto\", or keep masters in float32");
  }
  const Codec gather = config.link.gather.value_or(Codec::kNone);
  const auto& [in_node, between] = config.link.push;
  const bool narrow = config.train.dtype == ComputeType::kBFloat16;  // bfloat16 without a codec
  const Codec push = narrow ? Codec::kBFloat16 : Codec::kNone;
  const Codec sums = config.train.reduce_dtype == ReduceType::kBFloat16 ? Codec::kBFloat16 : Codec::kNone;
  const auto summed = [sums](std::optional<Codec> given) {
    return given.value_or(Codec::kNone) == Codec::kNone ? sums : *given;
  };
  const bool travels_so = narrow && pull == strategy::PullCodec::kBFloat16;
  const bool owned_so = config.train.master_dtype == MasterType::kBFloat16;
  return {.pull = travels_so && owned_so ? strategy::PullCodec::kNone : pull,
          .push = {in_node.value_or(push), between.value_or(push)},
          .sums = {summed(in_node), summed(between)},
          .gather = narrow && gather == Codec::kBFloat16 ? Codec::kNone : gather};
}

bool goes_on(const DataConfig& before, const DataConfig& after) {
  return before.batches.empty() && after.batches.empty() && before.train == after.train &&
         before.context_length == after.context_length && before.overflow == after.overflow &&
         before.seed == after.seed;
}

namespace {

using model::HeadStyle;

void require_learnable(const RunConfig& config) {
  const RlConfig& rl = config.rl;
  if (rl.algorithm == RlAlgorithm::kNone) return;
  if (config.train.z_loss > 0) {
    throw base::InputError(base::text("train.z_loss is ", config.train.z_loss,
                                      ", but the losses of rl.algorithm have no such term: leave it out"));
  }
  if (!rl.rolls_out()) return;
  if (rl.num_generations < 2 && rl.algorithm != RlAlgorithm::kPpo) {
    throw base::InputError(
        base::text("rl.num_generations is ", rl.num_generations,
                   ", but a response is measured against others to its prompt: give 2 or more"));
  }
  if (rl.temperature != 1 && config.model.resolved->caps_logits()) {
    throw base::InputError(
        base::text("rl.temperature is ", rl.temperature,
                   ", but the model caps its logits, which would be divided before: give 1"));
  }
}

model::Pooling pooling_of(const HeadConfig& head, const model::Model& model, model::HeadKind kind) {
  switch (head.pooling) {
    case Pooling::kLast: return model::Pooling::kLast;
    case Pooling::kMean: return model::Pooling::kMean;
    case Pooling::kCls: return model::Pooling::kCls;
    case Pooling::kAuto: break;
  }
  return model.head().kind == kind ? model.head().pooling : model::usual_pooling(model, kind);
}

// The head's numbers: one for each class that has a name. `names` may be filled from the model folder.
HeadStyle style_of(const HeadConfig& head, const model::Model& model, std::vector<std::string>& names) {
  const bool tokens = head.kind == HeadUse::kTokens || head.kind == HeadUse::kValue;
  const model::HeadKind kind = head.kind == HeadUse::kEmbed ? model::HeadKind::kRows
                               : tokens                     ? model::HeadKind::kTokens
                                                            : model::HeadKind::kSequence;
  if (kind == model::HeadKind::kRows) return {.kind = kind};
  const bool one = head.kind == HeadUse::kReward || head.kind == HeadUse::kValue;
  if (one || (names.empty() && head.problem == Problem::kRegression)) return {kind, 1, tokens};
  if (names.empty() && model.head().kind == kind) {
    names = model::head_labels(*model.config(), model.head().numbers).names;
    return model.head();
  }
  if (names.size() < 2 && head.problem != Problem::kRegression) {
    throw base::InputError(base::text("[config] head.labels names ", names.size(),
                                      " classes, and the model folder has no such head: name the classes, as "
                                      "labels = [\"negative\", \"positive\"]"));
  }
  return {kind, std::ssize(names), tokens};
}

std::string problem_text(Problem problem) {
  switch (problem) {
    case Problem::kAuto: break;
    case Problem::kSingleLabel: return "single_label_classification";
    case Problem::kMultiLabel: return "multi_label_classification";
    case Problem::kRegression: return "regression";
  }
  return "";
}

void require_no_head(const model::Model& model) {
  if (model.has_vocabulary()) return;
  throw base::InputError(base::text("[config] head.kind is none, but model.hf ends in ",
                                    model.head().kind == model::HeadKind::kRows
                                        ? "embeddings"
                                        : base::text(model.head().numbers, " numbers"),
                                    ", no vocabulary: say what they are, as head.kind = \"classify\""));
}

void refuse_with_head(const RunConfig& config) {
  const auto refuse = [](const char* key) {
    throw base::InputError(base::text("[config] ", key, " needs a vocabulary, but head.kind gives the model ",
                                      "another end: leave one of the two out"));
  };
  if (config.rl.algorithm != RlAlgorithm::kNone) refuse("rl.algorithm");
  if (config.train.sample_every > 0) refuse("train.sample_every");
  if (config.train.z_loss > 0) refuse("train.z_loss");
  if (config.data.overflow == corpus::Overflow::kSplit)
    throw base::InputError(
        "[config] data.overflow is split, but a head's labels are of whole texts: give truncate or drop");
}

// Checks the head's training data as far as the configuration alone tells.
void require_head_data(const HeadConfig& head) {
  if (head.kind == HeadUse::kReward && head.rejected.empty())
    throw base::InputError(
        "[config] head.rejected is empty: name the corpora of worse answers to data.train's documents");
  if (head.kind != HeadUse::kEmbed) return;
  if (head.positives.empty())
    throw base::InputError(
        "[config] head.positives is empty: name the corpora of texts that data.train's are to lie near");
  if (head.pairs_per_step == 1 && head.negatives.empty())
    throw base::InputError(
        "[config] head.pairs_per_step is 1, and a pair alone has no other text to be told from: give 2 or "
        "more, or "
        "head.negatives");
}

void require_each_once(const std::vector<std::string>& labels) {
  for (auto label = labels.begin(); label != labels.end(); ++label) {
    if (std::find(labels.begin(), label, *label) == label) continue;
    throw base::InputError(
        base::text("[config] head.labels names '", *label, "' twice: name each class once"));
  }
}

// Gives the model the head that [head] asks for.
void set_head(RunConfig& config, ModelUse use) {
  model::Model& model = *config.model.resolved;
  HeadConfig& head = config.head;
  if (head.kind == HeadUse::kNone) {
    if (use == ModelUse::kCompute) require_no_head(model);
    return;
  }
  refuse_with_head(config);
  if (use == ModelUse::kCompute) require_head_data(head);
  require_each_once(head.labels);
  for (const int64_t width : head.matryoshka) {
    if (width <= model.hidden()) continue;
    throw base::InputError(base::text("[config] head.matryoshka: ", width, " is above the ", model.hidden(),
                                      " of the model's embeddings: leave it out"));
  }
  std::vector<std::string> names = head.labels;
  HeadStyle style = style_of(head, model, names);
  style.pooling = pooling_of(head, model, style.kind);
  model::HeadLabels labels{names, problem_text(head.problem)};
  if (labels.problem.empty() && model.head().kind == style.kind && model.config() != nullptr)
    labels.problem = model::head_labels(*model.config(), 0).problem;
  model = model::with_head(model, style, labels);
}

// Gives the head the MTP layer that train.mtp asks for.
void set_mtp(RunConfig& config) {
  if (config.train.mtp == MtpUse::kKeep) return;
  const auto refuse = [](const char* key, const char* why) {
    throw base::InputError(base::text("[config] train.mtp is \"train\", but ", key, " ", why,
                                      ": leave it at \"keep\", or leave the other out"));
  };
  if (config.rl.algorithm != RlAlgorithm::kNone) refuse("rl.algorithm", "learns no further tokens");
  if (!config.teacher.hf.empty()) refuse("teacher.hf", "has no further tokens to imitate");
  if (config.head.kind != HeadUse::kNone) refuse("head.kind", "gives the model another end");
  if (config.lora.rank > 0) refuse("lora.rank", "trains adapters, which MTP layers have none of");
  *config.model.resolved = model::with_mtp(*config.model.resolved);
}

// Marks the parameters of the model that are trained.
void tune(RunConfig& config) {
  set_mtp(config);
  model::Model& model = *config.model.resolved;
  if (config.train.moe_aux_loss_coeff > 0) {
    if (model.experts().count == 0) {
      throw base::InputError(base::text("train.moe_aux_loss_coeff is ", config.train.moe_aux_loss_coeff,
                                        ", but the model has no experts: leave it out"));
    }
    if (config.train.moe_router_load_balancing_type == RouterLoadBalancing::kGlobalAuxLoss)
      model = model::remembering_loads(model);
  }
  const int64_t spare = config.parallel.redundant_experts;
  if (spare > model.experts().count / 2) {
    throw base::InputError(
        base::text("parallel.redundant_experts is ", spare, ", but the model has ", model.experts().count,
                   " experts, of which two lanes have half each: ", "give at most as many as that leaves"));
  }
  model = model::adapted(model, {config.lora.rank, config.lora.alpha, config.lora.targets, config.lora.dora});
  model = model::frozen(model, config.train.freeze);
  model = model::with_base(model, {config.model.base, word_bytes(config.train.dtype)});
  // Generation would hold the whole base expanded, which the proof of memory does not include.
  if (model.base().coded() && (config.generates() || config.train.sample_every > 0)) {
    throw base::InputError(
        base::text("model.base is ", base::name_of(model.base().format), ", but ",
                   config.rl.rolls_out()      ? "rl.algorithm"
                   : config.teacher.lmbda > 0 ? "teacher.lmbda"
                                              : "train.sample_every",
                   " generates text within the run, which computes with whole weights: set "
                   "model.base = \"none\""));
  }
  if (config.optimizer.groups.empty()) return;
  const std::vector<std::string> names = model::tensor_names(model::parameter_table(model));
  for (const GroupConfig& group : config.optimizer.groups)
    model::require_matches(group.parameters, names, "optimizer.groups");
}

// InputError if train.eval_adapters would have no effect: without adapters or evaluations, with a head that
// adapters' folders lack, or with DoRA, whose magnitudes other adapters do not have.
void require_eval_adapters(const RunConfig& config) {
  const std::vector<std::string>& entries = config.train.eval_adapters;
  if (entries.empty()) return;
  named_folders(entries);
  const auto refuse = [&](const char* fault) {
    throw base::InputError(base::text("train.eval_adapters is ", base::join(entries, ", "), ", but ", fault));
  };
  if (config.lora.rank == 0)
    refuse("lora.rank is 0: set it, as other adapters stand in place of the trained one");
  if (config.train.eval_every == 0) refuse("train.eval_every is 0, so nothing is evaluated: set it");
  if (config.lora.dora) refuse("lora.dora is true: leave the folders out, and evaluate them with eval");
  if (config.head.kind != HeadUse::kNone)
    refuse("head.kind gives the model a head that the folders do not have: leave them out");
}

}  // namespace

void resolve_model(RunConfig& config, ModelUse use) {
  if (!config.model.hf.empty()) {
    const std::filesystem::path path = std::filesystem::path(config.model.hf) / "config.json";
    const base::Json json = model::folder_config(config.model.hf);
    if (config.head.kind != HeadUse::kNone && model::wrapper_of(json) != nullptr) {
      throw base::InputError(base::text("[config] head.kind: ", config.model.hf,
                                        " is a multimodal folder, and heads stand on language models alone: "
                                        "name a folder of one"));
    }
    config.model.resolved = use == ModelUse::kPlan
                                ? model::model_to_plan_from_hugging_face(json, path.string())
                                : model::model_from_hugging_face(json, path.string());
  } else {
    config.model.resolved = config.model.given;
  }
  set_head(config, use);
  if (const int64_t positions = config.model.resolved->positions();
      positions > 0 && config.data.context_length > positions) {
    throw base::InputError(base::text("data.context_length is ", config.data.context_length,
                                      ", but the model has ", positions, " trained positions: lower it"));
  }
  if (!config.model.resolved->causal() && config.parallel.exchange == strategy::ExchangeRule::kBalanced) {
    throw base::InputError(
        "parallel.exchange has \"balanced\", which is of causal attention, but the model's looks both ways: "
        "leave "
        "it out");
  }
  tune(config);
  require_eval_adapters(config);
  require_learnable(config);
}

}  // namespace sluice::config
