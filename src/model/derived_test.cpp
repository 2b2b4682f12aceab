// Hashes of everything that planning, checkpoints and memory derive from a model: parameters, their places in
// files and buckets, their cuts by TP and experts' lanes, work and bytes. Each configuration is tested
// untuned and tuned. SLUICE_UPDATE_GOLDEN=1 rewrites the expected hashes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/golden.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "model/hugging_face.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using base::CanonicalBytes;

class Figures {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    (add_one(values), ...);
  }
  std::string hash() const { return base::hash_text(bytes_.hash()); }

 private:
  void add_one(const std::string& text) { bytes_.add(std::string_view(text)); }
  void add_one(std::string_view text) { bytes_.add(text); }
  template <typename Number>
  requires std::integral<Number> || std::is_enum_v<Number>
  void add_one(Number number) { bytes_.add(static_cast<int64_t>(number)); }
  CanonicalBytes bytes_;
};

std::string parameters_of(const Program& program) {
  Figures all;
  for (const auto& kind : program.kinds()) {
    for (const Parameter& p : kind->parameters()) {
      all.add(p.role, p.factor, p.adapted, p.rows, p.columns, p.replicated, p.experts, p.transposed,
              p.stacked, p.depthwise, p.start, p.adapts && !p.one_dimensional(), p.trained, p.learns);
      for (const std::string& tensor : p.tensors) all.add(tensor);
      for (const RowGroup& group : p.groups) all.add(group.rows, group.units);
    }
  }
  return all.hash();
}

std::string files_of(const ParameterTable& table) {
  Figures all;
  for (const Bucket& bucket : table.buckets) {
    all.add(bucket.position, bucket.kind, bucket.layer, bucket.path, bucket.size);
    for (const Parameter& parameter : bucket.parameters) {
      all.add(parameter.name, parameter.offset, parameter.place);
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter)) {
        const FileOrder& order = tensor.order;
        all.add(tensor.name, tensor.row_begin, tensor.rows, tensor.columns, order.block_rows,
                order.block_stride, order.halves, order.half_stride, order.row_stride, order.column_stride);
        for (const int64_t size : tensor.shape) all.add(size);
      }
    }
  }
  return all.hash();
}

// Calls visit(cut) for each TP rank and, if lanes divide the experts, for each lane.
template <typename Visit>
void for_each_cut(const Outline& outline, const Kind& kind, Visit visit) {
  for (const int tp : {1, 2, 3, 4, 6, 8, 16, 32}) {
    if (!kind.tp_fault(tp).empty()) continue;
    for (const int lanes : {1, 2, 4}) {
      if (!experts_fault(outline, lanes).empty()) continue;
      for (int t = 0; t < tp; ++t) {
        for (int lane = 0; lane < lanes; ++lane) visit(Cut{tp, t, lanes, lane});
      }
    }
  }
}

std::string cuts_of(const Outline& outline, const Program& program) {
  Figures all;
  for (const auto& kind : program.kinds()) {
    for_each_cut(outline, *kind, [&](const Cut& cut) {
      for (const Parameter& parameter : kind->parameters()) {
        if (parameter.experts == 0 && cut.expert_lanes > 1) continue;
        for (const base::Interval& rows : local_rows(parameter, cut)) all.add(rows.begin, rows.end);
      }
    });
  }
  return all.hash();
}

std::string work_of(const Program& program) {
  Figures all;
  for (const auto& kind : program.kinds()) {
    const TokenWork work = kind->work();
    all.add(work.products, work.trained, work.recomputed, work.routed, work.attention, work.window,
            work.scanned, work.elements, work.collectives);
  }
  return all.hash();
}

std::string bytes_of(const Outline& outline, const Program& program) {
  Figures all;
  for (const auto& kind : program.kinds()) {
    for (const int tp : {1, 2, 3, 4, 6, 8, 16, 32}) all.add(kind->tp_fault(tp));
    for_each_cut(outline, *kind, [&](Cut cut) {
      if (cut.t > 0 || cut.expert_lane > 0) return;
      for (const bool keeps : {true, false}) {
        cut.keeps_dispatched = keeps;
        for (const int64_t element : {2, 4, 8}) {
          const TokenBytes bytes = kind->bytes(cut, element);
          const CacheBytes cache = kind->cache(cut, element);
          all.add(bytes.saved, bytes.recompute_input, bytes.deferred, bytes.recomputed, bytes.forward,
                  bytes.backward, bytes.ring_backward, cache.token, cache.sequence);
        }
      }
    });
  }
  return all.hash();
}

std::string line_of(const std::string& name, const Outline& outline) {
  const ParameterTable table = parameter_table(outline);
  const Program& program = table.program;
  return base::text(name, ": ", program.kinds().size(), " kinds, parameters ", parameters_of(program),
                    ", files ", files_of(table), ", cuts ", cuts_of(outline, program), ", work ",
                    work_of(program), ", bytes ", bytes_of(outline, program), "\n");
}

// Untuned, and tuned as far as possible.
std::string lines_of(const std::string& name, const Outline& outline) {
  std::string lines = line_of(name, outline);
  const auto add = [&](const char* how, auto change) {
    Outline tuned = outline;
    try {
      change(tuned);
    } catch (const base::InputError&) {
      return;  // this tuning does not apply
    }
    lines += line_of(name + ", " + how, tuned);
  };
  add("adapters", [](Outline& s) { adapt(s, {.rank = 4, .alpha = 8, .targets = {"all-linear"}}); });
  add("frozen layers", [](Outline& s) { freeze(s, {"*.layers.[01].*", "*embed*"}); });
  add("frozen queries", [](Outline& s) { freeze(s, {"*q_proj*", "*k_proj*", "*v_proj*", "*down_proj*"}); });
  add("frozen experts", [](Outline& s) { freeze(s, {"*experts*"}); });
  add("a frozen adapter", [](Outline& s) {
    adapt(s, {.rank = 2, .alpha = 8, .targets = {"all-linear"}});
    freeze(s, {"*.layers.0.*lora_A*"});
  });
  if (outline.experts.count > 0) add("loads", [](Outline& s) { remember_loads(s); });
  return lines;
}

std::string derived(const base::Golden& golden) {
  std::string lines;
  const auto values = [&](const char* key) {
    return golden.has(key) ? golden.values.at(key) : std::vector<std::string>();
  };
  for (const std::string& fixture : values("fixture")) {
    const auto path =
        std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/parity" / fixture / "config.json";
    lines += lines_of(fixture, outline_to_plan_from_hugging_face(base::read_json(path), path.string()));
  }
  for (const std::string& json : values("config")) {
    const base::Json config = base::Json::parse(json);
    const std::string name = config.at("model_type");
    lines += lines_of(name, outline_to_plan_from_hugging_face(config, name));
  }
  return lines;
}

TEST(Derived, FiguresOfModelsAreAsReviewed) {
  const bool rewrite = std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr;
  const auto use = rewrite ? base::GoldenUse::kRewrite : base::GoldenUse::kCompare;
  EXPECT_EQ(base::check_golden("derived", use, derived), 3);
}

}  // namespace
}  // namespace sluice::model
