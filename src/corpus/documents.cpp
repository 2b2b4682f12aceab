#include "corpus/documents.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/byte_source.h"
#include "corpus/dataset_folder.h"
#include "corpus/json_objects.h"
#include "corpus/utf8.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

// Of a file that is looked through at once, so that progress shows and memory stays small.
constexpr size_t kPieceBytes = size_t{1} << 20;

bool is_excluded(const fs::path& path, const DocumentOptions& options) {
  const std::string file_name = path.filename().string();
  return std::any_of(options.exclude.begin(), options.exclude.end(),
                     [&](const std::string& pattern) { return matches_glob(file_name, pattern); });
}

bool is_wanted(const fs::path& path, const DocumentOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return std::find(options.suffixes.begin(), options.suffixes.end(), suffix) != options.suffixes.end();
}

std::vector<InputFile> find_in_directory(const fs::path& directory, const DocumentOptions& options,
                                         std::map<std::string, int64_t>& other_endings) {
  std::vector<InputFile> files;
  std::error_code error;
  fs::recursive_directory_iterator next(directory, fs::directory_options::skip_permission_denied, error);
  for (; !error && next != fs::recursive_directory_iterator(); next.increment(error)) {
    const bool excluded = is_excluded(next->path(), options);
    std::error_code ignored;
    if (next->is_directory(ignored)) {
      if (excluded) next.disable_recursion_pending();
    } else if (excluded || !next->is_regular_file(ignored)) {
      continue;
    } else if (!is_wanted(next->path(), options)) {
      ++other_endings[next->path().extension().string()];
    } else {
      files.push_back({next->path(), static_cast<int64_t>(next->file_size(ignored)), true});
    }
  }
  if (error)
    throw InputError(text("cannot list directory ", directory.string(), ": ", error.message(),
                          ": allow it or name others"));
  std::sort(files.begin(), files.end(),
            [](const InputFile& a, const InputFile& b) { return a.path.string() < b.path.string(); });
  return files;
}

bool holds_text(const base::Json& json, const std::string& key) {
  return json.is_object() && json.contains(key) && json[key].is_string();
}

// Whether the first line is a JSON object with text under the key, or a list begins whose first object has
// it.
bool begins_as_json(std::string_view bytes, const DocumentOptions& options) {
  const auto is_document = [&](std::string_view object) {
    return holds_text(base::Json::parse(object, nullptr, /*allow_exceptions=*/false), options.text_key);
  };
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin == bytes.npos) return false;
  if (bytes[begin] == '{') {
    const std::string_view line = base::trim(bytes.substr(begin, bytes.find('\n', begin) - begin));
    return line.ends_with('}') && is_document(line);
  }
  if (bytes[begin] != '[') return false;
  std::optional<bool> first;
  JsonObjects objects("", [&](const std::string& object, int64_t) {
    if (!first) first = is_document(object);
  });
  try {
    for (size_t at = begin; at < bytes.size() && !first; at += kPieceBytes) {
      objects.feed(bytes.substr(at, kPieceBytes));
    }
  } catch (const InputError&) {
    // Behind the first object it is the fault of a list of objects; before, of a text that is none.
  }
  return first.value_or(false);
}

bool is_json(const fs::path& path, std::string_view beginning, const DocumentOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json" || begins_as_json(beginning, options);
}

using Visit = std::function<void(RawDocument&&)>;

// `bytes` are the first of the source.
void read_json(std::string_view bytes, ByteSource& source, const std::string& name, const Visit& visit) {
  int64_t fed_bytes = 0;
  JsonObjects objects(name, [&](const std::string& object, int64_t line) {
    const int64_t read_bytes = source.compressed() ? source.read_bytes() : fed_bytes;
    visit({RawDocument::Form::kJson, object, text(name, ":", line), read_bytes});
  });
  for (; !bytes.empty(); bytes = source.next()) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const std::string_view piece = bytes.substr(at, kPieceBytes);
      fed_bytes += static_cast<int64_t>(piece.size());
      objects.feed(piece);
    }
  }
  objects.finish();
}

