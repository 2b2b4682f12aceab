// A run's configuration as values. Keys' names, ranges and meanings stand in keys.cpp; config_file.h reads
// and writes files.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/gemm_format.h"
#include "base/moment_format.h"
#include "corpus/sampler.h"
#include "model/head_chunk_rows.h"
#include "model/model.h"
#include "strategy/cluster.h"
#include "strategy/planning_words.h"
#include "strategy/wire_codec.h"

namespace sluice::config {

struct ModelConfig {
  std::string hf;                        // Hugging Face folder; empty: the file's keys give the model
  std::optional<model::Model> given;     // by keys
  std::optional<model::Model> resolved;  // with its head and tuning, by resolve_model(); before: as given
  std::optional<int64_t> seed;           // seed of initial weights; none: data.seed
  base::WeightFormat base = base::WeightFormat::kPlain;  // format of weights that a LoRA run freezes
};

// Corpora that are evaluated together.
struct ValidationSet {
  std::string name;  // empty: the only one
  std::vector<std::string> prefixes;
};

struct DataConfig {
  std::vector<std::pair<std::string, double>> train;  // corpus prefix, weight
  std::vector<ValidationSet> validation;
  double validation_fraction = 0.0;
  int64_t context_length = 2048;
  corpus::Overflow overflow = corpus::Overflow::kTruncate;
  int64_t tokens_per_step = 16384;
  std::string batches;            // file that lists batches (corpus/batch_list.h); empty: batches are drawn
  bool other_tokenizers = false;  // whether corpora may have another tokenizer than the model
  int64_t seed = 1;
};

// The training data from a step on.
struct PhaseConfig {
  int64_t step = 0;  // first step
  DataConfig data;   // keys that the file leaves out have the previous phase's values
};

enum class ComputeType : uint8_t { kFloat32, kBFloat16, kFloat64, kAuto };
// Type of updated parameters: float32 (float64 with float64 compute), or stochastically rounded bfloat16.
enum class MasterType : uint8_t { kWide, kBFloat16 };
enum class ReduceType : uint8_t { kFloat32, kBFloat16 };
// Assignments counted to balance experts: those of the token's sequence, or of the whole last step.
enum class RouterLoadBalancing : uint8_t { kSeqAuxLoss, kGlobalAuxLoss };
enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };
// Layers of the model's files that predict further tokens (MTP): exported as they came, or trained.
enum class MtpUse : uint8_t { kKeep, kTrain };
// Reaction to a step whose loss or gradient is not finite. Its update is left out in any case.
enum class OnNonfinite : uint8_t { kStop, kSkip };

struct TrainConfig {
  int64_t steps = 100;  // in the whole run; set from `epochs` if that is given
  double epochs = 0;    // passes over the training data (run/epochs.h); 0: use `steps`
  int64_t eval_every = 0;
  int64_t patience = 0;  // evaluations without improvement after which the run ends; 0: never
  // Adapters that evaluations try in place of the trained one: NAME=FOLDER, in PEFT's format.
  std::vector<std::string> eval_adapters;
  int64_t sample_every = 0;                 // steps between sample texts that the model generates; 0: never
  std::vector<std::string> sample_prompts;  // their prompts; empty: beginnings of held-out documents
  int threads = 0;                          // compute threads of a rank; 0: cores ÷ local ranks
  int64_t join_timeout_s = 60;              // limit for all ranks to appear at the start
  int64_t stall_s = 60;  // a rank without progress for so long ends the membership, or without [elastic] the
                         // run; 0: never
  ComputeType dtype = ComputeType::kAuto;
  MasterType master_dtype = MasterType::kWide;
  // The type of gradients in reduce-scatters of share groups.
  ReduceType reduce_dtype = ReduceType::kFloat32;
  double moe_aux_loss_coeff = 0;  // factor of experts' auxiliary loss (layers/balance.h); 0: none
  RouterLoadBalancing moe_router_load_balancing_type = RouterLoadBalancing::kSeqAuxLoss;
  double moe_router_bias_update_rate = 0.001;  // per step, of routers with bias corrections (model::Learns)
  double z_loss = 0;  // factor of log²Z added to the cross-entropy (layers/loss.h); 0: none
  MtpUse mtp = MtpUse::kKeep;
  double mtp_loss_weight = 0.1;  // factor of an MTP layer's loss
  DeviceChoice device = DeviceChoice::kAuto;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  bool deterministic = false;       // bitwise repeatable on GPUs, but slower; always so on CPUs
  std::vector<std::string> freeze;  // name patterns of parameters that are not trained (model/tuning.h)
};

