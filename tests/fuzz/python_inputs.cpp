// Files that child processes in Python read: tables, and tokenizers with what lies beside them.
#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "corpus/documents.h"
#include "corpus/load_tokenizer.h"
#include "inputs.h"
#include "program.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;
using base::text;

// A case starts a process, which takes as long as hundreds of other cases.
constexpr int64_t kShare = 1;

const corpus::PythonTools kTools{.interpreter = TOOLS_PYTHON,
                                 .scripts = fs::path(SLUICE_SOURCE_DIR) / "tools"};

// Ends by RunError unless the refusal names the folder in which the damaged file lies.
void require_named(const fs::path& folder, const std::function<void()>& read) {
  try {
    read();
  } catch (const base::InputError& error) {
    require(std::string(error.what()).find(folder.string()) != std::string::npos,
            text("no '", folder.string(), "' in: ", error.what()));
    throw;
  }
}

void read_table(const fs::path& path) {
  require_named(path, [&] {
    corpus::DocumentCounts counts;
    int64_t visited = 0;
    corpus::for_each_document({.path = path, .size_bytes = static_cast<int64_t>(fs::file_size(path))},
                              {.tools = kTools}, counts, [&](std::string_view) { ++visited; });
    require(visited == counts.documents, "documents are counted otherwise than visited");
  });
}

void read_tokenizer(const fs::path& file) {
  const fs::path folder = file.parent_path();
  require_named(folder, [&] {
    const auto tokenizer = corpus::load_tokenizer(folder, {.tools = kTools, .chats = true});
    const std::vector<std::string> texts = {"a text", "", "é\n<e> 😀"};
    const std::vector<corpus::EncodedText> checked = tokenizer->encode_checked(texts);
    const auto ids = tokenizer->encode_all(texts);
    const auto decoded = tokenizer->decode_all(ids);
    for (size_t i = 0; i < texts.size(); ++i) {
      require(checked[i].ids == ids[i], "a text has other tokens when they are checked");
      require(checked[i].changed == (decoded[i] != texts[i]), "a text is checked otherwise than decoded");
    }
    const std::string chat =
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
    for (const corpus::EncodedChat& each : tokenizer->encode_chats({&chat, 1}))
      if (!each.fault.empty()) throw base::InputError(text(folder.string(), ": ", each.fault));
  });
}

}  // namespace

std::vector<Input> python_inputs(const fs::path& scratch) {
  const fs::path folder = scratch / "python";
  fs::create_directories(folder);
  if (!fs::exists(TOOLS_PYTHON)) return {};
  const std::string command =
      text(TOOLS_PYTHON, " -B ", SLUICE_SOURCE_DIR, "/tests/fuzz/python_files.py '", folder.string(), "'");
  require(std::system(command.c_str()) == 0, text("cannot run ", command));
  const std::pair<const char*, void (*)(const fs::path&)> files[] = {
      {"table.parquet", read_table},
      {"table.arrow", read_table},
      {"bytes/tokenizer.json", read_tokenizer},
      {"bytes/tokenizer_config.json", read_tokenizer},
      {"bytes/chat_template.jinja", read_tokenizer}};
  std::vector<Input> inputs;
  for (const auto& [name, read] : files)
    inputs.push_back({text(name, " in Python"), damaged_file(folder / name, read), kShare});
  return inputs;
}

}  // namespace sluice::fuzz
