#include "run/resume.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/carried.h"
#include "checkpoint/find.h"
#include "checkpoint/save.h"
#include "config/changes.h"
#include "config/config_file.h"
#include "link/layout.h"
#include "run/corpus_tokenizer.h"
#include "run/learnt_turns.h"
#include "run/precision.h"
#include "run/snapshot_replicas.h"
#include "run/snapshot_size.h"
#include "strategy/text_cursor.h"

namespace sluice::run {

using base::text;
using storage::Location;

namespace {

// Collective: the first rank that found damage, or the number of ranks if none did.
int first_damaged(const std::exception_ptr& damage, survive::Control& control) {
  const std::vector<int64_t> whole = control.gather<int64_t>(damage ? 0 : 1);
  return static_cast<int>(std::ranges::find(whole, 0) - whole.begin());
}

// The run's state from a snapshot, the same text on all ranks; nothing if a different version of the program
// wrote it.
std::optional<RunState> read_state(const std::string& written, int rank) {
  try {
    return run_state_from_text(written);
  } catch (const base::InputError& error) {
    if (rank == 0) base::log_warning(text(error.what(), ": the newest checkpoint is taken"));
    return std::nullopt;
  }
}

}  // namespace

Resumed::Resumed(const RunOptions& options, const AgreedConfig& agreed, survive::Control& control)
    : options_(options), agreed_(agreed), worker_context_(options.worker_context) {
  from_snapshot_ = find_snapshot(control);
  if (!from_snapshot_) find_checkpoint(control);
}

void Resumed::close_checkpoint() {
  if (checkpoint_ && !from_snapshot_) directory_ = checkpoint_->directory();
  checkpoint_.reset();
}

// Whether the ranks hold a whole snapshot and no checkpoint is newer: a checkpoint may be saved between two
// snapshots.
bool Resumed::find_snapshot(survive::Control& control) {
  if (!worker_context_ || worker_context_->membership.origin.step == membership::Origin::kNoSnapshot)
    return false;
  membership::Origin& origin = worker_context_->membership.origin;
  int64_t saved = 0;
  control.together("looking for a newer checkpoint", [&] {
    if (rank() == 0) saved = checkpoint::latest(roots().front()).value_or(checkpoint::SavedStep{}).step;
  });
  if (control.gather(saved)[0] > origin.step) return false;
  const auto intact = intact_origin(*worker_context_, control);
  if (!intact) {
    if (rank() == 0)
      base::log_warning(
          "some slices have changed in all memories that hold them: the newest checkpoint is taken");
    return false;
  }
  origin = *intact;
  const int teller = origin.holders.front();
  const std::string state =
      control.broadcast(rank() == teller ? snapshot_state(*worker_context_) : "", teller);
  const std::optional<RunState> found = read_state(state, rank());
  if (!found) return false;
  // Snapshots have no frozen parameters: they come from any checkpoint of the run, or from the parameters
  // that the run began with.
  if (has_frozen(agreed_.table)) {
    const std::vector<Location> directories = candidates(control);
    const auto is_whole = [&](const Location& directory) {
      return first_damaged(open_if_whole(directory, control), control) == control.world_size();
    };
    if (!directories.empty() && std::ranges::none_of(directories, is_whole)) return false;
  }
  state_ = *found;
  ranks_ = static_cast<int>(origin.holders.size());
  read_configuration("the snapshot");
  return true;
}

// Each rank checks the slices that it will own.
void Resumed::find_checkpoint(survive::Control& control) {
  const std::vector<Location> directories = candidates(control);
  for (const Location& directory : directories) {
    const std::exception_ptr damage = open_if_whole(directory, control);
    const int finder = first_damaged(damage, control);
    if (finder == control.world_size()) {
      ranks_ = checkpoint_->manifest().world_size;
      tell();
      read_configuration(directory.string());
      return tell_of_changes();
    }
    if (&directory == &directories.back()) {
      control.together("opening the checkpoint", [&] {
        if (damage) std::rethrow_exception(damage);
      });
    }
    if (rank() == finder)
      base::log_warning(checkpoint::passed_over(directory, survive::as_error(damage).what()));
  }
}

// Rank 0 lists the candidates: on a shared file system other ranks may see an older state of the directory.
std::vector<Location> Resumed::candidates(survive::Control& control) {
  const config::RunConfig& config = asked();
  std::vector<std::string> names;
  control.together("looking for a checkpoint", [&] {
    if (rank() != 0) return;
    // A run that lost its snapshots resumes from its own checkpoints, if it has any.
    const bool own = options_.resume == "auto" || options_.membership_number() > 0;
    std::vector<Location> found;
    if (own) found = checkpoint::all_checkpoints(roots());
    if (found.empty() && !options_.resume.empty() && options_.resume != "auto")
      found = checkpoint::find_checkpoints(options_.locate(options_.resume));
    if (!options_.dry_run) require_own_run(found);
    for (const Location& directory : found) names.push_back(directory.string());
    if (!found.empty()) return;
    if (!config.model.hf.empty()) state_.companions = checkpoint::model_companions(config.model.hf);
    add_corpus_tokenizer(config.data, options_.corpora, state_.companions);
    add_learnt_turns(config.data, options_.corpora, state_.companions);
  });
  const std::string all = control.broadcast(base::join(names, std::string(1, '\0')));
  std::vector<Location> directories;
  if (all.empty()) return directories;
  for (const std::string& name : base::split(all, '\0')) directories.push_back(options_.locate(name));
  return directories;
}

// The locations to which this run saves, the mirror last.
std::vector<Location> Resumed::roots() const {
  const config::RunConfig& config = asked();
  std::vector<Location> roots{config.log.dir / "checkpoints"};
  if (!config.checkpoint.mirror.empty()) roots.push_back(options_.locate(config.checkpoint.mirror));
  return roots;
}

void Resumed::require_own_run(const std::vector<Location>& found) const {
  const std::vector<Location> own = roots();
  if (own.size() > 1 && same_place(own.front(), own.back())) {
    throw base::InputError(text("[checkpoint] mirror is ", own.back().string(),
                                ", where this run's checkpoints are: name another directory"));
  }
  const bool continues = !found.empty() && std::ranges::any_of(own, [&](const Location& root) {
    return same_place(found.front().parent(), root);
  });
  for (const Location& root : own) {
    if (continues || !checkpoint::latest(root)) continue;
    const std::string way_out = &root == &own.front() ? "log.dir" : "checkpoint.mirror";
    throw base::InputError(text(root.string(), " holds checkpoints of an earlier run",
                                found.empty() ? "" : text(", which ", found.front().string(), " is none of"),
                                ": continue it with --resume auto, or set another ", way_out));
  }
}

// Null if all is whole, or on some ranks the damage that they found.
std::exception_ptr Resumed::open_if_whole(const Location& directory, survive::Control& control) {
  std::exception_ptr damage;
  control.together("opening the checkpoint", [&] {
    try {
      if (!(directory / "manifest.json").is_file()) {
        throw base::InputError(text(directory.string(), " is seen by rank 0 but not by rank ", rank(),
                                    ": put log.dir where all ranks see the same files"));
      }
      checkpoint_ = std::make_unique<checkpoint::Checkpoint>(directory);
      state_ = run_state(*checkpoint_);
      checkpoint_->require_model(agreed_.table.model, master_type(precision_of(asked().train)));
      std::vector<base::Interval> owned;
      for (const model::Bucket& bucket : agreed_.table.buckets)
        owned.push_back(link::OwnerLayout{control.world_size()}.owned(bucket, rank()));
      checkpoint_->verify(agreed_.table, owned);
      if (rank() == 0) {
        state_.companions = checkpoint_->companions();
        add_corpus_tokenizer(asked().data, options_.corpora, state_.companions);
        add_learnt_turns(asked().data, options_.corpora, state_.companions);
      }
    } catch (const checkpoint::DamagedCheckpoint&) {
      damage = std::current_exception();
    }
  });
  return damage;
}

void Resumed::tell() const {
  if (rank() != 0) return;
  const std::string name = checkpoint_->directory().string();
  const std::string steps = base::human_count(state_.step, "step", "steps");
  base::log_info(text("resuming from ", name, " after ", steps));
  if (!state_.sampler && state_.step > 0) {
    base::log_info(text(name,
                        " does not say which documents it has seen: the data go on as behind the first ",
                        steps, " of this configuration"));
  }
  if (checkpoint_->manifest().hashed) return;
  base::log_warning(text(name,
                         " is of an older program: its manifest has no hash, so that damage to figures ",
                         "in it may go unnoticed, and its corpora are known by their lengths alone; new ",
                         "checkpoints have both"));
}

void Resumed::read_configuration(const std::string& name) {
  if (state_.config.empty()) return;
  try {
    config_ = config::parse_config(state_.config, name, {}, config::Origin::kRun);
  } catch (const base::InputError& error) {
    if (rank() != 0) return;
    base::log_warning(
        text("the changes since then are not known, and \"auto\" is decided anew: ", error.what()));
  }
}

void Resumed::tell_of_changes() const {
  if (rank() != 0 || !config_) return;
  config::RunConfig then = *config_;
  config::RunConfig now = asked();
  then.model = now.model;        // it fits: its model was compared, and a folder may have moved
  if (then.parallel.proposed) {  // the strategies that "auto" chose
    then.parallel.strategies.clear();
    then.parallel.proposed = false;
  }
  // A checkpoint writes <1,1,1> as 1x<1,1,1>.
  for (std::string& written : now.parallel.strategies)
    written = to_text(strategy::parse_strategy(written, static_cast<int>(strategy::kMaxRanks)));
  for (const std::string& line : config::changes(then, now))
    base::log_info(text("since then changed: ", line));
}

void Resumed::share_companions(survive::Control& control) {
  state_.companions = run_state_from_text(control.broadcast(to_text(state_))).companions;
}

}  // namespace sluice::run