// Learning from rewards or preferences. If a key is auto, the algorithm decides its value
// (rl/objective.h).
enum class RlAlgorithm : uint8_t { kNone, kGrpo, kDapo, kDrGrpo, kReinforce, kPpo, kDpo, kKto };
// Baseline of a response's reward: its group's mean, scaled by the group's standard deviation; the mean
// alone; or the mean of the group's other responses.
enum class Baseline : uint8_t { kAuto, kGroup, kMean, kLeaveOneOut };
enum class LossAggMode : uint8_t { kAuto, kToken, kSequence, kConstant };
enum class Choose : uint8_t { kAuto, kYes, kNo };

// Treatment of a response whose reward function fails.
enum class OnBadReward : uint8_t { kStop, kZero, kDrop };

struct RlConfig {
  RlAlgorithm algorithm = RlAlgorithm::kNone;
  int64_t prompts_per_step = 32;             // trained response groups of a rollout
  std::optional<int64_t> gen_batch_size;     // prompts of a dynamic-sampling draw; none: prompts_per_step
  int num_generations = 8;                   // responses to each prompt
  int64_t updates_per_rollout = 1;           // number of mini-batches of a rollout
  int64_t max_completion_length = 1024;      // tokens
  double temperature = 1;                    // the policy's, in sampling and in training
  std::vector<std::string> reward{"exact"};  // rl/reward.h
  base::WeightFormat reward_base = base::WeightFormat::kPlain;  // of the matrices of reward models' layers
  double reward_timeout_s = 10;
  OnBadReward on_bad_reward = OnBadReward::kStop;
  std::filesystem::path python;   // interpreter for Python rewards; empty: python3 of PATH
  int64_t val_max_samples = 256;  // prompts of each validation set that are answered in evaluations
  Baseline baseline = Baseline::kAuto;
  LossAggMode loss_agg_mode = LossAggMode::kAuto;
  std::optional<double> clip_low;
  std::optional<double> clip_high;
  double dual_clip = 0;
  double kl = 0;                    // factor of the KL divergence from the reference policy
  std::string critic;               // PPO: folder of the critic's initial model; empty: model.hf
  std::optional<double> critic_lr;  // PPO; none: optimizer.lr
  double gamma = 1;                 // PPO: discount of later tokens' rewards
  double gae_lambda = 0.95;         // PPO: of generalised advantage estimation
  double value_clip = 0.2;  // PPO: limit on values' change from those before a rollout's updates; 0: none
  Choose dynamic_sampling = Choose::kAuto;
  int64_t max_resamples = 10;
  std::optional<int64_t> overlong_buffer;
  double kv_cache_gib = 1;  // KV cache of a rank for generation
  int64_t max_num_seqs = 256;
  // Whether steps compute a prompt once for its responses (session/prompt_responses.h); none: if the model
  // allows it.
  std::optional<bool> share_prompts;
  std::vector<std::string> rejected;  // DPO, KTO: corpora of worse answers; for DPO parallel to data.train
  double beta = 0.1;                  // DPO, KTO
  double desirable_weight = 1;        // KTO: weight of losses of data.train's answers
  double undesirable_weight = 1;

