#include "model/tuning.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/coded_weight.h"
#include "model/derive.h"
#include "model/hugging_face.h"
#include "model/lora_targets.h"
#include "model/outline.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::text;

constexpr const char* kAllLinear = "all-linear";
constexpr base::Range<int64_t> kRanks{1, 1 << 16};
constexpr base::Range<double> kAlphas{1e-6, 1e6};
constexpr base::Range<int64_t> kWordBytes{2, 8};

bool glob_matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// How strings name tensors: as patterns, also of modules, or exactly. A stack of experts
// ("experts.down_proj") is named like the module in which its adapters would lie.
enum class Naming : uint8_t { kPatterns, kNames };

// By tensor of the parameter, whether it is named.
std::vector<bool> matched(const std::vector<std::string>& patterns,
                          const std::vector<HuggingFaceTensor>& tensors, Naming naming) {
  std::vector<bool> result;
  for (const HuggingFaceTensor& tensor : tensors) {
    result.push_back(std::ranges::any_of(patterns, [&](const std::string& pattern) {
      return naming == Naming::kNames ? pattern == tensor.name : matches(pattern, tensor.name);
    }));
  }
  return result;
}

// Names a few tensors each; many, such as all experts', by their common prefix.
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kFew = 4;
  if (names.size() <= kFew) return base::join(names, ", ");
  std::string common = names.front();
  for (const std::string& name : names) {
    const auto differs = std::ranges::mismatch(common, name).in1;
    common.resize(static_cast<size_t>(differs - common.begin()));
  }
  common.resize(std::min(common.size(), common.rfind('.')));
  return text("the ", names.size(), " tensors, as '", common, "' does");
}

// Matrices that are computed as one have one gradient.
[[noreturn]] void refuse_part(const std::vector<HuggingFaceTensor>& tensors, const std::vector<bool>& which) {
  std::vector<std::string> all;
  for (const HuggingFaceTensor& tensor : tensors) all.push_back(tensor.name);
  const auto other = static_cast<size_t>(std::ranges::find(which, false) - which.begin());
  const auto one = static_cast<size_t>(std::ranges::find(which, true) - which.begin());
  throw InputError(text("train.freeze names ", all[one], " but not ", all[other],
                        ", and they are computed as one matrix: freeze all of ", names_text(all),
                        ", or give the one a group in optimizer.groups with lr = 0"));
}

// Bits of an operation's parameters as in BlockType::frozen: earlier ones, and those that match.
uint64_t frozen_bits(const ParameterTable& table, int64_t position, const std::vector<std::string>& patterns,
                     Naming naming) {
  uint64_t bits = 0;
  const base::Interval own = table.program.at(position).own;
  const std::vector<Parameter>& parameters = table.program.kind_at(position).parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto tensors = hugging_face_tensors(table.buckets[static_cast<size_t>(own.begin)], parameters[i]);
    const std::vector<bool> which = matched(patterns, tensors, naming);
    const auto count = std::ranges::count(which, true);
    const bool all = !which.empty() && count == static_cast<int64_t>(which.size());
    if (parameters[i].trained && count > 0 && !all) refuse_part(tensors, which);
    if (all || !parameters[i].trained) bits |= uint64_t{1} << i;
  }
  return bits;
}

// Gives each layer its own type, so that types may differ.
void say_block_types(Outline& outline) {
  std::vector<BlockType> types;
  for (int64_t layer = 0; layer < outline.layers; ++layer) types.push_back(outline.block_type(layer));
  outline.block_types = std::move(types);
}

void freeze_blocks(Outline& outline, const ParameterTable& table, const std::vector<std::string>& patterns,
                   Naming naming) {
  say_block_types(outline);
  const int64_t first = table.program.blocks().begin;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    outline.block_types[static_cast<size_t>(layer)].frozen =
        frozen_bits(table, first + layer, patterns, naming);
  }
}

