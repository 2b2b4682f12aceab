// A run's configuration as values. What each key is called, may be and means stands in keys.cpp; how it is
// read and written, in config_file.h.
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
#include "model/shape.h"
#include "strategy/cluster.h"
#include "strategy/wire_codec.h"

namespace sluice::config {

struct ModelConfig {
  std::string hf;                     // Hugging Face folder; empty: `shape` is given in the file
  std::optional<model::Shape> shape;  // from the keys, or read from hf's config.json by resolve()
  std::optional<int64_t> seed;        // of initial weights; none: data.seed
  base::WeightFormat base = base::WeightFormat::kPlain;  // of what a LoRA run freezes
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
  std::string batches;            // a file that lists them (corpus/batch_list.h); empty: they are drawn
  bool other_tokenizers = false;  // whether corpora may be of another tokenizer than the model
  int64_t seed = 1;
};

// What is trained on from a step on.
struct PhaseConfig {
  int64_t step = 0;  // the first
  DataConfig data;   // what the file does not say is the phase's before it
};

enum class ComputeType : uint8_t { kFloat32, kBFloat16, kFloat64, kAuto };
// Of the parameters that an optimiser updates: float32 (float64 where all is), or bfloat16 rounded by chance.
enum class MasterType : uint8_t { kWide, kBFloat16 };
enum class ReduceType : uint8_t { kFloat32, kBFloat16 };
// Whose visits a balance of experts counts: the token's sequence's, or the last step's.
enum class RouterLoadBalancing : uint8_t { kSeqAuxLoss, kGlobalAuxLoss };
enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };
// The action behind a step whose loss or gradient is not finite: its update is left out in any case.
enum class OnNonfinite : uint8_t { kStop, kSkip };

struct TrainConfig {
  int64_t steps = 100;  // of the whole run; follows from `epochs` where that is given
  double epochs = 0;    // passes over the training data (run/epochs.h); 0: `steps` says
  int64_t eval_every = 0;
  int64_t patience = 0;      // evaluations without a better one after which the run ends; 0: it goes on
  int64_t sample_every = 0;  // steps between texts that the model says; 0: never
  std::vector<std::string> sample_prompts;  // behind which; empty: beginnings of held-out documents
  int threads = 0;                          // compute threads a rank; 0: cores ÷ local ranks
  int64_t join_timeout_s = 60;              // for all ranks to show up at the start
  int64_t stall_s = 60;  // a rank that makes no progress for so long ends the epoch, or the run where there
                         // are none; 0: never
  ComputeType dtype = ComputeType::kAuto;
  MasterType master_dtype = MasterType::kWide;
  // Of gradients on their way between lanes that share parameters.
  ReduceType reduce_dtype = ReduceType::kFloat32;
  double moe_aux_loss_coeff = 0;  // factor of the loss that balances experts (layers/balance.h); 0: none
  RouterLoadBalancing moe_router_load_balancing_type = RouterLoadBalancing::kSeqAuxLoss;
  double moe_router_bias_update_rate = 0.001;  // of routers that have corrections (model::Learns), a step
  double z_loss = 0;  // factor of log²Z beside the cross-entropy (layers/loss.h); 0: none
  DeviceChoice device = DeviceChoice::kAuto;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  bool deterministic = false;       // on GPUs the same bits each time, slower; on CPUs always
  std::vector<std::string> freeze;  // patterns of names of parameters that are not trained (model/tuning.h)
};

// Learning from rewards or preferences; what the algorithm decides where a key says auto stands in
// rl/objective.h.
enum class RlAlgorithm : uint8_t { kNone, kGrpo, kDapo, kDrGrpo, kReinforce, kPpo, kDpo, kKto };
// What the rewards of a group are measured against: its mean in its own deviations, its mean, or the mean of
// the others.
enum class Baseline : uint8_t { kAuto, kGroup, kMean, kLeaveOneOut };
enum class LossAggMode : uint8_t { kAuto, kToken, kSequence, kConstant };
enum class Choose : uint8_t { kAuto, kYes, kNo };

// What becomes of a response whose reward fails.
enum class OnBadReward : uint8_t { kStop, kZero, kDrop };