  // Whether steps train on text that the policy generates.
  bool rolls_out() const { return algorithm != RlAlgorithm::kNone && !prefers(); }
  // Whether steps train on preferences: better and worse answers.
  bool prefers() const { return algorithm == RlAlgorithm::kDpo || algorithm == RlAlgorithm::kKto; }
};

// The model's head and its target: a vocabulary; classes or numbers for sequences, or for tokens; which of
// two answers is better; a value for each token; an embedding of a text.
enum class HeadUse : uint8_t { kNone, kClassify, kTokens, kReward, kValue, kEmbed };
// For classify and tokens: derived from labels, or one of transformers' problem_type values.
enum class Problem : uint8_t { kAuto, kSingleLabel, kMultiLabel, kRegression };
// Rows pooled into a text's representation; kAuto: the model folder's, or the usual ones of its class.
enum class Pooling : uint8_t { kAuto, kLast, kMean, kCls };

struct HeadConfig {
  HeadUse kind = HeadUse::kNone;
  std::vector<std::string> labels;  // class names by number; empty: the model folder's
  Problem problem = Problem::kAuto;
  int64_t pairs_per_step = 32;         // reward, embed
  std::vector<std::string> rejected;   // reward: corpora of answers worse than data.train's
  double center_rewards = 0;           // reward: factor of (r₁ + r₂)², which keeps their mean near 0
  std::vector<std::string> positives;  // embed: corpora of texts close to data.train's, document by document
  std::vector<std::string> negatives;  // embed: corpora of texts that are not
  double temperature = 0.05;           // embed: cosines are divided by it
  Pooling pooling = Pooling::kAuto;    // classify, reward, embed
  std::vector<int64_t> matryoshka;     // embed: widths with losses added to the full width's

  // Whether a step takes pairs of related texts.
  bool pairs() const { return kind == HeadUse::kReward || kind == HeadUse::kEmbed; }
  // Whether documents have labels.
  bool labelled() const { return kind != HeadUse::kNone && !pairs(); }
};

// The part of a teacher's distribution that a student learns.
using model::Divergence;

struct TeacherConfig {
  std::vector<std::string> hf;  // folders of the teachers; empty: tokens of documents are the only targets
  std::vector<double> weights;  // of the teachers' divergences, relative to their sum; empty: all alike
  base::WeightFormat base = base::WeightFormat::kPlain;  // format of the matrices of the teachers' layers
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;       // for kJsd
  double temperature = 1;  // both models' logits are divided by it
  double alpha = 1;        // weight of the divergence in the loss; the rest is the tokens' cross-entropy
  double lmbda = 0;        // share of steps on responses sampled from the trained model
};

// Adapters (model::Lora).
struct LoraConfig {
  int64_t rank = 0;  // 0: none
  double alpha = 16;
  std::vector<std::string> targets{"q_proj", "k_proj", "v_proj", "o_proj"};
  bool dora = false;
};

// Parameters whose names match one of `parameters` and no earlier group's patterns.
struct GroupConfig {
  std::vector<std::string> parameters;
  double lr = 0;                       // replaces optimizer.lr, under the same schedule
  std::optional<double> weight_decay;  // also for vectors; none: optimizer.weight_decay's rule
  bool operator==(const GroupConfig&) const = default;
};

// The learning rate's decay after its warm-up. WSD: constant, then linear in the last steps. Inverse square
// root: proportional to 1/√step.
enum class Decay : uint8_t { kCosine, kLinear, kConstant, kWsd, kInverseSqrt };

enum class OptimizerName : uint8_t { kAdamW, kAdamW8Bit, kMuon };
// Factor on Muon's learning rate of a matrix, named as in torch.optim.Muon.
enum class MuonRate : uint8_t { kMatchRmsAdamW, kOriginal };