void set_frozen(Outline& outline, const ParameterTable& table, const std::vector<std::string>& patterns,
                Naming naming = Naming::kPatterns) {
  freeze_blocks(outline, table, patterns, naming);
  outline.frozen_embedding = frozen_bits(table, table.program.embedding(), patterns, naming);
  outline.frozen_head = frozen_bits(table, table.program.head(), patterns, naming);
}

// A head of numbers trains whole beside adapters, like PEFT's modules_to_save: no base model has it.
void train_numbers(Outline& outline) {
  const std::vector<Parameter>& parameters = Model(outline).kinds().back()->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_of_numbers(parameters[i])) outline.frozen_head &= ~(uint64_t{1} << i);
  }
}

// The modules of matrices that blocks multiply with.
std::vector<std::string> linear_modules(const Model& model) {
  std::vector<std::string> modules;
  const Program program(model);
  const std::span kinds(program.kinds());
  for (const auto& kind : kinds.subspan(1, kinds.size() - 2)) {
    for (const Parameter& parameter : kind->parameters()) {
      const bool adapts = takes_adapters(parameter.role, parameter.adapts) && !parameter.one_dimensional();
      if (!adapts || parameter.factor != Factor::kNone || parameter.experts > 0) continue;
      for (const std::string& tensor : parameter.tensors) {
        const std::string module(module_of(tensor));
        if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
      }
    }
  }
  return modules;
}

// The parameters in which transformers' classes stack experts' matrices, within a block.
std::vector<std::string> expert_parameters(const Model& model) {
  std::vector<std::string> paths;
  for (const auto& kind : model.kinds()) {
    if (kind->layer() == nullptr) continue;
    for (const Part& part : kind->layer()->parts) {
      for (const Weight& weight : part.weights) {
        if (weight.experts == 0 || !weight.is_product()) continue;
        std::string path = stacked_name(weight);
        if (std::ranges::find(paths, path) == paths.end()) paths.push_back(std::move(path));
      }
    }
    if (!paths.empty()) break;
  }
  return paths;
}

// Whether this is the name of experts' matrices, or of their stack.
bool is_of_experts(const Model& model, const std::string& module) {
  const Program program(model);
  for (const auto& kind : program.kinds()) {
    for (const Parameter& parameter : kind->parameters()) {
      if (parameter.experts > 0 && std::ranges::any_of(parameter.tensors, [&](const auto& tensor) {
            return module_of(tensor) == module;
          }))
        return true;
    }
  }
  return std::ranges::any_of(expert_parameters(model),
                             [&](const std::string& path) { return path.ends_with("." + module); });
}

[[noreturn]] void refuse_target(const Model& model, const std::string& target,
                                const std::vector<std::string>& names) {
  if (is_of_experts(model, target)) {
    throw InputError(text("lora.targets names '", target,
                          "', which are matrices of experts: name the parameters that stack them, ",
                          base::join(expert_parameters(model), ", ")));
  }
  const std::string nearest = base::nearest_word(target, names);
  throw InputError(text("lora.targets names '", target, "', which no layer has: ",
                        names.empty()     ? "the model has none that takes adapters: leave [lora] out"
                        : nearest.empty() ? text("there are ", base::join(names, ", "))
                                          : text("did you mean '", nearest, "'?")));
}

// Accepts modules by name, and experts by the parameters that stack them.
void require_targets(const Model& model, const std::vector<LoraTarget>& targets,
                     const std::vector<std::string>& modules) {
  const std::vector<std::string> stacks = expert_parameters(model);
  std::vector<std::string> names = modules;
  names.insert(names.end(), stacks.begin(), stacks.end());
  for (const LoraTarget& target : targets) {
    const auto stacked = [&](const std::string& path) { return names_stack(path, target.name); };
    if (std::ranges::find(modules, target.name) == modules.end() && std::ranges::none_of(stacks, stacked))
      refuse_target(model, target.name, names);
    if (std::ranges::count(targets, target.name, &LoraTarget::name) > 1 && target.own)
      throw InputError(text("lora.targets names '", target.name, "' twice: give it one rank and alpha"));
  }
}