struct RlConfig {
  RlAlgorithm algorithm = RlAlgorithm::kNone;
  int64_t prompts_per_step = 32;             // of a rollout: groups that train
  std::optional<int64_t> gen_batch_size;     // prompts of a draw where they are drawn again; none: as many
  int num_generations = 8;                   // responses to each
  int64_t updates_per_rollout = 1;           // mini-batches that a rollout is cut into
  int64_t max_completion_length = 1024;      // tokens
  double temperature = 1;                    // of the policy: it speaks so, and is trained so
  std::vector<std::string> reward{"exact"};  // rl/reward.h
  double reward_timeout_s = 10;
  OnBadReward on_bad_reward = OnBadReward::kStop;
  std::filesystem::path python;   // that runs rewards of Python; empty: the PATH's python3
  int64_t val_max_samples = 256;  // prompts of each validation set that are answered at evaluations
  Baseline baseline = Baseline::kAuto;
  LossAggMode loss_agg_mode = LossAggMode::kAuto;
  std::optional<double> clip_low;
  std::optional<double> clip_high;
  double dual_clip = 0;
  double kl = 0;                    // factor of the divergence from the model that the run began with
  std::string critic;               // of ppo: a folder whose model the critic begins as; empty: model.hf's
  std::optional<double> critic_lr;  // of ppo; none: optimizer.lr
  double gamma = 1;                 // of ppo: discount of a later token's reward
  double gae_lambda = 0.95;         // of ppo: of generalised advantage estimation
  double value_clip = 0.2;  // of ppo: values move so far from those before a rollout's updates; 0: any
  Choose dynamic_sampling = Choose::kAuto;
  int64_t max_resamples = 10;
  std::optional<int64_t> overlong_buffer;
  double kv_cache_gib = 1;  // of a rank, for keys and values of what is being said
  int64_t max_num_seqs = 256;
  // Steps compute a prompt once for several answers (session/prompt_responses.h); none: where the model
  // allows it.
  std::optional<bool> share_prompts;
  std::vector<std::string>
      rejected;       // of dpo, kto: corpora of answers worse than data.train's; of dpo document by document
  double beta = 0.1;  // likewise
  double desirable_weight = 1;  // of kto: data.train's answers' losses
  double undesirable_weight = 1;

  // Whether steps train on what the model says itself.
  bool rolls_out() const { return algorithm != RlAlgorithm::kNone && !prefers(); }
  // Whether they train on answers that are better and worse.
  bool prefers() const { return algorithm == RlAlgorithm::kDpo || algorithm == RlAlgorithm::kKto; }
};

// What a model ends in, and what is learnt of it: a vocabulary; classes or figures of sequences, or of
// tokens; which of two answers is better; a figure of each token; where texts lie.
enum class HeadUse : uint8_t { kNone, kClassify, kTokens, kReward, kValue, kEmbed };
// Of classify and tokens: by what labels are, or as transformers' problem_type says it.
enum class Problem : uint8_t { kAuto, kSingleLabel, kMultiLabel, kRegression };
// The rows that stand for a text; kAuto: as the model folder says, or as is usual of its class.
enum class Pooling : uint8_t { kAuto, kLast, kMean, kCls };

struct HeadConfig {
  HeadUse kind = HeadUse::kNone;
  std::vector<std::string> labels;  // names of classes by number; empty: the model folder's
  Problem problem = Problem::kAuto;
  int64_t pairs_per_step = 32;        // of reward and embed
  std::vector<std::string> rejected;  // of reward: corpora of answers worse than data.train's
  double center_rewards = 0;          // of reward: factor of (r₁ + r₂)², which keeps their mean near 0
  std::vector<std::string>
      positives;  // of embed: corpora of texts near to data.train's, document by document
  std::vector<std::string> negatives;  // and of texts that are not
  double temperature = 0.05;           // of embed: cosines are divided by it
  Pooling pooling = Pooling::kAuto;    // of classify, reward and embed
  std::vector<int64_t> matryoshka;     // of embed: widths whose losses are added to the whole one's

