#include "model/program.h"

#include <algorithm>

#include "base/choices.h"
#include "base/error.h"
#include "base/text.h"
#include "model/outline.h"

namespace sluice::model {
namespace {

constexpr int kAnyTp = 0;  // key in Body::cuts

// A block kind's multiply-adds for a token in a sequence of usual length.
std::vector<int64_t> relative_work(const std::vector<std::shared_ptr<const Kind>>& kinds) {
  constexpr int64_t kUsualTokens = 4096;
  std::vector<int64_t> relative(kinds.size());
  for (size_t kind = 1; kind + 1 < kinds.size(); ++kind) {
    const TokenWork work = kinds[kind]->work();
    const int64_t seen = work.window > 0 ? std::min(work.window, kUsualTokens) : kUsualTokens;
    relative[kind] = work.products + work.scanned + work.attention * seen;
  }
  return relative;
}

}  // namespace

Program::Program(const Model& model, const KindTimes& times) {
  const auto body = std::make_shared<Body>();
  body->kinds = model.kinds();
  const auto add = [&](int kind) {
    const auto position = static_cast<int64_t>(body->operations.size());
    Operation& operation = body->operations.emplace_back(Operation{.kind = kind, .own = {}, .buckets = {}});
    operation.own.begin = static_cast<int64_t>(body->buckets.size());
    for (const BucketPlace bucket :
         {BucketPlace{position, true, false}, BucketPlace{position, true, true},
          BucketPlace{position, false, false}, BucketPlace{position, false, true},
          BucketPlace{position, false, false, true}, BucketPlace{position, false, true, true}}) {
      const bool any = std::ranges::any_of(body->kinds[static_cast<size_t>(kind)]->parameters(),
                                           [&](const Parameter& own) { return bucket.has(own); });
      if (!any) continue;
      operation.buckets.push_back(static_cast<int>(body->buckets.size()));
      body->buckets.push_back(bucket);
    }
    operation.own.end = static_cast<int64_t>(body->buckets.size());
  };
  add(0);
  for (int64_t layer = 0; layer < model.layers(); ++layer) add(model.kind_of(layer));
  add(static_cast<int>(body->kinds.size()) - 1);
  if (model.ties_head() || model.has_mtp()) {
    const std::vector<int>& tied = body->operations.front().buckets;
    std::vector<int>& head = body->operations.back().buckets;
    head.insert(head.begin(), tied.begin(), tied.end());
  }
  const auto trained = std::ranges::find(body->buckets, true, &BucketPlace::trained);
  body->first_trained =
      trained != body->buckets.end() ? trained->position : static_cast<int64_t>(body->operations.size());

  body->run = {0, static_cast<int64_t>(body->operations.size())};
  cut_stages(times, *body);
  body_ = body;
}

Program Program::trunk(base::Interval run) const {
  const base::Interval own = base::intersect(run, {0, size()});
  if (own != run || blocks_in(run).empty()) {
    throw base::InputError(
        base::text("a trunk of operations ", run.begin, " to ", run.end, " of a model that has ", size(),
                   ": it needs a block, which are operations ", blocks().begin, " to ", blocks().end - 1));
  }
  const auto body = std::make_shared<Body>();
  body->kinds = body_->kinds;
  body->operations = body_->operations;
  body->buckets = body_->buckets;
  body->run = run;
  body->first_trained = body_->first_trained;
  cut_stages(body_->times, *body);
  Program trunk;
  trunk.body_ = body;
  return trunk;
}

// If another trunk has an end of the model, that end takes no time in the first or last stage.
void Program::cut_stages(const KindTimes& times, Body& body) {
  const base::Interval blocks =
      base::intersect(body.run, {1, static_cast<int64_t>(body.operations.size()) - 1});
  const auto cut = [&](int tp, const std::vector<int64_t>& of_kind) {
    const auto time_at = [&](int64_t position) {
      if (position < body.run.begin || position >= body.run.end) return int64_t{0};
      return of_kind[static_cast<size_t>(body.operations[static_cast<size_t>(position)].kind)];
    };
    std::vector<int64_t> of_operation;
    for (int64_t position = blocks.begin - 1; position <= blocks.end; ++position)
      of_operation.push_back(time_at(position));
    body.cuts.try_emplace(tp, of_operation);
  };
  cut(kAnyTp, relative_work(body.kinds));
  for (const auto& [tp, of_kind] : times) {
    SLUICE_ASSERT(
        tp > kAnyTp && of_kind.size() == body.kinds.size(),
        base::text("times of ", of_kind.size(), " kinds for ", body.kinds.size(), " under tp ", tp));
    cut(tp, of_kind);
  }
  body.times = times;
}

base::Interval Program::of_stage(int tp, int stages, int stage) const {
  const auto own = body_->cuts.find(tp);
  const base::Interval operations =
      (own != body_->cuts.end() ? own : body_->cuts.begin())->second.of_stage(stages, stage);
  // Stages are cut among the trunk's blocks, after one operation.
  const int64_t shift = blocks_in(run()).begin - 1;
  return base::intersect({operations.begin + shift, operations.end + shift}, run());
}

bool Program::cuts_as(const Program& other) const {
  return body_ == other.body_ || (body_->times == other.body_->times && run() == other.run());
}

// Blocks come first, because their faults say more.
std::string Program::tp_fault(int tp) const {
  constexpr int kMostNamed = 64;
  // Blocks first: their reasons say more than the vocabulary's.
  const auto fault_of = [this](int degree) -> std::string {
    for (size_t i = 1; i <= kinds().size(); ++i) {
      if (std::string fault = kinds()[i % kinds().size()]->tp_fault(degree); !fault.empty()) return fault;
    }
    return "";
  };
  const std::string fault = fault_of(tp);
  if (fault.empty()) return "";
  std::vector<std::string> degrees;
  for (int degree = 1; degree <= kMostNamed; ++degree) {
    if (fault_of(degree).empty()) degrees.push_back(base::text(degree));
  }
  return base::text(fault, ": ", base::choices_text(degrees));
}

std::vector<int> Program::buckets_of(base::Interval run) const {
  std::vector<int> buckets;
  for (int64_t position = run.begin; position < run.end; ++position) {
    buckets.insert(buckets.end(), at(position).buckets.begin(), at(position).buckets.end());
  }
  std::ranges::sort(buckets);
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  return buckets;
}

Model short_model(const Model& model, int most_blocks) {
  const Outline& outline = model.outline();
  Outline result = outline;
  result.block_types.clear();
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    const BlockType type = outline.block_type(layer);
    if (std::ranges::count(result.block_types, type) < most_blocks) result.block_types.push_back(type);
  }
  result.layers = static_cast<int64_t>(result.block_types.size());
  if (outline.block_types.empty()) result.block_types.clear();
  return result;
}

std::string tp_fault(const Model& model, int tp) {
  if (tp < 1) return base::text("tp is ", tp, " but must be at least 1");
  return Program(model).tp_fault(tp);
}

std::string experts_fault(const Model& model, int lanes) {
  const int64_t experts = model.experts().count;
  if (lanes == 1 || (experts > 0 && experts % lanes == 0)) return "";
  if (experts == 0)
    return base::text(lanes, " lanes divide experts, but the model has none: leave the degree out");
  std::vector<std::string> divisors;
  for (int64_t divisor = 1; divisor <= experts; ++divisor) {
    if (experts % divisor == 0) divisors.push_back(base::text(divisor));
  }
  return base::text(lanes, " lanes do not divide ", experts, " experts: ", base::choices_text(divisors));
}

std::string pp_fault(const Model& model, int pp) {
  if (pp <= model.layers()) return "";
  return base::text(pp, " stages but the model has ", model.layers(), " layers: lower pp");
}

std::string cut_fault(const Model& model, int tp, int pp, int expert_lanes) {
  std::string fault = tp_fault(model, tp);
  if (fault.empty()) fault = pp_fault(model, pp);
  return fault.empty() ? experts_fault(model, expert_lanes) : fault;
}

}  // namespace sluice::model
