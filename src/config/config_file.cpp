#include "config/config_file.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/idle_keys.h"
#include "config/keys.h"
#include "config/other_names.h"
#include "config/renamed_keys.h"
#include "model/outline.h"

namespace sluice::config {
namespace {

using base::InputError;
using base::text;

// Removes all keys but `kept`; does nothing for a null table.
void keep_only(toml::table* table, std::string_view kept) {
  if (table == nullptr) return;
  std::vector<std::string> others;
  for (const auto& [key, value] : *table) {
    if (key.str() != kept) others.emplace_back(key.str());
  }
  for (const std::string& key : others) table->erase(key);
}

// Applies "section.key=value" to root[section][key].
void apply_override(toml::table& root, const std::string& setting) {
  const size_t equals = setting.find('=');
  const size_t dot = setting.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw InputError(text("[config] --set ", setting, ": expected section.key=value"));
  }
  const std::string section = setting.substr(0, dot);
  const std::string key = setting.substr(dot + 1, equals - dot - 1);
  const std::string value = setting.substr(equals + 1);
  toml::table parsed;
  try {
    parsed = base::parse_toml("value = " + value, "--set");
  } catch (const InputError&) {
    parsed.insert_or_assign("value", value);
  }
  if (parsed.size() != 1) {
    throw InputError(text("[config] --set ", setting, ": the value has more than one line: give one"));
  }
  if (!root.contains(section)) root.insert(section, toml::table{});
  // An override of model.hf replaces the file's whole model, but for the seed.
  if (section == "model" && key == "hf") keep_only(root[section].as_table(), "seed");
  toml::table* table = root[section].as_table();
  if (table == nullptr)
    throw InputError(text("[config] --set ", setting, ": '", section,
                          "' is a value: set a key of a section, as in train.steps=7"));
  table->insert_or_assign(key, *parsed.get("value"));
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& section : sections()) names.emplace_back(section.name);
  names.emplace_back("phase");
  return names;
}

void refuse_unknown_sections(const toml::table& root, const std::string& name) {
  const std::vector<std::string> names = section_names();
  for (const auto& [key, value] : root) {
    const std::string found(key.str());
    const bool known = std::ranges::find(names, found) != names.end();
    const toml::array* list = value.as_array();
    const bool tables = list != nullptr && list->is_homogeneous(toml::node_type::table);
    if (known && (found == "phase" ? tables : value.is_table())) continue;
    if (found == "phase") {
      throw InputError(
          text("[config] ", place_of(name, value), ": phases are written [[phase]], with two brackets"));
    }
    const std::string nearest = base::nearest_word(found, names);
    throw InputError(text("[config] ", place_of(name, value), ": unknown section '", found, "'",
                          nearest.empty() ? text(": known are ", base::join(names, ", "))
                                          : text(": did you mean '", nearest, "'?")));
  }
}

// Refuses values that are valid each but not together.
void require_consistent(ModelConfig& model, const TomlSection& section) {
  const bool has_shape = section.has("layers");
  if (!model.hf.empty() && has_shape) section.wrong("hf", "and a shape are both given: keep one");
  if (model.hf.empty() && !has_shape)
    section.wrong("layers", "is missing: give a shape, or a folder as model.hf");
  if (!has_shape) return model.given.reset();
  try {
    model::validate(model.given->outline());
    model.resolved = model.given;
  } catch (const InputError& error) {
    throw InputError(text("[config] ", section.file(), ": ", error.what()));
  }
}

void require_consistent(const TrainConfig& train, const TomlSection& section) {
  if (train.dtype == ComputeType::kFloat64 && train.master_dtype == MasterType::kBFloat16) {
    section.wrong("master_dtype",
                  "is bfloat16, but with dtype = \"float64\" everything is float64: leave it out, or compute "
                  "in bfloat16 or float32");
  }
  if (train.dtype != ComputeType::kFloat64 || train.reduce_dtype != ReduceType::kBFloat16) return;
  section.wrong(
      "reduce_dtype",
      "is bfloat16, but with dtype = \"float64\" everything is float64: leave it out, or compute in "
      "float32");
}

std::vector<PhaseConfig> read_phases(const toml::table& root, const DataConfig& data,
                                     const std::string& file) {
  std::vector<PhaseConfig> phases;
  const toml::array* tables = root["phase"].as_array();
  if (tables == nullptr) return phases;
  for (const toml::node& node : *tables) {
    TomlSection section(node.as_table(), "phase", file);
    const PhaseConfig before = phases.empty() ? PhaseConfig{.data = data} : phases.back();
    PhaseConfig phase = before;
    if (!section.has("step")) section.wrong("step", "is missing: say with which step the phase begins");
    FieldReader reader(section);
    visit(phase, reader);
    section.finish();
    if (phase.step <= before.step)
      section.refuse("step", base::expectation(base::Range<int64_t>{before.step + 1, kMostSteps}));
    // With the same seed, documents would come again in the same order.
    if (!section.has("seed") && !goes_on(before.data, phase.data)) ++phase.data.seed;
    phases.push_back(std::move(phase));
  }
  return phases;
}

// Collects "section.key" for all sections.
class KeyList final : public Fields {
 public:
  static std::vector<std::string> all() {
    RunConfig any;
    KeyList list;
    for (const Section& section : sections()) {
      list.section_ = section.name;
      section.visit(any, list);
    }
    return list.keys_;
  }
  void operator()(const char* key, FieldValue&&, const char*) override {
    keys_.push_back(text(section_, ".", key));
  }