  // Whether steps take several texts that belong together.
  bool pairs() const { return kind == HeadUse::kReward || kind == HeadUse::kEmbed; }
  // Whether documents have labels.
  bool labelled() const { return kind != HeadUse::kNone && !pairs(); }
};

// The part of a teacher's distribution that a student learns.
using model::Divergence;

struct TeacherConfig {
  std::string hf;  // its Hugging Face folder; empty: the documents' tokens are what is learnt
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;       // of kJsd
  double temperature = 1;  // both models' logits are divided by it
  double alpha = 1;        // the divergence's part of the loss; the rest is the tokens' cross-entropy
  double lmbda = 0;        // share of steps on responses that the trained model samples itself
};

// Adapters (model::Lora).
struct LoraConfig {
  int64_t rank = 0;  // 0: none
  double alpha = 16;
  std::vector<std::string> targets{"q_proj", "k_proj", "v_proj", "o_proj"};
};

// Parameters whose names match one of `parameters` and that no group before has.
struct GroupConfig {
  std::vector<std::string> parameters;
  double lr = 0;                       // in place of optimizer.lr, under the same schedule
  std::optional<double> weight_decay;  // of vectors, too; none: optimizer.weight_decay's rule
  bool operator==(const GroupConfig&) const = default;
};

// How the rate falls behind its warm-up: constant up to the last steps, which fall on a line (wsd), or as
// 1/√step.
enum class Decay : uint8_t { kCosine, kLinear, kConstant, kWsd, kInverseSqrt };

enum class OptimizerName : uint8_t { kAdamW, kAdamW8Bit, kMuon };
// What Muon's rate of a matrix is multiplied by, as torch.optim.Muon calls it.
enum class MuonRate : uint8_t { kMatchRmsAdamW, kOriginal };

struct OptimizerConfig {
  OptimizerName name = OptimizerName::kAdamW;
  double momentum = 0.95;  // these three of Muon
  MuonRate adjust_lr = MuonRate::kMatchRmsAdamW;
  int64_t ns_steps = 5;
  double lr = 3e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  int64_t warmup_steps = 10;
  Decay decay = Decay::kCosine;
  int64_t decay_steps = 0;  // of wsd: the last ones; 0: a tenth of all
  double min_lr = 3e-5;
  std::vector<GroupConfig> groups;  // the first that matches counts

  base::MomentFormat moments() const {
    return name == OptimizerName::kAdamW8Bit ? base::MomentFormat::k8Bit : base::MomentFormat::kWide;
  }
};

// Which of the candidate strategies a step may take: any, each in turn, or one.
struct Select {
  enum class Rule : uint8_t { kBest, kCycle, kFixed } rule = Rule::kBest;
  int candidate = 0;  // of kFixed
  bool operator==(const Select&) const = default;
};
enum class StageCut : uint8_t { kTime, kLayers };

// Where lanes divide experts, what they lie by: parts in their order; visits so far; those and which were
// visited together.
enum class ExpertPlacementPolicy : uint8_t { kLinear, kByLoad, kByCoactivation };

// Whether ranks compute alike, or are asked.
enum class Devices : uint8_t { kUniform, kMeasured };

// Which layers have narrow products: as few as let slower devices keep pace, or all of all devices.
enum class LowPrecisionLayers : uint8_t { kMinimal, kAll };

struct ParallelConfig {
  std::vector<std::string> strategies;  // empty: "auto"; else texts, or one path of a strategies.json
  bool proposed = false;                // whether a run filled them in for "auto"
  Select select;
  std::string method = "ours";        // of session/methods.h
  std::string exchange = "auto";      // between lanes (cost::parse_exchange_set)
  StageCut stages = StageCut::kTime;  // what pipelines' stages are cut by
  int max_cp = 0;                     // most lanes of a pipeline that "auto" may propose; 0: all ranks'
  bool fsdp = true;                   // whether its lanes may share parameters
  std::string calibration = "auto";   // a file | a shipped name | analytic | auto
  std::string rollout_strategy;       // what the model says samples and responses with; empty: what holds it
  ExpertPlacementPolicy expert_placement = ExpertPlacementPolicy::kLinear;
  int64_t expert_placement_every = 10;  // steps
  int redundant_experts =
      0;  // seats of a lane beyond an even part, for copies of those that are visited most
  int gpus_per_node = 8;
  Devices devices = Devices::kUniform;
  base::GemmFormat low_precision_gemms = base::GemmFormat::kAsComputed;
  LowPrecisionLayers low_precision_layers = LowPrecisionLayers::kMinimal;
};