// Replaces "all-linear" by the modules that no other entry names.
std::vector<std::string> with_all_linear(std::vector<std::string> targets,
                                         const std::vector<std::string>& modules) {
  if (std::erase(targets, kAllLinear) == 0) return targets;
  const std::vector<std::string> told = targets;
  for (const std::string& module : modules) {
    const auto names_it = [&](const std::string& entry) {
      return entry == module || entry.starts_with(module + ":");
    };
    if (std::ranges::none_of(told, names_it)) targets.push_back(module);
  }
  return targets;
}

struct AdaptedMatrix {
  std::string path;  // the module's or the parameter's
  int64_t rank = 0, in = 0, out = 0;
};

// Each matrix once, however many layers have it.
std::vector<AdaptedMatrix> adapted_matrices(const Model& model) {
  std::vector<AdaptedMatrix> all;
  const Program program(model);
  for (const auto& kind : program.kinds()) {
    const std::vector<Parameter>& parameters = kind->parameters();
    for (size_t i = 0; i + 1 < parameters.size(); ++i) {
      const Parameter &left = parameters[i], &right = parameters[i + 1];
      if (left.factor != Factor::kLeft) continue;
      const int64_t experts = std::max<int64_t>(1, left.experts);
      const std::string& tensor = left.tensors.front();
      all.push_back(
          {tensor.substr(0, tensor.find(".lora_")), left.columns, left.rows / experts, right.columns});
    }
  }
  return all;
}

// Experts' stacked matrices have no magnitudes, here and in PEFT.
void require_decomposable(const Model& model) {
  if (!model.lora().dora) return;
  for (const LoraTarget& target : lora_targets(model.lora())) {
    for (const std::string& path : expert_parameters(model)) {
      if (!names_stack(path, target.name)) continue;
      throw InputError(text("lora.dora is true, but lora.targets names '", target.name,
                            "', which stacks the matrices of experts: leave the target out, or set "
                            "lora.dora = false"));
    }
  }
}

void require_ranks(const Model& model) {
  for (const AdaptedMatrix& matrix : adapted_matrices(model)) {
    const int64_t most = std::min(matrix.in, matrix.out);
    if (matrix.rank <= most) continue;
    throw InputError(text("lora.rank is ", matrix.rank, ", above the rank of ", matrix.path, ", a matrix of ",
                          matrix.in, " x ", matrix.out, ": set it to at most ", most,
                          ", or leave the target out"));
  }
}

}  // namespace

bool is_of_numbers(const Parameter& parameter) {
  constexpr std::string_view kOfNumbers[] = {roles::kScore,    roles::kScoreBias, roles::kNeck,
                                             roles::kNeckBias, roles::kNeckNorm,  roles::kNeckNormBias};
  return std::ranges::find(kOfNumbers, parameter.role) != std::end(kOfNumbers);
}

bool matches(const std::string& pattern, const std::string& name) {
  return glob_matches(pattern, name) || glob_matches(pattern + ".*", name);
}

std::vector<std::string> tensor_names(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      for (HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter))
        names.push_back(std::move(tensor.name));
    }
  }
  return names;
}

namespace {

// Candidates for a mistyped pattern: tensors, and the modules that contain them.
std::vector<std::string> with_modules(const std::vector<std::string>& tensors) {
  std::set<std::string> names;
  for (const std::string& tensor : tensors) {
    for (size_t end = tensor.size(); end != std::string::npos; end = tensor.rfind('.', end - 1))
      names.insert(tensor.substr(0, end));
  }
  return {names.begin(), names.end()};
}

}  // namespace

void require_matches(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                     const std::string& what) {
  for (const std::string& pattern : patterns) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); })) continue;
    const std::string nearest = base::nearest_word(pattern, with_modules(names));
    constexpr size_t kShown = 3;
    const std::vector<std::string> shown(
        names.begin(), names.begin() + static_cast<int64_t>(std::min(kShown, names.size())));
    throw InputError(text(what, " names '", pattern, "', which no parameter is called: ",
                          nearest.empty() ? text("they are called ", base::join(shown, ", "), ", …")
                                          : text("did you mean '", nearest, "'?")));
  }
}