struct OptimizerConfig {
  OptimizerName name = OptimizerName::kAdamW;
  double momentum = 0.95;  // these three: Muon
  MuonRate adjust_lr = MuonRate::kMatchRmsAdamW;
  int64_t ns_steps = 5;
  double lr = 3e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  int64_t warmup_steps = 10;
  Decay decay = Decay::kCosine;
  int64_t decay_steps = 0;  // WSD: length of the decay; 0: a tenth of all steps
  double min_lr = 3e-5;
  std::vector<GroupConfig> groups;  // the first matching group counts

  // Newton-Schulz steps of matrices that are updated as a whole; 0: none.
  int64_t matrix_steps() const { return name == OptimizerName::kMuon ? ns_steps : 0; }
  base::MomentFormat moments() const {
    return name == OptimizerName::kAdamW8Bit ? base::MomentFormat::k8Bit : base::MomentFormat::kWide;
  }
};

// The rule by which a step chooses among candidate strategies: the best, each in turn, or a fixed one.
struct Select {
  strategy::Selection rule = strategy::Selection::kBest;
  int candidate = 0;  // for kFixed
  bool operator==(const Select&) const = default;
};

// Placement of experts on the lanes that divide them: even parts in order; by load so far; or by load and by
// experts activated together.
enum class ExpertPlacementPolicy : uint8_t { kLinear, kByLoad, kByCoactivation };

// Whether ranks are assumed to be equal, or measured.
enum class Devices : uint8_t { kUniform, kMeasured };

// Layers with low-precision GEMMs: as few as slower devices need to keep up, or all layers on all devices.
// Auto: all for 8-bit floats, which make any GPU with their units faster, else minimal.
enum class LowPrecisionLayers : uint8_t { kAuto, kMinimal, kAll };

struct ParallelConfig {
  std::vector<std::string> strategies;  // empty: "auto"; else texts, or one path of a strategies.json
  bool proposed = false;                // whether a run filled in the strategies for "auto"
  Select select;
  strategy::MethodName method = strategy::MethodName::kOurs;
  strategy::ExchangeRule exchange = strategy::ExchangeRule::kAuto;
  strategy::StageCut stages = strategy::StageCut::kTime;
  int max_cp = 0;                    // highest CP degree that "auto" may propose; 0: any
  bool fsdp = true;                  // whether "auto" may propose FSDP degrees above 1
  std::string calibration = "auto";  // a file | a shipped name | analytic | auto
  std::string rollout_strategy;      // strategy for generation; empty: as few ranks per model as hold it
  ExpertPlacementPolicy expert_placement = ExpertPlacementPolicy::kLinear;
  int64_t expert_placement_every = 10;  // steps
  int redundant_experts = 0;  // expert slots of a lane beyond an even part, for copies of the busiest experts
  int gpus_per_node = 8;
  Devices devices = Devices::kUniform;
  base::GemmFormat low_precision_gemms = base::GemmFormat::kAsComputed;
  LowPrecisionLayers low_precision_layers = LowPrecisionLayers::kAuto;

  // Whether all layers round, on all devices.
  bool rounds_all_layers() const {
    if (low_precision_gemms == base::GemmFormat::kAsComputed) return false;
    if (low_precision_layers != LowPrecisionLayers::kAuto)
      return low_precision_layers == LowPrecisionLayers::kAll;
    return low_precision_gemms == base::GemmFormat::kFloat8;
  }
};

struct ClusterConfig {
  std::string preset = "local";
  int nodes = 1;
};

struct MemoryConfig {
  double device_gib = 0;             // 0: ask the device
  std::optional<double> margin_gib;  // none: as margin_bytes() says
  double host_gib = 0;               // a rank's, for offloaded rows; 0: ask the machine
  std::optional<double> recompute;   // share of layers, 0 … 1; none: the planner decides
  std::optional<double> offload;     // share of each layer's rows, 0 … 1; none: the planner decides
};