 private:
  std::string section_;
  std::vector<std::string> keys_;
};

// The key of another section that has this name, or that other trainers call so; "" if there is none.
std::string key_elsewhere(const std::string& key) {
  for (const std::string& known : KeyList::all()) {
    if (known.ends_with("." + key)) return known;
  }
  return std::string(key_of_other_name(key));
}

RunConfig read_sections(const toml::table& root, const std::string& file) {
  refuse_unknown_sections(root, file);
  refuse_old_names(root, file);
  RunConfig config;
  for (const Section& each : sections()) {
    TomlSection section(root, each.name, file);
    FieldReader reader(section);
    each.visit(config, reader);
    section.finish(key_elsewhere);
    if (each.name == std::string_view("model")) require_consistent(config.model, section);
    if (each.name == std::string_view("train")) require_consistent(config.train, section);
  }
  config.phases = read_phases(root, config.data, file);
  return config;
}

// Writes one line per key: "steps = 100 # 1 to 2^40: of the whole run". Long ones are wrapped.
class Describer final : public Fields {
 public:
  Describer(std::ostream& out, const char* prefix) : out_(out), prefix_(prefix) {}

  void operator()(const char* key, FieldValue&& value, const char* meaning) override {
    constexpr size_t kColumn = 24, kWidth = 96;
    toml::table alone;
    value.write(alone, key);
    const toml::node* node = alone.get(key);
    std::string line = node ? text(prefix_, key, " = ", shown(node)) : text("# ", key, " =");
    line.resize(std::max(line.size() + 1, kColumn + 1), ' ');
    const std::string may_be = value.expectation();
    std::string comment = text(may_be, may_be.empty() || *meaning == '\0' ? "" : ": ", meaning);
    while (line.size() + comment.size() > kWidth) {
      const size_t room = std::max(kWidth, line.size() + 40) - line.size();
      const size_t space = comment.size() <= room ? std::string::npos : comment.rfind(' ', room);
      if (space == std::string::npos) break;
      out_ << line << "# " << comment.substr(0, space) << '\n';
      comment = comment.substr(space + 1);
      line.assign(kColumn + 1, ' ');
    }
    out_ << line << (comment.empty() ? "" : "# ") << comment << '\n';
  }

 private:
  std::ostream& out_;
  const char* prefix_;
};

// Describes all tables, or an example if there are none.
template <typename Table>
void describe_tables(std::ostream& out, const char* header, std::vector<Table> tables) {
  const char* prefix = tables.empty() ? "# " : "";
  if (tables.empty()) tables.emplace_back();
  for (Table& table : tables) {
    out << prefix << header << '\n';
    Describer describer(out, prefix);
    visit(table, describer);
    out << '\n';
  }
}

}  // namespace

RunConfig parse_config(const std::string& toml_text, const std::string& name,
                       const std::vector<std::string>& overrides, Origin origin) {
  toml::table root = base::parse_toml(toml_text, "[config] " + name);
  if (origin == Origin::kRun) translate_old_names(root);
  for (const std::string& setting : overrides) apply_override(root, setting);
  return read_sections(root, name);
}

namespace {

void require_toml(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  for (const char* other : {".yaml", ".yml", ".json", ".py"}) {
    if (ending == other)
      throw InputError(text("[config] ", path.string(), ": configurations are TOML, not ", ending.substr(1),
                            ": write [section] lines and key = value; `sluice keys config` prints all keys"));
  }
}

// A run writes its resolved configuration beside its metrics, so metrics.jsonl marks a run's file.
Origin origin_of(const std::filesystem::path& path) {
  const bool of_run =
      path.filename() == "config.toml" && std::filesystem::exists(path.parent_path() / "metrics.jsonl");
  return of_run ? Origin::kRun : Origin::kUser;
}

}  // namespace

RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  require_toml(path);
  const Origin origin = origin_of(path);
  RunConfig config = parse_config(base::read_file(path), path.string(), overrides, origin);
  if (origin == Origin::kUser) refuse_idle_keys(config);
  return config;
}

std::string to_toml(const RunConfig& config) {
  RunConfig written = config;
  std::ostringstream out;
  for (const Section& section : sections()) {
    FieldWriter writer;
    section.visit(written, writer);
    out << "[" << section.name << "]\n" << base::toml_text(writer.table) << "\n\n";
  }
  for (PhaseConfig& phase : written.phases) {
    FieldWriter writer;
    visit(phase, writer);
    out << "[[phase]]\n" << base::toml_text(writer.table) << "\n\n";
  }
  return out.str();
}

std::string described(const RunConfig& config) {
  RunConfig written = config;
  std::ostringstream out;
  for (const Section& section : sections()) {
    out << "[" << section.name << "]" << (*section.meaning == '\0' ? "" : "  # ") << section.meaning << '\n';
    Describer describer(out, "");
    section.visit(written, describer);
    out << '\n';
  }
  if (written.optimizer.groups.empty())
    describe_tables<GroupConfig>(out, "[[optimizer.groups]]  # the first that names a parameter counts", {});
  describe_tables(out, "[[phase]]  # any number, in order of their steps", written.phases);
  return out.str();
}

}  // namespace sluice::config