struct ClusterConfig {
  std::string preset = "local";
  int nodes = 1;
};

struct MemoryConfig {
  double device_gib = 0;             // 0: ask the device
  std::optional<double> margin_gib;  // none: as margin_bytes() says
  double host_gib = 0;               // of a rank, for what is offloaded; 0: ask the machine
  std::optional<double> recompute;   // 0 … 1, of the layers; none: the planner decides
  std::optional<double> offload;     // 0 … 1, of each layer's rows; none: the planner decides
};

struct CheckpointConfig {
  int64_t every = 0;
  bool async = true;       // the run goes on while a checkpoint is written
  int keep = 2;            // the newest
  int64_t keep_hours = 0;  // and those that are younger
  bool keep_best = false;  // and the best by its evaluation, which is saved where it is made
  std::string mirror;      // a directory or s3://bucket/prefix for a second copy of each; "": none
};

// A rank that is lost costs the steps since the last snapshot; without this, the run.
struct ElasticConfig {
  bool enabled = true;  // under every launcher
  std::optional<int64_t>
      snapshot_every;  // steps between two snapshots in memory; none: what they cost decides
};

struct LogConfig {
  std::filesystem::path dir = "runs/quickstart";
  bool tensorboard = true;
  std::string wandb;       // Weights & Biases' project (train/trackers.h); empty: none
  std::string mlflow;      // MLflow's experiment; empty: none
  std::string metrics;     // an address at which the newest step stands likewise; empty: none
  std::string prometheus;  // a file of the newest step (report/prometheus.h); empty: none
  std::vector<int64_t> trace_steps;
  int64_t completions_every = 10;  // steps between rollouts of which some responses are shown; 0: never
};

// What is done about a rank that makes the others wait: it is told; plans give it less; or it leaves the run.
enum class SlowRankAction : uint8_t { kTell, kPlan, kLeave };

struct WatchConfig {
  SlowRankAction on_slow = SlowRankAction::kTell;
  int64_t critical_path_every = 100;  // steps between looks at the critical path; 0: never
};

struct LinkConfig {
  std::optional<strategy::PullCodec> pull;  // none: as ranks compute
  // Of gradients, inside nodes and between them; none: bfloat16 where that computes, else as they are.
  std::array<std::optional<strategy::Codec>, 2> push{};
  std::optional<strategy::Codec> gather;  // likewise
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;                  // from step 0 on
  std::vector<PhaseConfig> phases;  // that follow, in order of their steps
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

// What a model is for: to plan for it its costs need only be counted.
enum class ModelUse : uint8_t { kCompute, kPlan };
// Fills model.shape from the Hugging Face folder where one is named, and says in it what is trained.
// InputError as model::shape_from_hugging_face, or as model::shape_to_plan_from_hugging_face; as model::adapt
// and model::freeze; and when a pattern of a group matches nothing.
void resolve_model(RunConfig& config, ModelUse use = ModelUse::kCompute);

// What of `whole` bytes stays free: on a GPU 2 GiB unless the configuration says, elsewhere a tenth where
// that is less.
double margin_bytes(const MemoryConfig& memory, double whole, bool on_gpu);

// Settles train.dtype = "auto": bfloat16 on GPUs, float32 on CPUs; and what of the shape follows from it.
void resolve_dtype(RunConfig& config, bool on_gpu);

// What [link] means, and train.reduce_dtype, with this dtype. InputError where it asks for more bits, or
// others, than ranks compute with: parameters travel as they are then. REQUIRES: the dtype is settled.
strategy::WireCodecs wire_codecs(const RunConfig& config);

// Whether a phase goes on with the documents where the one before it stopped: they are drawn, and at most
// tokens_per_step differs.
bool goes_on(const DataConfig& before, const DataConfig& after);

// The longest context of all phases.
int64_t longest_context(const RunConfig& config);

}  // namespace sluice::config