void read_table(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                const Visit& visit) {
  constexpr uint64_t kNull = ~uint64_t{0};
  const std::string name = file.path.string();
  PythonChild child(options.tools, "read_table.py", {name, options.text_key}, name);
  for (int64_t row = 0;;) {
    child.check_status();
    const auto count = child.receive_number<uint64_t>();
    const auto done_ppm = static_cast<double>(child.receive_number<uint64_t>());
    if (count == 0) return;
    for (uint64_t i = 0; i < count; ++i, ++row) {
      const auto size = child.receive_number<uint64_t>();
      if (size == kNull) {
        ++counts.empty_documents;
        continue;
      }
      RawDocument document{RawDocument::Form::kText, std::string(size, '\0'), text(name, ", row ", row),
                           static_cast<int64_t>(static_cast<double>(file.size_bytes) * done_ppm * 1e-6)};
      child.receive(document.bytes.data(), size);
      visit(std::move(document));
    }
  }
}

void read_chats(const InputFile& file, const Visit& visit) {
  const auto refuse = [&](const char* fault) {
    throw InputError(text(file.path.string(), ": ", fault,
                          ": conversations are JSON objects with messages, one a ",
                          "line; convert it to JSON Lines, or leave --chat out"));
  };
  if (is_table(file.path)) refuse("a table");
  ByteSource source(file.path);
  const std::string_view bytes = source.next();
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin == bytes.npos || (bytes[begin] != '{' && bytes[begin] != '[')) refuse("no JSON");
  read_json(bytes, source, file.path.string(), visit);
}

// Whatever a text file holds: `may_be_binary` then passes it over in silence.
void read_text(std::string_view bytes, const InputFile& file, bool may_be_binary,
               const DocumentOptions& options, DocumentCounts& counts, const Visit& visit) {
  if (may_be_binary && (bytes.find('\0') != bytes.npos || !is_utf8(bytes))) {
    ++counts.binary_files;
    return;
  }
  if (!is_utf8(bytes)) {
    ++counts.refused_documents;
    return;
  }
  if (bytes.empty()) ++counts.empty_documents;
  const auto all_bytes = static_cast<double>(std::max<size_t>(bytes.size(), 1));
  for (const std::string_view part : cut_at(bytes, options.delimiter)) {
    const auto end = static_cast<double>(part.data() + part.size() - bytes.data());
    visit({RawDocument::Form::kText, std::string(part), file.path.string(),
           static_cast<int64_t>(static_cast<double>(file.size_bytes) * end / all_bytes)});
  }
}

}  // namespace

DocumentCounts& DocumentCounts::operator+=(const DocumentCounts& other) {
  files += other.files;
  documents += other.documents;
  bytes += other.bytes;
  binary_files += other.binary_files;
  refused_documents += other.refused_documents;
  empty_documents += other.empty_documents;
  return *this;
}

bool matches_glob(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return matches_glob(name, pattern.substr(1)) || (!name.empty() && matches_glob(name.substr(1), pattern));
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return matches_glob(name.substr(1), pattern.substr(1));
}

std::vector<std::string_view> cut_at(std::string_view whole, std::string_view delimiter) {
  std::vector<std::string_view> parts;
  while (!whole.empty()) {
    const size_t found = delimiter.empty() ? whole.npos : whole.find(delimiter);
    const size_t size = found == whole.npos ? whole.size() : found + delimiter.size();
    parts.push_back(whole.substr(0, size));
    whole.remove_prefix(size);
  }
  return parts;
}