Model frozen(const Model& model, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return model;
  const ParameterTable table = parameter_table(model);
  require_matches(patterns, tensor_names(table), "train.freeze");
  Outline outline = model.outline();
  set_frozen(outline, table, patterns);
  Model result(std::move(outline));
  if (parameter_table(result).trained_size() > 0) return result;
  throw InputError(text("train.freeze is ", base::join(patterns, ", "),
                        ", which leaves nothing to train: leave some parameters out"));
}

Model adapted(const Model& model, const Lora& lora) {
  if (lora.rank == 0) return model;
  base::require_in_range("lora.rank", lora.rank, kRanks);
  base::require_in_range("lora.alpha", lora.alpha, kAlphas);
  Outline outline = model.outline();
  outline.lora = {};
  const Model plain(outline);
  const std::vector<std::string> modules = linear_modules(plain);
  Lora resolved = lora;
  resolved.targets = with_all_linear(lora.targets, modules);
  if (resolved.targets.empty()) {
    throw InputError(modules.empty()
                         ? "the model has no module that takes adapters: leave [lora] out"
                         : text("lora.targets is empty: name some of ", base::join(modules, ", ")));
  }
  require_targets(plain, lora_targets(resolved), modules);
  set_frozen(outline, parameter_table(plain), {"*"});
  train_numbers(outline);
  outline.lora = std::move(resolved);
  Model result(std::move(outline));
  require_ranks(result);
  require_decomposable(result);
  return result;
}

Model with_rank(const Model& model, int64_t rank) {
  Outline outline = model.outline();
  outline.lora.rank = rank;
  outline.lora.alpha = static_cast<double>(rank);
  return outline;
}

Model remembering_loads(const Model& model) {
  Outline outline = model.outline();
  outline.experts.remembers_loads = true;
  return outline;
}

bool is_hidden_matrix(const Bucket& bucket, const Parameter& parameter) {
  return bucket.layer >= 0 && !parameter.one_dimensional() && !parameter.depthwise;
}

ParameterGroupRuns parameter_group_runs(const ParameterTable& table,
                                        const std::vector<std::vector<std::string>>& groups) {
  ParameterGroupRuns runs(table.buckets.size());
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      if (!bucket.trained) continue;
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter)) {
        const auto group = std::ranges::find_if(groups, [&](const std::vector<std::string>& patterns) {
          return std::ranges::any_of(
              patterns, [&](const std::string& pattern) { return matches(pattern, tensor.name); });
        });
        const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
        runs[static_cast<size_t>(bucket.index)].push_back(
            {.elements = {begin, begin + tensor.rows * parameter.columns},
             .group = group == groups.end() ? -1 : static_cast<int>(group - groups.begin()),
             .one_dimensional = parameter.one_dimensional(),
             .hidden_matrix = is_hidden_matrix(bucket, parameter),
             .learns = parameter.learns});
      }
    }
  }
  return runs;
}

bool is_tuned(const Model& model) {
  const Outline& outline = model.outline();
  const auto frozen = [](const BlockType& type) { return type.frozen != 0; };
  return outline.lora.rank > 0 || outline.mtp || outline.frozen_embedding != 0 || outline.frozen_head != 0 ||
         outline.experts.remembers_loads || std::ranges::any_of(outline.block_types, frozen);
}

namespace {

// The model of the outline, if its coded matrices divide into the format's blocks; else InputError naming the
// format's key.
Model dividing(Outline outline, const std::string& key) {
  Model result(std::move(outline));
  const ParameterTable table = parameter_table(result);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      const std::string fault = bucket.coded ? format_fault(result.base(), parameter) : "";
      if (fault.empty()) continue;
      throw InputError(text(key, " is ", base::name_of(result.base().format), ", but ", fault,
                            ": choose \"nf4\", whose blocks may have parts of several rows"));
    }
  }
  return result;
}

}  // namespace