struct CheckpointConfig {
  int64_t every = 0;
  bool async = true;       // the run goes on while a checkpoint is written
  int keep = 2;            // number of newest checkpoints kept
  int64_t keep_hours = 0;  // younger ones are kept as well
  bool keep_best = false;  // also keep the best by evaluation; one is saved after each best evaluation
  std::string mirror;      // a directory or s3://bucket/prefix for a second copy of each; "": none
};

// After the loss of a rank the run resumes from the last snapshot in memory. Without this, the run ends.
struct ElasticConfig {
  bool enabled = true;  // under every launcher
  std::optional<int64_t>
      snapshot_every;  // steps between two snapshots in memory; none: derived from their cost
};

struct LogConfig {
  std::filesystem::path dir = "runs/quickstart";
  bool tensorboard = true;
  std::string wandb;       // Weights & Biases project (train/trackers.h); empty: none
  std::string mlflow;      // MLflow's experiment; empty: none
  std::string metrics;     // address that serves the newest step's metrics; empty: none
  std::string prometheus;  // file with the newest step's metrics (report/prometheus.h); empty: none
  std::vector<int64_t> trace_steps;
  int64_t completions_every = 10;  // steps between rollouts whose responses are shown in part; 0: never
};

// Reaction to a rank that slows the others: report it; plan less work for it; or remove it from the run.
enum class SlowRankAction : uint8_t { kTell, kPlan, kLeave };

struct WatchConfig {
  SlowRankAction on_slow = SlowRankAction::kTell;
  int64_t critical_path_every = 100;  // steps between analyses of the critical path; 0: never
};

struct LinkConfig {
  std::optional<strategy::PullCodec> pull;  // none: in the compute type
  // Gradients inside nodes and between them; none: bfloat16 with bfloat16 compute, else uncoded.
  std::array<std::optional<strategy::Codec>, 2> push{};
  std::optional<strategy::Codec> gather;  // none: in the compute type
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;                  // from step 0
  std::vector<PhaseConfig> phases;  // later phases, in order of their steps
  TrainConfig train;
  RlConfig rl;
  HeadConfig head;
  TeacherConfig teacher;
  OptimizerConfig optimizer;
  LoraConfig lora;
  ParallelConfig parallel;
  LinkConfig link;
  ClusterConfig cluster;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  ElasticConfig elastic;
  LogConfig log;
  WatchConfig watch;

  // Whether steps train on text that the trained model generates, for rewards or for a teacher.
  bool generates() const { return rl.rolls_out() || teacher.lmbda > 0; }
};

// Planning needs a model's costs only, so it accepts models that Sluice cannot compute.
enum class ModelUse : uint8_t { kCompute, kPlan };
// Sets model.resolved: the Hugging Face folder's or the given model, with its head and tuning.
// InputError as model::model_from_hugging_face or model::model_to_plan_from_hugging_face, and as
// model::adapted and model::frozen; also if a group's pattern matches nothing.
void resolve_model(RunConfig& config, ModelUse use = ModelUse::kCompute);

// Bytes out of `whole` that stay free: margin_gib if given, else 2 GiB, and without a GPU at most a tenth of
// `whole`.
double margin_bytes(const MemoryConfig& memory, double whole, bool on_gpu);

// Resolves train.dtype = "auto" to bfloat16 on GPUs and float32 on CPUs, and the base's word size with it.
void resolve_dtype(RunConfig& config, bool on_gpu);

// Bytes of a word of a frozen base's codes, which travel as numbers of the compute type.
int64_t word_bytes(ComputeType dtype);

// The codecs of [link] and train.reduce_dtype under this dtype. InputError if parameters are to travel as
// float32 but ranks compute with another type. REQUIRES: the dtype is resolved.
strategy::WireCodecs wire_codecs(const RunConfig& config);

// Whether a phase continues in the documents where the previous one stopped: documents are drawn, and no key
// but tokens_per_step differs.
bool goes_on(const DataConfig& before, const DataConfig& after);

// The longest context length of all phases.
int64_t longest_context(const RunConfig& config);

}  // namespace sluice::config