Inputs find_inputs(const std::vector<fs::path>& paths, const DocumentOptions& options) {
  Inputs inputs;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (const auto found = dataset_files(path, options.split)) {
      for (const fs::path& file : *found) {
        inputs.files.push_back({file, static_cast<int64_t>(fs::file_size(file, error)), false});
      }
    } else if (fs::is_directory(path, error)) {
      const std::vector<InputFile> found = find_in_directory(path, options, inputs.other_endings);
      if (found.empty()) {
        throw InputError(text("directory ", path.string(), " holds no file ending in ",
                              base::join(options.suffixes, ", "), ": choose endings with --suffix"));
      }
      inputs.files.insert(inputs.files.end(), found.begin(), found.end());
    } else {
      const auto size_bytes = fs::file_size(path, error);
      if (error)
        throw InputError(
            text("cannot read input ", path.string(), ": ", error.message(), ": name files that are there"));
      inputs.files.push_back({path, static_cast<int64_t>(size_bytes), false});
    }
  }
  if (inputs.files.empty()) {
    throw InputError("no input is given: name text files, JSON files or directories");
  }
  return inputs;
}

void read_documents(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                    const std::function<void(RawDocument&&)>& visit) {
  ++counts.files;
  if (options.chats) return read_chats(file, visit);
  if (is_table(file.path)) return read_table(file, options, counts, visit);
  ByteSource source(file.path);
  std::string_view bytes = source.next();
  if (is_json(file.path, bytes, options)) return read_json(bytes, source, file.path.string(), visit);
  std::string whole;  // of what is decompressed
  if (source.compressed()) {
    for (; !bytes.empty(); bytes = source.next()) whole += bytes;
    bytes = whole;
  }
  read_text(bytes, file, file.from_directory || source.compressed(), options, counts, visit);
}

bool takes_chat(const RawDocument& document, DocumentCounts& counts) {
  if (!is_utf8(document.bytes)) {
    ++counts.refused_documents;
    return false;
  }
  base::parse_json(document.bytes, document.place);
  ++counts.documents;
  counts.bytes += static_cast<int64_t>(document.bytes.size());
  return true;
}

std::string conversation_of(const RawDocument& document, const AnswerKeys& keys) {
  const base::Json object = base::parse_json(document.bytes, document.place);
  base::Json messages = base::Json::array();
  const auto add = [&](const std::string& key, const std::string& role) {
    const auto found = object.find(key);
    if (found == object.end() || !(found->is_string() || found->is_array())) {
      throw InputError(text(document.place, ": there is neither a text nor a list of messages under '", key,
                            "': name the key of ", role == "user" ? "prompts" : "answers"));
    }
    if (found->is_string()) {
      messages.push_back({{"role", role}, {"content", *found}});
    } else {
      for (const base::Json& message : *found) messages.push_back(message);
    }
  };
  const auto answer = object.find(keys.answer);
  const bool whole = answer != object.end() && answer->is_array() && !object.contains(keys.prompt);
  if (!whole) add(keys.prompt, "user");
  add(keys.answer, "assistant");
  return base::Json{{"messages", std::move(messages)}}.dump();
}

void texts_of(const RawDocument& document, const DocumentOptions& options, DocumentCounts& counts,
              const std::function<void(std::string_view)>& visit) {
  base::Json json;
  std::string_view whole = document.bytes;
  if (!is_utf8(whole)) {
    ++counts.refused_documents;
    return;
  }
  if (document.form == RawDocument::Form::kJson) {
    json = base::parse_json(document.bytes, document.place);
    if (!holds_text(json, options.text_key)) {
      throw InputError(text(document.place, ": there is no text under '", options.text_key,
                            "': name the key of the documents with --text-key"));
    }
    whole = json[options.text_key].get_ref<const std::string&>();
  }
  if (whole.empty()) ++counts.empty_documents;
  for (const std::string_view part : cut_at(whole, options.delimiter)) {
    ++counts.documents;
    counts.bytes += static_cast<int64_t>(part.size());
    visit(part);
  }
}

void for_each_document(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                       const std::function<void(std::string_view)>& visit) {
  read_documents(file, options, counts,
                 [&](RawDocument&& document) { texts_of(document, options, counts, visit); });
}

}  // namespace sluice::corpus
