#include "train/step_acts.h"

#include <utility>

#include "base/text.h"

namespace sluice::train {

StepActs::StepActs(run::RunContext& run) : run_(run) {
  std::vector<session::OtherModel> teachers;
  run.control().together("opening the teacher", [&] { teachers = session::teachers(run.config()); });
  for (const session::OtherModel& model : teachers) {
    teachers_.push_back(
        std::make_unique<run::Trunk>(run, model, run::Trunk::Options{.leaves_head_rows = true}));
    teachers_.back()->load();
    run.planning().add_earlier(teachers_.back()->act());
  }
  if (run.config().rl.algorithm == config::RlAlgorithm::kPpo) critic_ = std::make_unique<run::Critic>(run);
}

// The rows that the teachers leave, one after the other.
runtime::TeacherRows StepActs::teach(const run::PreparedStep& step) {
  runtime::TeacherRows rows;
  for (size_t i = 0; i < teachers_.size(); ++i) {
    runtime::RowFigures left = teachers_[i]->evaluate(
        step.earlier[i], step.tokens,
        base::text("running the ", teachers_[i]->model().act, " of step ", step.plan.step + 1));
    rows.push_back(std::move(left.head_rows));
    note_earlier(*teachers_[i]);
    earlier_.back().predicted_peak_bytes = step.earlier_peak_bytes[i];
  }
  return rows;
}

runtime::StepResult StepActs::train(const run::PreparedStep& step, const runtime::AdamW& optimizer) {
  earlier_.clear();
  earlier_timings_.clear();
  const runtime::TeacherRows rows = teach(step);
  if (step.critic) {
    critic_result_ = critic_->train(*step.critic, optimizer);
    note_earlier(critic_->trunk());
  }
  const auto running = run_.activity().nodes(base::text("running step ", step.plan.step + 1));
  return run_.engine().train(step.graph, step.tokens, optimizer, rows.empty() ? nullptr : &rows);
}

// Copies the act's figures, because planning may run the trunk again.
void StepActs::note_earlier(const run::Trunk& trunk) {
  earlier_.push_back(trunk.newest());
  earlier_.back().name = trunk.model().act;
  earlier_timings_.push_back(trunk.newest_timing());
}

void StepActs::describe(const run::PreparedStep& step, const runtime::StepResult& result,
                        report::StepRecord& record) const {
  if (earlier_.empty() && record.acts.empty()) return;
  const int64_t update_ns = record.predicted_ns;
  int64_t earlier_ns = 0;
  for (const report::ActRecord& act : earlier_) {
    record.acts.push_back(act);
    earlier_ns += act.time_ns;
    record.predicted_ns += act.predicted_ns;  // acts run one after the other
  }
  if (!teachers_.empty()) record.teacher_ns = earlier_ns;
  if (critic_) record.critic_ns = earlier_ns;
  record.acts.push_back(
      {"update", result.timing.step_ns, update_ns, result.peak_bytes, step.predicted_peak_bytes});
  if (!critic_) return;
  record.value_loss = critic_result_.mean_loss();
  record.critic_grad_norm = critic_result_.gradient_norm;
  if (critic_result_.targets > 0)
    record.value_clip_fraction = critic_result_.notes.front() / static_cast<double>(critic_result_.targets);
}

std::vector<run::TracedAct> StepActs::traced(const run::PreparedStep& step,
                                             const runtime::StepResult& result) const {
  std::vector<run::TracedAct> acts;
  for (size_t i = 0; i < teachers_.size(); ++i)
    acts.push_back({teachers_[i]->model().act, step.earlier[i], teachers_[i]->cost(), earlier_timings_[i]});
  if (step.critic)
    acts.push_back(
        {critic_->trunk().model().act, step.critic->graph, critic_->trunk().cost(), earlier_timings_.back()});
  acts.push_back({"update", step.graph, run_.planning().cost(), result.timing});
  return acts;
}

}  // namespace sluice::train
