// What a rank's training loop stands on, set up with all other ranks: peers, device, corpora, what the run
// goes on from, planner, parameters.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "generate/decoder.h"
#include "runtime/engine.h"
#include "session/data.h"
#include "session/saying.h"
#include "train/buddies.h"
#include "train/peers.h"
#include "train/plan_ahead.h"
#include "train/resume.h"
#include "train/run_device.h"
#include "train/run_options.h"

namespace sluice::train {

class RunContext {
 public:
  explicit RunContext(RunOptions options) : options_(std::move(options)) {}

  // Collective over all ranks of the launch. Throws on every rank when any rank fails (Control::together).
  // But for peers().guard() and fail() nothing below may be called before.
  void open();

  // Collective, in place of open(): transports and devices alone, for who only measures.
  void open_machine();

  Peers& peers() { return peers_; }
  Control& control() { return peers_.control(); }
  Activity& activity() { return control().activity(); }
  int rank() const { return options_.launch.rank; }
  int local_ranks() const { return options_.launch.local_size; }  // of this machine
  transport::Launcher launcher() const { return options_.launch.launcher; }
  const config::RunConfig& config() const { return options_.config; }  // with "auto" resolved
  // What `text` of the configuration or the command line names.
  storage::Location locate(const std::string& text) const { return options_.locate(text); }
  const RunState& resumed() const { return resumed_.state(); }  // zero without a checkpoint
  bool resumed_from_snapshot() const { return resumed_.from_snapshot(); }
  const std::optional<Seat>& seat() const { return options_.seat; }
  int64_t epoch() const { return options_.seat ? options_.seat->epoch.number : 0; }
  Buddies* buddies() { return buddies_.get(); }  // null: the run is not elastic
  const base::Json& calibration() const { return calibration_; }
  const session::Data& data() const { return *data_; }
  // Whether documents are what is trained on, as they are.
  bool learns_from_corpora() const { return config_.rl.algorithm == config::RlAlgorithm::kNone; }
  // Those trained on in a step.
  const std::vector<corpus::CorpusIdentity>& corpora_at(int64_t step) const {
    return corpora_[data_->index_at(step)];
  }
  const RunDevice& device() const { return *device_; }
  const cost::CostModel& cost() const { return planner_->cost(); }
  const std::vector<strategy::Device>& devices() const { return devices_; }  // by rank; none: alike
  runtime::Engine& engine() { return *engine_; }
  session::PhasedSampler sampler() const;  // as the checkpoint left it
  StepInputs planning() const;
  StepPlanners& step_planners() { return *step_planners_; }
  // How so many ranks would train on the sequences, with strategies that the run would find for them; why
  // they could not, where some sequence of the run would be too long for them.
  base::Feasible<graph::StepGraph> step_of_fewer(int ranks,
                                                 const std::vector<strategy::Sequence>& sequences) const;
  const corpus::PythonTools& tools() const { return options_.tools; }

  // What the model says texts with. REQUIRES: the run samples, or rolls out.
  const strategy::Strategy& speaking() const { return *speaking_; }
  // From now on that which says a rollout of such prompts soonest, if responses are as those before; what it
  // takes, where that is known. The same on every rank.
  std::optional<inference::SayingLayout> speak_as_suits(std::span<const int64_t> prompts,
                                                        const std::vector<std::vector<int64_t>>& said_before);
  // Collective: this rank's part of the model under that, until engine().release().
  generate::HeldModel hold_speaking();

  // For as long as it lives the parameters are those that the run began with, on all ranks. REQUIRES: rl.kl,
  // or dpo; no step is under way.
  class ReferenceParameters {
   public:
    explicit ReferenceParameters(RunContext& run) : run_(run) { run_.exchange_reference(); }
    ~ReferenceParameters() { run_.exchange_reference(); }
    ReferenceParameters(const ReferenceParameters&) = delete;
    ReferenceParameters& operator=(const ReferenceParameters&) = delete;

   private:
    RunContext& run_;
  };

 private:
  void read_configuration();
  void drop_strategies_of_more_ranks();
  void compare_configurations();
  void open_corpora();
  void resume();
  void open_planner();
  void keep_proposal();
  plan::Planner planner_of(const config::RunConfig& config, int ranks) const;
  std::vector<strategy::Strategy> speaking_candidates();
  void open_engine();
  void open_parameters();
  void initialize_parameters();
  void begin_parameters();
  void load_weights();
  bool needs_reference() const;
  void exchange_reference();
  void open_buddies();

  RunOptions options_;
  config::RunConfig& config_ = options_.config;
  Peers peers_{options_};
  model::ParameterTable table_;
  std::optional<session::Data> data_;
  std::vector<std::vector<corpus::CorpusIdentity>> corpora_;  // of each phase of data_, for training
  Resumed resumed_{options_, table_};
  std::optional<RunDevice> device_;
  base::Json calibration_;
  std::vector<strategy::Device> devices_;  // by rank, where they differ
  std::optional<cost::CostModel> calibrated_;
  std::optional<plan::Planner> planner_;
  std::unique_ptr<StepPlanners> step_planners_;
  std::unique_ptr<graph::LinkPlans> link_plans_ = std::make_unique<graph::LinkPlans>();
  std::optional<session::Saying> saying_;       // schemes to choose from
  std::optional<strategy::Strategy> speaking_;  // at present
  std::unique_ptr<runtime::Engine> engine_;
  std::vector<at::Tensor> reference_;  // masters of the reference, by bucket; none where none is needed
  std::unique_ptr<Buddies> buddies_;
};

}  // namespace sluice::train