Model with_base(const Model& model, const BaseFormat& format) {
  if (!format.coded()) return model;
  const char* name = base::name_of(format.format);
  if (model.lora().rank == 0) {
    throw InputError(text("model.base is ", name,
                          ", which keeps what LoRA freezes in few bits, but lora.rank is 0: "
                          "set lora.rank, or leave model.base at \"none\""));
  }
  Outline outline = model.outline();
  outline.base = format;
  return dividing(std::move(outline), "model.base");
}

Model coded(const Model& model, const BaseFormat& format, const std::string& key) {
  if (!format.coded()) return model;
  Outline outline = untuned(model).outline();
  freeze_blocks(outline, parameter_table(outline), {"*"}, Naming::kPatterns);
  outline.base = format;
  return dividing(std::move(outline), key);
}

Model with_plain_base(const Model& model) {
  Outline outline = model.outline();
  outline.base = {};
  return outline;
}

Model untuned(const Model& model) {
  if (!is_tuned(model)) return model;
  Outline plain = model.outline();
  plain.lora = {};
  plain.base = {};
  plain.experts.remembers_loads = false;
  plain.mtp = false;
  plain.frozen_embedding = plain.frozen_head = 0;
  for (BlockType& type : plain.block_types) type.frozen = 0;
  // Types without information are left out, as by readers of config.json.
  const std::vector<BlockType> types = std::move(plain.block_types);
  plain.block_types.clear();
  if (std::ranges::count(types, plain.block_type(0)) != static_cast<int64_t>(types.size()))
    plain.block_types = types;
  return plain;
}

Model as_exported(const Model& model) {
  Outline plain = untuned(model).outline();
  plain.mtp = model.has_mtp();
  return plain;
}

base::Json tuning_to_json(const Model& model) {
  if (!is_tuned(model)) return nullptr;
  base::Json frozen = base::Json::array();
  const ParameterTable table = parameter_table(model);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      if (bucket.trained) continue;
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter))
        frozen.push_back(tensor.name);
    }
  }
  base::Json json = {{"frozen", frozen}};
  if (model.experts().remembers_loads) json["remembers_loads"] = true;
  if (model.has_mtp()) json["mtp"] = true;
  if (const Lora& lora = model.lora(); lora.rank > 0) {
    const BaseFormat& base = model.base();
    if (base.coded())
      json["base"] = {{"format", base::name_of(base.format)}, {"word_bytes", base.word_bytes}};
    json["lora"] = {{"rank", lora.rank}, {"alpha", lora.alpha}, {"targets", lora.targets}};
    if (lora.dora) json["lora"]["dora"] = true;
  }
  return json;
}

Model with_tuning(const Model& model, const base::Json& json, const std::string& name) {
  if (json.is_null()) return model;
  Model result = base::get_or<bool>(json, "remembers_loads", false, name) ? remembering_loads(model) : model;
  if (base::get_or<bool>(json, "mtp", false, name)) result = with_mtp(result);
  if (const base::Json* lora = base::find(json, "lora")) {
    result = adapted(result, {.rank = base::require_in(*lora, "rank", kRanks, name),
                              .alpha = base::require_in(*lora, "alpha", kAlphas, name),
                              .targets = base::require<std::vector<std::string>>(*lora, "targets", name),
                              .dora = base::get_or<bool>(*lora, "dora", false, name)});
  }
  const auto names = base::require<std::vector<std::string>>(json, "frozen", name);
  if (!names.empty()) {
    const ParameterTable table = parameter_table(result);
    require_matches(names, tensor_names(table), name);
    Outline outline = result.outline();
    set_frozen(outline, table, names, Naming::kNames);
    result = outline;
  }
  const base::Json* coded = base::find(json, "base");
  if (coded == nullptr) return result;
  const auto format = base::require<std::string>(*coded, "format", name);
  const auto found = std::ranges::find(
      base::kWeightFormats, format, [](base::WeightFormat each) { return std::string(base::name_of(each)); });
  if (found == std::end(base::kWeightFormats))
    throw InputError(text(name, ": base.format is '", format, "', which this program does not know"));
  return with_base(result, {*found, base::require_in(*coded, "word_bytes", kWordBytes, name)});
}

}  // namespace sluice::model
