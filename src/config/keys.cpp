#include "config/keys.h"

#include <limits>
#include <span>

#include "config/field_values.h"
#include "config/lora_fields.h"
#include "model/model_ranges.h"
#include "model/outline.h"
#include "model/outline_sizes.h"

namespace sluice::config {
namespace {

// Ranges that no module defines. Counts and tokens are limited so that sums of many stay inside 64 bits.
constexpr base::Range<int64_t> kSteps{0, kMostSteps};
constexpr base::Range<int64_t> kSeeds{0, std::numeric_limits<int64_t>::max()};
constexpr base::Range<int> kRanks{1, 1 << 20};
constexpr base::Range<double> kGib{0, 1e6};
constexpr base::Range<double> kRates{0, 1e3};
constexpr base::Range<double> kTeacherWeights{1e-6, 1e6};
constexpr base::Range<int64_t> kSeconds{0, 86'400};

constexpr Word<model::RopeScaling> kRopeScalings[] = {{"none", model::RopeScaling::kNone},
                                                      {"linear", model::RopeScaling::kLinear},
                                                      {"llama3", model::RopeScaling::kLlama3},
                                                      {"yarn", model::RopeScaling::kYarn}};
constexpr Word<corpus::Overflow> kOverflows[] = {{"truncate", corpus::Overflow::kTruncate},
                                                 {"split", corpus::Overflow::kSplit},
                                                 {"drop", corpus::Overflow::kDrop}};
constexpr Word<MasterType> kMasterTypes[] = {{"float32", MasterType::kWide},
                                             {"bfloat16", MasterType::kBFloat16}};
constexpr Word<ReduceType> kReduceTypes[] = {{"float32", ReduceType::kFloat32},
                                             {"bfloat16", ReduceType::kBFloat16}};
constexpr Word<std::optional<strategy::Codec>> kCodecs[] = {{"auto", std::nullopt},
                                                            {"float32", strategy::Codec::kNone},
                                                            {"bfloat16", strategy::Codec::kBFloat16},
                                                            {"int8", strategy::Codec::kInt8},
                                                            {"int4", strategy::Codec::kInt4}};
constexpr Word<std::optional<strategy::PullCodec>> kPullCodecs[] = {
    {"auto", std::nullopt},
    {"float32", strategy::PullCodec::kNone},
    {"bfloat16", strategy::PullCodec::kBFloat16},
    {"int8-difference", strategy::PullCodec::kInt8Difference},
    {"int4-difference", strategy::PullCodec::kInt4Difference}};
constexpr Word<OnNonfinite> kOnNonfinite[] = {{"stop", OnNonfinite::kStop}, {"skip", OnNonfinite::kSkip}};
constexpr Word<base::GemmFormat> word_of(base::GemmFormat format) { return {name_of(format).data(), format}; }
constexpr Word<base::GemmFormat> kProductFormats[] = {
    word_of(base::GemmFormat::kAsComputed), word_of(base::GemmFormat::kBFloat16),
    word_of(base::GemmFormat::kInt8), word_of(base::GemmFormat::kFloat8)};
constexpr Word<LowPrecisionLayers> kNarrowLayers[] = {{"auto", LowPrecisionLayers::kAuto},
                                                      {"minimal", LowPrecisionLayers::kMinimal},
                                                      {"all", LowPrecisionLayers::kAll}};
constexpr Word<Devices> kDeviceWords[] = {{"uniform", Devices::kUniform}, {"measured", Devices::kMeasured}};
constexpr Word<Decay> kDecays[] = {{"cosine", Decay::kCosine},
                                   {"linear", Decay::kLinear},
                                   {"constant", Decay::kConstant},
                                   {"wsd", Decay::kWsd},
                                   {"inverse_sqrt", Decay::kInverseSqrt}};
constexpr Word<OptimizerName> kOptimizers[] = {{"adamw", OptimizerName::kAdamW},
                                               {"adamw_8bit", OptimizerName::kAdamW8Bit},
                                               {"muon", OptimizerName::kMuon}};
constexpr Word<MuonRate> kMuonRates[] = {{"match_rms_adamw", MuonRate::kMatchRmsAdamW},
                                         {"original", MuonRate::kOriginal}};
constexpr Word<base::WeightFormat> kBases[] = {
    {name_of(base::WeightFormat::kPlain), base::WeightFormat::kPlain},
    {name_of(base::WeightFormat::kNf4), base::WeightFormat::kNf4},
    {name_of(base::WeightFormat::kInt8), base::WeightFormat::kInt8},
    {name_of(base::WeightFormat::kMxfp4), base::WeightFormat::kMxfp4}};
constexpr std::span kMethods = std::span(strategy::kMethodNames).first<2>();  // no run is planned exactly
constexpr Word<RlAlgorithm> kAlgorithms[] = {{"none", RlAlgorithm::kNone},
                                             {"grpo", RlAlgorithm::kGrpo},
                                             {"dapo", RlAlgorithm::kDapo},
                                             {"dr_grpo", RlAlgorithm::kDrGrpo},
                                             {"reinforce", RlAlgorithm::kReinforce},
                                             {"ppo", RlAlgorithm::kPpo},
                                             {"dpo", RlAlgorithm::kDpo},
                                             {"kto", RlAlgorithm::kKto}};
constexpr Word<Baseline> kBaselines[] = {{"auto", Baseline::kAuto},
                                         {"group", Baseline::kGroup},
                                         {"mean", Baseline::kMean},
                                         {"leave_one_out", Baseline::kLeaveOneOut}};
constexpr Word<LossAggMode> kAggregates[] = {{"auto", LossAggMode::kAuto},
                                             {"token-mean", LossAggMode::kToken},
                                             {"seq-mean-token-mean", LossAggMode::kSequence},
                                             {"seq-mean-token-sum-norm", LossAggMode::kConstant}};
constexpr Word<OnBadReward> kOnBadReward[] = {
    {"stop", OnBadReward::kStop}, {"zero", OnBadReward::kZero}, {"drop", OnBadReward::kDrop}};
constexpr Word<Choose> kChoose[] = {{"auto", Choose::kAuto}, {"yes", Choose::kYes}, {"no", Choose::kNo}};
constexpr Word<SlowRankAction> kWatchActs[] = {
    {"tell", SlowRankAction::kTell}, {"plan", SlowRankAction::kPlan}, {"leave", SlowRankAction::kLeave}};
constexpr Word<RouterLoadBalancing> kBalances[] = {{"seq_aux_loss", RouterLoadBalancing::kSeqAuxLoss},
                                                   {"global_aux_loss", RouterLoadBalancing::kGlobalAuxLoss}};
constexpr Word<MtpUse> kMtpUses[] = {{"keep", MtpUse::kKeep}, {"train", MtpUse::kTrain}};
constexpr Word<ExpertPlacementPolicy> kPlaceExperts[] = {
    {"linear", ExpertPlacementPolicy::kLinear},
    {"load", ExpertPlacementPolicy::kByLoad},
    {"coactivation", ExpertPlacementPolicy::kByCoactivation}};
constexpr Word<HeadUse> kHeadUses[] = {{"none", HeadUse::kNone},     {"classify", HeadUse::kClassify},
                                       {"tokens", HeadUse::kTokens}, {"reward", HeadUse::kReward},
                                       {"value", HeadUse::kValue},   {"embed", HeadUse::kEmbed}};
constexpr Word<Divergence> kDivergences[] = {{"forward_kl", Divergence::kForwardKl},
                                             {"reverse_kl", Divergence::kReverseKl},
                                             {"jsd", Divergence::kJsd}};
constexpr Word<Problem> kProblems[] = {{"auto", Problem::kAuto},
                                       {"single_label_classification", Problem::kSingleLabel},
                                       {"multi_label_classification", Problem::kMultiLabel},
                                       {"regression", Problem::kRegression}};
constexpr Word<Pooling> kPoolings[] = {
    {"auto", Pooling::kAuto}, {"last", Pooling::kLast}, {"mean", Pooling::kMean}, {"cls", Pooling::kCls}};

// Sizes that the file leaves out are derived from earlier ones.
void visit_outline(model::Outline& outline, bool given, Fields& keys) {
  const model::ModelRanges& ranges = model::kModelRanges;
  const auto number = [&](const char* key, auto& value, const auto& range, const char* meaning) {
    keys(key, Given(given, Number(value, range)), meaning);
  };
  for (const model::OutlineSize& size : model::outline_sizes()) {
    int64_t& value = outline.*size.value;
    if (value == 0) value = size.otherwise(outline);
    number(size.name, value, size.range, size.meaning);
  }
  keys("tie_embeddings", Given(given, Flag(outline.tie_embeddings)), "the head has the embedding's matrix");
  number("norm_eps", outline.norm_eps, ranges.norm_eps, "epsilon of RMSNorm");
  model::Rope& rope = outline.rope;
  number("rope_theta", rope.theta, ranges.rope_theta, "base of the rotary frequencies");
  keys("rope_scaling", Given(given, Choice(rope.scaling, kRopeScalings)),
       "the rope_ keys have config.json's meaning");
  number("rope_factor", rope.factor, ranges.rope_factor, "");
  number("rope_low_freq_factor", rope.low_freq_factor, ranges.rope_factor, "");
  number("rope_high_freq_factor", rope.high_freq_factor, ranges.rope_factor, "");
  number("rope_original_max_position_embeddings", rope.original_max_position_embeddings, ranges.max_positions,
         "");
}

void visit_model(RunConfig& config, Fields& keys) {
  ModelConfig& model = config.model;
  keys("hf", Given(!model.given || !model.hf.empty(), Text(model.hf)),
       "a Hugging Face folder, or a model of the hub, ORGANISATION/NAME; or, instead of it, a shape:");
  model::Outline outline = model.given ? model.given->outline() : model::Outline{};
  visit_outline(outline, model.hf.empty(), keys);
  model.given = outline;
  keys("seed", OptionalNumber(model.seed, kSeeds), "seed of the initial weights; left out: data.seed");
  keys("base", Choice(model.base, kBases),
       "with LoRA: how ranks keep the frozen matrices of layers, which they expand on use (fine_tuning.md)");
}

// The keys that a phase may change.
void visit_training_data(DataConfig& data, Fields& keys) {
  keys("train", Corpora(data.train),
       "a corpus (its folder or prefix, or s3://BUCKET/NAME), a list of them, or of [corpus, weight] pairs; "
       "weights are fractions of the tokens");
  keys("context_length", Number(data.context_length, {2, (int64_t{1} << 31) - 1}),
       "most tokens of a sequence");
  keys("overflow", Choice(data.overflow, kOverflows),
       "documents that are longer: cut, cut into several sequences, or left out");
  keys("tokens_per_step", Number(data.tokens_per_step, {2, kSteps.most}),
       "most tokens of a step; at least one sequence is drawn");
  keys("batches", Text(data.batches),
       "a file that lists each step's documents instead of drawing them (formats.md); \"\": none");
  keys("seed", Number(data.seed, kSeeds), "seed of the order of documents");
}

void visit_data(RunConfig& config, Fields& keys) {
  DataConfig& data = config.data;
  visit_training_data(data, keys);
  keys("validation", ValidationSets(data.validation),
       "prefixes; or sets by name: {wiki = [\"corpora/wiki/corpus\"], code = [\"…\", \"…\"]}; or");
  keys("validation_fraction", Number(data.validation_fraction, {0.0, 0.9}),
       "fraction of the documents that is held out");
  keys("other_tokenizers", Flag(data.other_tokenizers),
       "whether corpora may be of another tokenizer than the model's, or than each other");
}

void visit_train(RunConfig& config, Fields& keys) {
  TrainConfig& train = config.train;
  keys("steps", Number(train.steps, {1, kSteps.most}), "steps of the whole run");
  keys("epochs", Number(train.epochs, {0.0, 1e6}),
       "passes over the training data; steps follow from them; 0: train.steps counts");
  keys("eval_every", Number(train.eval_every, kSteps), "steps between evaluations; 0: never");
  keys("patience", Number(train.patience, kSteps),
       "evaluations in a row that are no better than the best one, after which the run ends; 0: never");
  keys("eval_adapters", Texts(train.eval_adapters),
       "other adapters of the same base that evaluations try, too: NAME=FOLDER, in PEFT's format");
  keys("sample_every", Number(train.sample_every, kSteps),
       "steps between samples of the model's text in the log; each rank has the whole model then; 0: never");
  keys("sample_prompts", Texts(train.sample_prompts),
       "prompts of these samples; []: beginnings of held-out documents, or of others");
  keys("threads", Number(train.threads, {0, 4096}),
       "compute threads of a rank; 0: cores divided by local ranks");
  keys("join_timeout_s", Number(train.join_timeout_s, {1, kSeconds.most}),
       "seconds for all ranks to show up at the start");
  keys("stall_s", Number(train.stall_s, kSeconds),
       "seconds without progress after which a rank counts as lost (without elastic.enabled the run ends); "
       "0: never");
  keys("dtype", Choice(train.dtype, kComputeTypes),
       "type of compute; auto: bfloat16 on GPUs, float32 on CPUs");
  keys("gemm_dtype", Choice(config.parallel.low_precision_gemms, kProductFormats),
       "type that layers round matrices and rows to before they multiply; float8: all layers, on GPUs "
       "that multiply it (L40S, H100 or newer); the loss then depends on the strategy");
  keys("master_dtype", Choice(train.master_dtype, kMasterTypes),
       "type of the parameters that the optimiser updates (float64 where dtype is); bfloat16 rounds updates "
       "by "
       "chance, right in the mean, and saves 2 bytes a parameter or more");
  keys("reduce_dtype", Choice(train.reduce_dtype, kReduceTypes),
       "type of gradients on their way between FSDP ranks; sums are float32");
  keys("z_loss", Number(train.z_loss, {0.0, 1.0}),
       "factor of the squared log of the softmax's denominator, added to the loss, as 1e-4 (PaLM); the "
       "reported "
       "loss stays the cross-entropy; 0: none");
  keys("moe_aux_loss_coeff", Number(train.moe_aux_loss_coeff, {0.0, 10.0}),
       "factor of a loss that balances experts, as 1e-3 (supported_models.md); the reported loss stays "
       "the cross-entropy; 0: none");
  keys("moe_router_load_balancing_type", Choice(train.moe_router_load_balancing_type, kBalances),
       "the assignments that it balances: each sequence's, or all of the last step");
  keys("moe_router_bias_update_rate", Number(train.moe_router_bias_update_rate, {0.0, 1.0}),
       "a step's change of the numbers that routers of DeepSeek-V3's and GLM's kind add to scores, against "
       "experts with more tokens than the mean one; 0: they stay");
  keys(
      "mtp", Choice(train.mtp, kMtpUses),
      "the layer that predicts the token after the next one (MTP), where the model's files have it: exported "
      "as it came, or trained beside the head (training.md)");
  keys("mtp_loss_weight", Number(train.mtp_loss_weight, {0.0, 10.0}),
       "factor of that layer's loss; the reported loss is the head's alone");
  keys("device", Choice(train.device, kDevices), "auto: a GPU where there is one");
  keys("on_nonfinite", Choice(train.on_nonfinite, kOnNonfinite),
       "after a step whose loss or gradient is not finite, whose update is left out: save and stop; skip: go "
       "on with the next batch, unless 10 in a row are so");
  keys("deterministic", Flag(train.deterministic),
       "on GPUs the same bits each time, at the cost of speed; on CPUs always so");
  keys("freeze", Texts(train.freeze), "names of parameters or modules that are not trained (fine_tuning.md)");
}

void visit_ppo(RlConfig& rl, Fields& keys) {
  keys("critic", Text(rl.critic),
       "ppo: folder of the model that the critic begins as, with a new value head where it has none; \"\": "
       "model.hf");
  keys("critic_lr", OptionalNumber<double>(rl.critic_lr, kRates, "auto"),
       "ppo: learning rate of the critic; auto: optimizer.lr");
  keys("gamma", Number(rl.gamma, {0.0, 1.0}), "ppo: discount of rewards by tokens");
  keys("gae_lambda", Number(rl.gae_lambda, {0.0, 1.0}), "ppo: lambda of generalised advantage estimation");
  keys("value_clip", Number(rl.value_clip, {0.0, 1e6}),
       "ppo: how far values may move from those before a rollout's updates; 0: any way");
}

void visit_rewards(RlConfig& rl, Fields& keys) {
  keys("reward", Texts(rl.reward),
       "rewards, added up: exact | number | regex:PATTERN | python:FILE.py:FUNCTION, against the document's "
       "own answer; "
       "model:FOLDER, a reward model's score of prompt and response");
  keys("reward_base", Choice(rl.reward_base, kBases),
       "format of the matrices of reward models' layers (fine_tuning.md): none, or codes of 4 or 8 bits");
  keys("reward_timeout_s", Number(rl.reward_timeout_s, {1e-3, 1e6}),
       "seconds for the reward of one response");
  keys("on_bad_reward", Choice(rl.on_bad_reward, kOnBadReward),
       "after a reward that fails: end the run, count 0, or leave the response out");
  keys("python", Path(rl.python), "Python with the packages that reward functions import; empty: python3");
}

void visit_rl(RunConfig& config, Fields& keys) {
  RlConfig& rl = config.rl;
  keys("algorithm", Choice(rl.algorithm, kAlgorithms),
       "none: learn the documents; all but dpo and kto decide the keys below that are \"auto\" "
       "(reinforcement.md)");
  keys("prompts_per_step", Number(rl.prompts_per_step, {1, 1 << 20}),
       "prompts of a rollout; with dpo pairs of a step, with kto answers of either kind");
  keys("gen_batch_size", OptionalNumber<int64_t>(rl.gen_batch_size, {1, 1 << 20}, "auto"),
       "dynamic_sampling: prompts that are answered at once; auto: prompts_per_step");
  keys("num_generations", Number(rl.num_generations, {1, 1 << 16}), "responses to each prompt");
  keys("updates_per_rollout", Number(rl.updates_per_rollout, {1, 1 << 16}),
       "steps that train on one rollout");
  keys("max_completion_length", Number(rl.max_completion_length, {1, (int64_t{1} << 31) - 1}),
       "most tokens of a response");
  keys("temperature", Number(rl.temperature, {1e-3, 1e3}),
       "temperature of the policy, in rollouts and updates alike");
  visit_rewards(rl, keys);
  keys("val_max_samples", Number(rl.val_max_samples, {0, 1 << 24}),
       "prompts of each validation set that are answered, greedily, at evaluations");
  keys(
      "baseline", Choice(rl.baseline, kBaselines),
      "baseline of a group's rewards: its mean, in standard deviations; its mean; or the mean of the others");
  keys(
      "loss_agg_mode", Choice(rl.loss_agg_mode, kAggregates),
      "loss of a step: the mean over tokens; the mean over responses' means; or the sum over the most tokens "
      "that responses may have");
  keys("clip_low", OptionalNumber<double>(rl.clip_low, {0.0, 1.0}, "auto"),
       "clip range of the ratio below 1");
  keys("clip_high", OptionalNumber<double>(rl.clip_high, {0.0, 1e6}, "auto"),
       "clip range of the ratio above 1");
  keys("dual_clip", Number(rl.dual_clip, {0.0, 1e6}),
       "bound of the ratio where the advantage is negative, as 10; 0: none");
  keys("kl", Number(rl.kl, {0.0, 1e3}),
       "factor of the divergence from the model that the run began with: in the loss, with ppo in each "
       "token's "
       "reward");
  visit_ppo(rl, keys);
  keys("dynamic_sampling", Choice(rl.dynamic_sampling, kChoose),
       "prompts whose responses all have the same reward are replaced by others");
  keys("max_resamples", Number(rl.max_resamples, {1, 1 << 16}),
       "draws of prompts_per_step prompts in a rollout, the first one included");
  keys("overlong_buffer", OptionalNumber<int64_t>(rl.overlong_buffer, {0, int64_t{1} << 31}, "auto"),
       "last tokens of max_completion_length in which the reward falls by up to 1");
  keys("kv_cache_gib", Number(rl.kv_cache_gib, kGib), "KV cache of a rank in rollouts, GiB");
  keys("max_num_seqs", Number(rl.max_num_seqs, {1, 1 << 20}),
       "sequences that a rank generates at the same time");
  keys("rollout_strategy", Text(config.parallel.rollout_strategy),
       "strategy that generates samples and responses, as '4x tp2'; '': as few ranks for a model as hold it");
  keys("share_prompts", OptionalFlag(rl.share_prompts, "auto"),
       "whether steps may compute a prompt once for several answers to it; auto: where the model allows it");
  keys("rejected", Texts(rl.rejected),
       "dpo, kto: corpora of the worse answers; with dpo in the order and numbering of data.train's");
  keys("beta", Number(rl.beta, {1e-6, 1e3}), "dpo, kto: how near the model stays to the reference");
  keys("desirable_weight", Number(rl.desirable_weight, {0.0, 1e6}),
       "kto: weight of the losses of data.train's answers");
  keys("undesirable_weight", Number(rl.undesirable_weight, {0.0, 1e6}),
       "kto: weight of the losses of rl.rejected's answers");
}

// An array of tables, written [[optimizer.groups]].
class Groups final : public FieldValue {
 public:
  explicit Groups(std::vector<GroupConfig>& value) : value_(value) {}

  void read(TomlSection& section, const std::string& key) override {
    const toml::array* tables = section.node(key)->as_array();
    const bool whole =
        tables != nullptr && (tables->empty() || tables->is_homogeneous(toml::node_type::table));
    if (!whole) section.refuse(key, "tables, written [[optimizer.groups]]");
    value_.clear();
    for (const toml::node& table : *tables) {
      TomlSection of_group(table.as_table(), "optimizer.groups", section.file());
      FieldReader reader(of_group);
      GroupConfig& group = value_.emplace_back();
      visit(group, reader);
      if (group.parameters.empty())
        of_group.wrong("parameters", "is missing: give patterns of names, as \"model.embed_tokens.*\"");
      if (!of_group.has("lr")) of_group.wrong("lr", "is missing: give the group's learning rate");
      of_group.finish();
    }
  }

  void write(toml::table& table, const std::string& key) const override {
    toml::array array;
    for (GroupConfig& group : value_) {
      FieldWriter writer;
      visit(group, writer);
      writer.table.is_inline(true);
      array.push_back(std::move(writer.table));
    }
    table.insert(key, std::move(array));
  }

 private:
  std::vector<GroupConfig>& value_;
};

void visit_optimizer(RunConfig& config, Fields& keys) {
  OptimizerConfig& optimizer = config.optimizer;
  keys("name", Choice(optimizer.name, kOptimizers),
       "adamw_8bit keeps its moments in 8 bits: 10 bytes for a parameter that a rank owns, in place of 16; "
       "muon: for the matrices of layers, AdamW for the rest (training.md)");
  keys("lr", Number(optimizer.lr, kRates), "the highest learning rate");
  keys("betas", Betas(optimizer.betas), "decay rates of the moments");
  keys("eps", Number(optimizer.eps, {0, 1}), "");
  keys("weight_decay", Number(optimizer.weight_decay, kRates), "not for parameters of one dimension");
  keys("clip", Number(optimizer.clip, {0, 1e30}), "bound of the global gradient norm; 0: off");
  keys("warmup_steps", Number(optimizer.warmup_steps, kSteps),
       "steps of warm-up: lr * (step + 1) / warmup_steps");
  keys("decay", Choice(optimizer.decay, kDecays),
       "wsd: constant up to its last steps, which fall on a line; inverse_sqrt: lr * sqrt(warmup_steps / "
       "(step + 1)), at least min_lr");
  keys("decay_steps", Number(optimizer.decay_steps, kSteps),
       "wsd: last steps, on which lr falls; 0: a tenth of all");
  keys("min_lr", Number(optimizer.min_lr, kRates), "learning rate at the end");
  keys("momentum", Number(optimizer.momentum, {0, 1}), "muon: this key and the next two");
  keys("adjust_lr", Choice(optimizer.adjust_lr, kMuonRates),
       "match_rms_adamw: lr * 0.2 * sqrt(max(A, B)) for a matrix [A, B]; original: lr * sqrt(max(1, A / B))");
  keys("ns_steps", Number(optimizer.ns_steps, {1, 100}), "Newton-Schulz steps");
  keys("groups", Groups(optimizer.groups), "parameters with learning rates of their own: see below");
}

void visit_head(RunConfig& config, Fields& keys) {
  HeadConfig& head = config.head;
  keys("kind", Choice(head.kind, kHeadUses),
       "none: the vocabulary; classify: classes or figures of sequences; tokens: of each token; reward: "
       "which of "
       "two answers is better; value: a figure of each token; embed: embeddings of sequences");
  keys("labels", Texts(head.labels), "names of the classes, in order; []: those of the model folder");
  keys("problem_type", Choice(head.problem, kProblems),
       "classify, tokens: the kind of target, as transformers means it; auto: the model folder's, or else "
       "classes, "
       "with a single label a figure");
  keys("pairs_per_step", Number(head.pairs_per_step, {1, 1 << 20}), "reward, embed: pairs of a step");
  keys("rejected", Texts(head.rejected),
       "reward: corpora of the worse answers, in the order of data.train's");
  keys("center_rewards", Number(head.center_rewards, {0.0, 1e3}),
       "reward: factor of the squared sum of a pair's rewards, added to the loss");
  keys("positives", Texts(head.positives),
       "embed: corpora of the positives of data.train's documents, in the same order");
  keys("negatives", Texts(head.negatives), "embed: corpora of hard negatives, likewise");
  keys("temperature", Number(head.temperature, {1e-4, 1e2}), "embed: cosines are divided by it");
  keys("matryoshka", Integers(head.matryoshka, {1, 1 << 20}, "widths"),
       "embed: widths at which embeddings may also be cut off; each adds its loss to that of all numbers");
  keys("pooling", Choice(head.pooling, kPoolings),
       "classify, reward, embed: the state that stands for a sequence: the last token's, the mean, or the "
       "first's; "
       "auto: as the model folder says, else the last of decoders and the mean of encoders");
}

void visit_lora(RunConfig& config, Fields& keys) {
  LoraConfig& lora = config.lora;
  keys("rank", Number(lora.rank, {0, 1 << 16}), "0: no adapters");
  keys("alpha", Number(lora.alpha, {1e-6, 1e6}), "the adapters' output is multiplied by alpha / rank");
  keys("targets", Texts(lora.targets),
       "or \"all-linear\"; with a rank and an alpha of its own: \"q_proj:4:32\"");
  keys("rank_pattern", TargetPattern(lora, TargetPattern::Of::kRank),
       "ranks of targets, as { q_proj = 4 }; read into targets, as the next two");
  keys("alpha_pattern", TargetPattern(lora, TargetPattern::Of::kAlpha), "alphas of targets");
  keys("use_rslora", RankStabilised(lora), "alpha / sqrt(rank) instead (rsLoRA); read into alpha");
  keys("dora", Flag(lora.dora), "trains the magnitudes of outputs apart from their directions (DoRA)");
}

void visit_parallel(RunConfig& config, Fields& keys) {
  ParallelConfig& parallel = config.parallel;
  keys("strategies", Texts(parallel.strategies, "auto"),
       "auto | a strategies.json | strategies as '4x tp2', or files of them");
  keys("proposed", Flag(parallel.proposed),
       "in a run's own config.toml: whether the strategies are those that \"auto\" came to");
  keys("select", SelectValue(parallel.select), "cycle: step modulo count");
  keys("method", Choice<strategy::MethodName>(parallel.method, kMethods), "paper knows no lanes");
  keys("exchange", Choice(parallel.exchange, strategy::kExchangeRules),
       "between CP ranks that share a sequence; auto: the cheapest of ring, heads and nested for each "
       "micro-batch; cycle: all in turn, by the tokens of micro-batches, to see them at work");
  keys("stages", Choice(parallel.stages, strategy::kStageCuts),
       "cut by the time of layers, embedding and head at the run's lengths; or evenly by layers");
  keys("max_cp", Number(parallel.max_cp, {0, 1 << 20}),
       "most lanes of a pipeline that \"auto\" may propose, 0: all ranks'; configured strategies may have "
       "any");
  keys("fsdp", Flag(parallel.fsdp), "whether \"auto\" may propose FSDP");
  keys("calibration", Text(parallel.calibration),
       "a file | a shipped name | analytic | auto: rank 0 measures once");
  keys("expert_placement", Choice(parallel.expert_placement, kPlaceExperts),
       "experts of EP ranks: even parts in their order; or, anew every expert_placement_every steps, by the "
       "tokens since then, so that ranks have equal load; coactivation: and experts that tokens choose "
       "together "
       "on one rank");
  keys("expert_placement_every", Number(parallel.expert_placement_every, {1, 1 << 20}), "steps");
  keys("redundant_experts", Number(parallel.redundant_experts, {0, 1 << 12}),
       "expert slots of each EP rank beyond an even part: copies of the experts with most tokens");
  keys("gpus_per_node", Number(parallel.gpus_per_node, kRanks), "neighbouring ranks on a machine");
  keys("devices", Choice(parallel.devices, kDeviceWords),
       "measured: ranks time a product at the start, and later what steps take, and plans give those that "
       "differ as much work as they do");
  keys("low_precision_layers", Choice(parallel.low_precision_layers, kNarrowLayers),
       "layers that train.gemm_dtype is for. minimal: on devices that are slower than the fastest, as few as "
       "let them keep up, and those that add least noise to the gradient; all: on all devices; auto: all for "
       "float8, else minimal");
}

void visit_cluster(RunConfig& config, Fields& keys) {
  keys("preset", Text(config.cluster.preset), "local: this machine; a preset, or a cluster file");
  keys("nodes", Number(config.cluster.nodes, kRanks), "nodes of a preset");
}

void visit_memory(RunConfig& config, Fields& keys) {
  MemoryConfig& memory = config.memory;
  keys("device_gib", Number(memory.device_gib, kGib), "memory of a rank's device; 0: ask the device");
  keys("margin_gib", OptionalNumber<double>(memory.margin_gib, kGib, "auto"),
       "part of device_gib that stays free; auto: 2 on GPUs, elsewhere a tenth where that is less");
  keys("host_gib", Number(memory.host_gib, kGib),
       "host memory of a rank for offloaded activations; 0: an even part of the memory that is available");
  keys("recompute", NamedShare(memory.recompute, "none", "full"),
       "fraction of the layers with activation checkpointing; auto: as few as let a batch fit");
  keys("offload", OptionalNumber<double>(memory.offload, {0.0, 1.0}, "auto"),
       "fraction of each layer's activations; auto: where it hides behind compute and makes the context fit, "
       "or on GPUs "
       "steps shorter; and as much as the context needs where nothing else holds it");
}

void visit_checkpoint(RunConfig& config, Fields& keys) {
  CheckpointConfig& checkpoint = config.checkpoint;
  keys("every", Number(checkpoint.every, kSteps),
       "steps between checkpoints; 0: the last step alone, after which every run saves");
  keys("async", Flag(checkpoint.async),
       "training goes on while a checkpoint is written, from a copy in host memory");
  keys("keep", Number(checkpoint.keep, {1, 1 << 20}), "newest checkpoints that stay; and");
  keys("keep_hours", Number(checkpoint.keep_hours, {0, 1 << 20}), "those written within so many hours; and");
  keys("keep_best", Flag(checkpoint.keep_best),
       "the best one: of the lowest validation loss, or the highest reward of held-out answers; each "
       "evaluation "
       "that is better than those before is followed by a checkpoint");
  keys("mirror", Text(checkpoint.mirror),
       "a directory, or s3://BUCKET/NAME, for a second copy of each checkpoint; \"\": none");
}

void visit_elastic(RunConfig& config, Fields& keys) {
  ElasticConfig& elastic = config.elastic;
  keys("enabled", Flag(elastic.enabled),
       "whether a run goes on without ranks that were lost, under every launcher");
  keys("snapshot_every", OptionalNumber<int64_t>(elastic.snapshot_every, {1, kSteps.most}, "auto"),
       "steps between two snapshots in memory; auto: so many that they cost a hundredth of the time, fewer "
       "where ranks are lost often");
}

void visit_log(RunConfig& config, Fields& keys) {
  keys("dir", Path(config.log.dir), "the run directory");
  keys("tensorboard", Flag(config.log.tensorboard), "");
  keys("wandb", Text(config.log.wandb),
       "project of Weights & Biases to which a Python process copies the metrics; \"\": none");
  keys("mlflow", Text(config.log.mlflow), "experiment of MLflow, likewise");
  keys("metrics", Text(config.log.metrics),
       "where rank 0 serves the newest step to Prometheus, as \"127.0.0.1:9464\"; \"\": nowhere");
  keys("prometheus", Text(config.log.prometheus),
       "a file in which the newest step stands as Prometheus reads it, as NAME.prom in the directory of "
       "node_exporter's textfile collector; \"\": none");
  keys("trace_steps", Integers(config.log.trace_steps, kSteps, "steps"), "steps whose timeline is written");
  keys("completions_every", Number(config.log.completions_every, kSteps),
       "in reinforcement learning, steps between rollouts of which the log, completions.jsonl, TensorBoard "
       "and the "
       "report show some responses with their rewards; 0: never");
}

void visit_watch(RunConfig& config, Fields& keys) {
  WatchConfig& watch = config.watch;
  keys("on_slow", Choice(watch.on_slow, kWatchActs),
       "after an alarm about a slow rank: tell: log it; plan: give it less work; leave: it leaves the run "
       "where "
       "fewer ranks are faster");
  keys("critical_path_every", Number(watch.critical_path_every, kSteps),
       "steps between two looks at the critical path; 0: never");
}

void visit_link(RunConfig& config, Fields& keys) {
  keys("pull", Choice(config.link.pull, kPullCodecs),
       "type of parameters on their way from their owners. int8-difference, int4-difference: the change of "
       "the last "
       "update, to ranks that have the parameters before it; all ranks compute with the same numbers. auto: "
       "the type "
       "of compute");
  keys("push", InAndBetween(config.link.push, kCodecs),
       "type of gradients on their way to their owners, and between FSDP ranks; or two types: inside nodes "
       "and "
       "between them; sums are float32, and counts, norms and biases travel so. auto: "
       "bfloat16 to owners where that computes, else as they are summed, or as train.reduce_dtype says");
  keys("gather", Choice(config.link.gather, kCodecs),
       "type of parameters in all-gathers between FSDP ranks; all ranks of a group compute with the received "
       "numbers. "
       "auto: the type of compute");
}

void visit_teacher(RunConfig& config, Fields& keys) {
  TeacherConfig& teacher = config.teacher;
  keys("hf", Texts(teacher.hf),
       "folder of a language model of the same tokenizer, which stays as it is; or several; []: none");
  std::erase(teacher.hf, "");
  keys("weights", Numbers(teacher.weights, kTeacherWeights, "weights"),
       "of several teachers: parts of the loss that their divergences are, relative to the sum; []: all "
       "alike");
  keys("base", Choice(teacher.base, kBases),
       "format of the matrices of the teachers' layers (fine_tuning.md): none, or codes of 4 or 8 bits");
  keys("divergence", Choice(teacher.divergence, kDivergences),
       "loss of each token: forward_kl from the trained model to the teacher, "
       "reverse_kl from the teacher to it, or jsd between both");
  keys("beta", Number(teacher.beta, {1e-3, 0.999}),
       "jsd: the teacher's part of the mixture; near 0 as forward_kl, near 1 as reverse_kl");
  keys("temperature", Number(teacher.temperature, {1e-2, 1e2}), "both models' logits are divided by it");
  keys("alpha", Number(teacher.alpha, {0.0, 1.0}),
       "weight of the divergence in the loss; the rest is the cross-entropy of the documents' tokens");
  keys("lmbda", Number(teacher.lmbda, {0.0, 1.0}),
       "fraction of the steps that learn from responses that the trained model samples itself, to the "
       "prompts of the "
       "step's conversations");
}

constexpr Section kSections[] = {
    {"model", "", visit_model},
    {"data", "", visit_data},
    {"train", "", visit_train},
    {"rl", "learning from rewards or preferences (reinforcement.md)", visit_rl},
    {"head", "heads in place of a vocabulary (heads.md)", visit_head},
    {"teacher", "distillation from another model (distillation.md)", visit_teacher},
    {"optimizer", "AdamW, by PyTorch's formulas", visit_optimizer},
    {"lora", "adapters (fine_tuning.md)", visit_lora},
    {"parallel", "", visit_parallel},
    {"link", "compressed communication (training.md)", visit_link},
    {"cluster", "for plan and simulate; training asks the machine (train --dry-run takes --cluster)",
     visit_cluster},
    {"memory", "", visit_memory},
    {"checkpoint", "", visit_checkpoint},
    {"elastic", "a rank that is lost costs the steps since the last snapshot (operating.md)", visit_elastic},
    {"log", "", visit_log},
    {"watch", "slow ranks (operating.md)", visit_watch},
};

}  // namespace

std::span<const Section> sections() { return kSections; }

void visit(PhaseConfig& phase, Fields& keys) {
  keys("step", Number(phase.step, {1, kSteps.most}),
       "the first one under it; what is left out is as before:");
  visit_training_data(phase.data, keys);
}

void visit(GroupConfig& group, Fields& keys) {
  keys("parameters", Texts(group.parameters), "as in train.freeze");
  keys("lr", Number(group.lr, kRates), "in place of optimizer.lr, under the same schedule");
  keys("weight_decay", OptionalNumber(group.weight_decay, kRates), "of vectors, too; left out: as above");
}

}  // namespace sluice::config
