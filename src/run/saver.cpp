#include "run/saver.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/identity.h"
#include "run/critic.h"

namespace sluice::run {

using base::text;
using checkpoint::BackgroundSave;
using checkpoint::SaveStatus;
using Progress = BackgroundSave::Progress;

namespace {

// Adds its lifetime to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<int64_t>& sum_ns) : sum_ns_(sum_ns) {}
  ~Stopwatch() { sum_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::atomic<int64_t>& sum_ns_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Rank 0 gives the path of the run directory: other ranks may know it by another name.
BackgroundSave::Options options_of(RunContext& run) {
  const config::CheckpointConfig& configured = run.config().checkpoint;
  const checkpoint::Retention retention = retention_of(configured);
  BackgroundSave::Options options{.rank = run.rank(), .world_size = run.control().world_size()};
  const std::string first = run.control().broadcast((run.config().log.dir / "checkpoints").string());
  options.locations.push_back({run.options().locate(first), retention});
  if (!configured.mirror.empty())
    options.locations.push_back({run.options().locate(configured.mirror), retention});
  options.require_locations = [&run] { run.peers().require_directory(); };
  return options;
}

}  // namespace

Saver::Saver(RunContext& run, Critic* critic) : run_(run), critic_(critic), save_(options_of(run)) {
  const config::CheckpointConfig& configured = run.config().checkpoint;
  if (configured.async && configured.every > 0) snapshot_.make_room(run.engine().store());
}

void Saver::wait_until_copied(int bucket) {
  if (copying_.has_read(bucket)) return;
  const Stopwatch watch(blocked_ns_);
  copying_.wait(bucket);
}

int64_t Saver::take_blocked_ns() {
  const int64_t now_ns = blocked_ns_;
  return now_ns - std::exchange(blocked_taken_ns_, now_ns);
}

SaveStatus Saver::status() const {
  SaveStatus word = save_.status();
  if (word.failed != 0) word.failed = survive::exit_status_of(save_.failure());
  return word;
}

void Saver::advance(std::span<const SaveStatus> words) {
  const std::exception_ptr own = save_.failure();
  const Progress progress = save_.advance(words);
  if (progress == Progress::kFailed) {
    std::vector<int64_t> statuses;
    for (const SaveStatus& word : words) statuses.push_back(word.failed);
    run_.control().throw_if_any_failed("saving", statuses, own);
  }
  tell(progress, own);
}

void Saver::tell(Progress progress, std::exception_ptr own) const {
  const std::string what = base::human_count(save_.step(), "step", "steps");
  if (progress == Progress::kMirrorFailed && own) {
    base::log_warning(
        text("the mirror lacks the checkpoint after ", what, ": ", survive::as_error(own).what()));
  }
  if (run_.rank() != 0) return;
  if (progress == Progress::kCommitted) {
    base::log_info(text(
        "saved checkpoint after ", what, ": ", base::human_bytes(static_cast<double>(save_.saved_bytes())),
        save_.shared_bytes() > 0
            ? text(" and ", base::human_bytes(static_cast<double>(save_.shared_bytes())), " shared")
            : "",
        " in ", base::human_duration(save_.spent_ns()), ", for which the run waited ",
        base::human_duration(blocked_ns_ - blocked_before_ns_)));
  } else if (progress == Progress::kMirrored) {
    base::log_info(text("mirrored checkpoint after ", what, " at ", run_.config().checkpoint.mirror));
  }
}

bool Saver::due(int64_t done) {
  const bool now = is_due(done);
  if (!save_.busy()) return now || std::exchange(postponed_, false);
  if (now && run_.rank() == 0) {
    base::log_warning(text("the checkpoint after ", done, " steps ",
                           pulls_differences() ? "is left out" : "has to wait", ": the one after ",
                           save_.step(),
                           " is still being written; raise checkpoint.every, or use a faster disk"));
  }
  postponed_ = postponed_ || (now && !pulls_differences());
  return false;
}

bool Saver::is_due(int64_t done) const {
  const int64_t every = run_.config().checkpoint.every;
  return every > 0 && done % every == 0;
}

bool Saver::pulls_differences() const {
  return strategy::is_difference(run_.engine().store().options().pull);
}

void Saver::begin_differences_anew(int64_t done) {
  if (is_due(done) && pulls_differences()) run_.engine().store().refresh_compute_copies();
}

void Saver::begin(const RunState& state, Source source) {
  blocked_before_ns_ = blocked_ns_;
  const runtime::ParameterStore& store = run_.engine().store();
  checkpoint::SaveInput input;
  input.manifest.step = state.step;
  input.manifest.model = store.table().model;
  input.manifest.type = master_type(store.options().precision);
  if (state.sampler) input.manifest.sampler = corpus::to_json(*state.sampler);
  input.manifest.rollout = state.rollout;
  input.manifest.corpora = corpus::to_json(state.corpora);
  input.manifest.calibration = state.calibration;
  input.manifest.config = state.config;
  input.manifest.evaluation = state.evaluation;
  input.companions = state.companions;
  copying_.begin();
  input.snapshot = [this, &store, source] {
    const EndOfRead end(copying_);
    return source == Source::kCopy ? snapshot_.take(store, copying_) : snapshot_.view(store);
  };
  postponed_ = false;
  save_.begin(std::move(input));
}

void Saver::save(const RunState& state) {
  if (!run_.config().checkpoint.async) return save_now(state);
  if (critic_ != nullptr) critic_->save(state.step);
  begin(state, Source::kCopy);
}

void Saver::save_now(const RunState& state) {
  if (critic_ != nullptr) critic_->save(state.step);
  finish_first_place();
  begin(state, Source::kSlices);
  finish();
}

// At the end of a run the newest state should be on disk first: the older state's mirror is given up.
void Saver::finish_first_place() {
  while (save_.busy() && !save_.committed()) wait_and_advance();
  if (!save_.busy()) return;
  save_.wait();
  save_.drop_mirrors();
}

void Saver::finish() {
  while (save_.busy()) wait_and_advance();
}

void Saver::wait_and_advance() {
  const auto saving = run_.activity().own("saving the checkpoint");
  std::vector<SaveStatus> words;
  {
    const Stopwatch watch(blocked_ns_);
    while (!save_.wait_while_still()) run_.activity().advance();  // over a slow network
    words = run_.control().gather(status());
  }
  advance(words);
}

}  // namespace sluice::run
