#include "run/critic.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"
#include "config/config_file.h"
#include "layers/number_loss.h"
#include "run/checkpoints.h"
#include "run/first_parameters.h"
#include "run/learning_rate.h"
#include "run/sequence_numbers.h"

namespace sluice::run {
namespace {

using strategy::Piece;
using strategy::Sequence;

// Targets are the rows in front of each response's tokens. Borrows the episodes; a sequence's document number
// is the index of its episode.
class ValueTokens final : public TokenSource {
 public:
  explicit ValueTokens(const rl::MiniBatch& episodes) : episodes_(episodes) {}

  void add_tokens(const Sequence& sequence, const Piece& piece,
                  runtime::LanePartTokens& rows) const override {
    const std::vector<int32_t>& tokens = episode(sequence).tokens;
    rows.tokens.insert(rows.tokens.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
  }

  void add_targets(const Sequence& sequence, const Piece& piece,
                   runtime::LanePartTokens& rows) const override {
    const rl::Episode& own = episode(sequence);
    for (int64_t token = piece.begin; token < piece.end; ++token) {
      const int64_t next = token + 1 - own.prompt_tokens;
      const bool counts = next >= 0 && next < own.response_tokens();
      rows.targets.push_back(counts ? 0 : -1);
      if (!counts || own.returns.empty()) continue;
      rows.given.push_back(own.returns[static_cast<size_t>(next)]);
      rows.given.push_back(own.values[static_cast<size_t>(next)]);
    }
  }

 private:
  const rl::Episode& episode(const Sequence& sequence) const {
    return episodes_[static_cast<size_t>(sequence.document)];
  }

  const rl::MiniBatch& episodes_;
};

PreparedStep prepare_values(Trunk& trunk, const rl::MiniBatch& episodes, int64_t step,
                            graph::Purpose purpose) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < episodes.size(); ++i) {
    sequences.push_back({.document = static_cast<int64_t>(i),
                         .length_tokens = std::ssize(episodes[i].tokens),
                         .loss_tokens = episodes[i].response_tokens()});
  }
  const ValueTokens tokens(episodes);
  return prepare_step(trunk.inputs(), sequences, &tokens, step, purpose);
}

session::OtherModel critic_of(RunContext& run) {
  std::vector<session::OtherModel> critics;
  run.control().together("opening the critic", [&] { critics = session::critics(run.config()); });
  return critics.front();
}

constexpr const char* kCriticFolder = "critic";

checkpoint::BackgroundSave::Options save_options_of_critic(RunContext& run) {
  checkpoint::Retention retention = retention_of(run.config().checkpoint);
  ++retention.count;  // the policy's newest may not be committed
  checkpoint::BackgroundSave::Options options{.rank = run.rank(), .world_size = run.control().world_size()};
  const std::string first = run.control().broadcast((run.config().log.dir / kCriticFolder).string());
  options.locations.push_back({run.options().locate(first), retention});
  options.require_locations = [&run] { run.peers().require_directory(); };
  return options;
}

}  // namespace

Critic::Critic(RunContext& run)
    : run_(run),
      trunk_(run, critic_of(run),
             {.trains = true, .number_loss = layers::clipped_value_error(run.config().rl.value_clip)}),
      save_(save_options_of_critic(run)) {
  run.control().together("loading the critic", [&] {
    if (const auto& policy = run.start().resumed().directory()) return load(*policy);
    const std::filesystem::path& folder = trunk_.model().folder;
    const bool whole = !folder.empty() && checkpoint::has_hugging_face_weights(folder);
    begin_parameters(run.config(), whole ? folder.string() : "", trunk_.store(), run.control().activity());
  });
}

// Loads RUN/critic/step-N for RUN/checkpoints/step-N.
void Critic::load(const storage::Location& policy) {
  const storage::Location own = policy.parent().parent() / kCriticFolder / policy.filename();
  if (!(own / "manifest.json").is_file()) {
    throw base::InputError(
        base::text(policy.string(), " has no critic at ", own.string(),
                   ": resume from a checkpoint of a run with rl.algorithm = \"ppo\", or give "
                   "its export as model.hf"));
  }
  checkpoint::Checkpoint checkpoint(own);
  load_parameters(checkpoint, trunk_.store(), run_.activity());
}

std::vector<std::vector<double>> Critic::values(const rl::MiniBatch& episodes, int64_t step) {
  PreparedStep evaluation;
  survive::Control& control = run_.control();
  control.together("planning the critic's evaluation",
                   [&] { evaluation = prepare_values(trunk_, episodes, step, graph::Purpose::kEvaluate); });
  const runtime::RowFigures rows =
      trunk_.evaluate(evaluation.graph, evaluation.tokens, base::text("valuing responses of step ", step));
  const auto of_sequences =
      sequence_numbers(evaluation.plan, control.world_size(), run_.rank(), evaluation.tokens, rows,
                       [&](const std::string& own) { return control.gather_texts(own); });
  std::vector<std::vector<double>> values(episodes.size());
  for (size_t i = 0; i < of_sequences.size(); ++i) {
    const int64_t document = evaluation.plan.sequences[i].document;
    for (const RowNumbers& row : of_sequences[i])
      values[static_cast<size_t>(document)].push_back(row.numbers.front());
  }
  return values;
}

PreparedStep Critic::prepare(const rl::MiniBatch& episodes, int64_t step) {
  return prepare_values(trunk_, episodes, step, graph::Purpose::kTrain);
}

runtime::StepResult Critic::train(const PreparedStep& act, runtime::AdamW optimizer) {
  const config::RunConfig& config = run_.config();
  optimizer.groups.clear();
  optimizer.muon.reset();
  if (config.rl.critic_lr) {
    config::OptimizerConfig own = config.optimizer;
    if (own.lr > 0) own.min_lr *= *config.rl.critic_lr / own.lr;
    own.lr = *config.rl.critic_lr;
    optimizer.lr = learning_rate(own, act.plan.step, config.train.steps);
  }
  return trunk_.train(act.graph, act.tokens, optimizer,
                      base::text("training the critic in step ", act.plan.step));
}

void Critic::save(int64_t step) {
  const runtime::ParameterStore& store = trunk_.store();
  checkpoint::SaveInput input;
  input.manifest.step = step;
  input.manifest.model = store.table().model;
  input.manifest.type = master_type(store.options().precision);
  input.manifest.config = config::to_toml(run_.config());
  input.snapshot = [this, &store] { return snapshot_.view(store); };
  save_.begin(std::move(input));
  using Progress = checkpoint::BackgroundSave::Progress;
  while (save_.busy()) {
    save_.wait();
    const std::exception_ptr own = save_.failure();
    checkpoint::SaveStatus status = save_.status();
    if (own) status.failed = survive::exit_status_of(own);
    const std::vector<checkpoint::SaveStatus> all = run_.control().gather(status);
    if (save_.advance(all) != Progress::kFailed) continue;
    std::vector<int64_t> statuses;
    for (const checkpoint::SaveStatus& each : all) statuses.push_back(each.failed);
    run_.control().throw_if_any_failed("saving the critic", statuses, own);
  }
}

}  // namespace sluice::run
