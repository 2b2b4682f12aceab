#include "checkpoint/companions.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/json.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Json;

// File names of weights as Sluice reads them, and of those that `export --optimizer` writes beside them.
std::set<std::string> own_weights(const fs::path& folder) {
  std::set<std::string> names{"model.safetensors", "model.safetensors.index.json"};
  const fs::path index = folder / "model.safetensors.index.json";
  if (!fs::exists(index)) return names;
  const auto map = base::require<Json>(base::read_json(index), "weight_map", index);
  for (const auto& [tensor, file] : map.items()) {
    if (file.is_string()) names.insert(file.get<std::string>());
  }
  return names;
}

// Whether Sluice itself fills the folder: a run, checkpoint, optimizer or corpus.
bool is_own_folder(const fs::path& folder) {
  constexpr const char* kSigns[] = {"metrics.jsonl", "manifest.json", "state.json", "corpus.idx",
                                    "checkpoints"};
  return std::ranges::any_of(kSigns, [&](const char* sign) { return fs::exists(folder / sign); });
}

// Whether the file belongs to a corpus.
bool is_data(const fs::path& path) {
  const fs::path ending = path.extension();
  return (ending == ".bin" || ending == ".idx" || ending == ".mask") &&
         fs::exists(fs::path(path).replace_extension(".idx"));
}

// Whether the file has the model's weights in another program's format.
bool is_other_format(const std::string& name) {
  constexpr std::string_view kBeginnings[] = {"pytorch_model", "consolidated", "original/",
                                              "onnx/",         "gguf/",        "flax_model",
                                              "tf_model",      "coreml/",      "openvino"};
  constexpr std::string_view kEnds[] = {".gguf", ".pth", ".onnx", ".h5", ".msgpack", ".ot", ".mlmodel"};
  return std::ranges::any_of(kBeginnings, [&](auto part) { return name.starts_with(part); }) ||
         std::ranges::any_of(kEnds, [&](auto part) { return name.ends_with(part); });
}

bool is_hidden(const fs::path& name) {
  return std::ranges::any_of(name, [](const fs::path& part) { return part.string().starts_with('.'); });
}

}  // namespace

bool is_companion(std::string_view name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && path == path.lexically_normal() && path.has_filename() &&
         std::ranges::find(path, "..") == path.end();
}

std::vector<Companion> read_companions(const fs::path& folder, std::vector<std::string>* left_out) {
  std::vector<Companion> companions;
  const std::set<std::string> own = own_weights(folder);
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
    const std::string name = at->path().lexically_relative(folder).string();
    if (at->is_directory()) {
      if (is_hidden(name) || is_own_folder(at->path())) at.disable_recursion_pending();
      continue;
    }
    if (is_hidden(name) || !at->is_regular_file() || own.contains(name) || is_data(at->path())) continue;
    if (is_other_format(name)) {
      if (left_out != nullptr) left_out->push_back(name);
      continue;
    }
    Companion& companion = companions.emplace_back(Companion{.name = name});
    if (static_cast<int64_t>(at->file_size()) > kLargeCompanionBytes) {
      companion.place = fs::absolute(at->path());
    } else {
      companion.bytes = base::read_file(at->path());
    }
  }
  std::ranges::sort(companions, {}, &Companion::name);
  return companions;
}

}  // namespace sluice::checkpoint
