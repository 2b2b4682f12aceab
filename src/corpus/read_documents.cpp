// Reads documents from one file, with one rule for documents that cannot be read.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/utf8.h"
#include "corpus/byte_source.h"
#include "corpus/dataset_folder.h"
#include "corpus/documents.h"
#include "corpus/json_objects.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

// Bytes of a file that are read at once: small, so that progress shows and memory stays small.
constexpr size_t kPieceBytes = size_t{1} << 20;

bool holds_text(std::string_view object, const std::string& key) {
  base::Json json;
  return !base::read_json_text(object, base::JsonDialect::kPython, json) && json.is_object() &&
         json.contains(key) && json[key].is_string();
}

// Whether the first line is a JSON object with text under the key, or the text begins with a list whose first
// object has such a text.
bool begins_as_json(std::string_view bytes, const DocumentOptions& options) {
  bytes = base::without_byte_order_mark(bytes);
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin == bytes.npos) return false;
  if (bytes[begin] == '{') {
    const std::string_view line = base::trim(bytes.substr(begin, bytes.find('\n', begin) - begin));
    return line.ends_with('}') && holds_text(line, options.text_key);
  }
  if (bytes[begin] != '[') return false;
  std::optional<bool> first;
  JsonObjects objects("", [&](std::string_view record, int64_t) {
    if (!first) first = holds_text(record, options.text_key);
  });
  try {
    for (size_t at = begin; at < bytes.size() && !first; at += kPieceBytes) {
      objects.feed(bytes.substr(at, kPieceBytes));
    }
    objects.finish();
  } catch (const InputError&) {
    // Behind the first object the error is one within a list; in front of it, the text is no list of objects.
  }
  return first.value_or(false);
}

bool holds_json(const fs::path& path, std::string_view beginning, const DocumentOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json" || begins_as_json(beginning, options);
}

using Visit = std::function<void(RawDocument&&)>;

// `bytes` are the source's first bytes.
void read_json(std::string_view bytes, ByteSource& source, const std::string& name, const Visit& visit) {
  int64_t record_bytes = 0;  // bytes of records so far, with one byte between two records
  JsonObjects objects(name, [&](std::string_view record, int64_t line) {
    record_bytes += std::ssize(record) + 1;
    const int64_t read_bytes = source.compressed() ? source.read_bytes() : record_bytes;
    visit({RawDocument::Form::kJson, std::string(record), text(name, ":", line), read_bytes});
  });
  for (; !bytes.empty(); bytes = source.next()) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      objects.feed(bytes.substr(at, kPieceBytes));
    }
  }
  objects.finish();
}

void read_table(const InputFile& file, const DocumentOptions& options, const Visit& visit) {
  constexpr uint64_t kNull = ~uint64_t{0};
  const std::string name = file.path.string();
  const bool objects = options.chats || !options.label_key.empty() || !options.columns.empty();
  const std::string column = objects ? "" : options.text_key;
  PythonChild child(options.tools, "read_table.py", {file.local().string(), name, column, file.separator},
                    name);
  const auto form = objects ? RawDocument::Form::kJson : RawDocument::Form::kText;
  double done = 0;  // bytes of the file in front of the piece
  for (int64_t row = 0;;) {
    child.check_status();
    const auto count = child.receive_number<uint64_t>();
    const double step = (1e-6 * static_cast<double>(child.receive_number<uint64_t>()) - done) /
                        static_cast<double>(std::max<uint64_t>(count, 1));
    if (count == 0) return;
    for (uint64_t i = 0; i < count; ++i, ++row) {
      const auto size = child.receive_number<uint64_t>();
      done += step;
      const bool is_null = size == kNull;
      RawDocument document{is_null ? RawDocument::Form::kNull : form, std::string(is_null ? 0 : size, '\0'),
                           text(name, ", row ", row),
                           static_cast<int64_t>(static_cast<double>(file.size_bytes) * done)};
      child.receive(document.bytes.data(), document.bytes.size());
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
  ByteSource source(file.local());
  const std::string_view bytes = source.next();
  const std::string_view content = base::without_byte_order_mark(bytes);
  const size_t begin = content.find_first_not_of(" \t\r\n");
  const bool wide = base::wide_encoding(bytes) != nullptr;  // the reader's error names the encoding
  if (!wide && (begin == content.npos || (content[begin] != '{' && content[begin] != '['))) refuse("no JSON");
  read_json(bytes, source, file.path.string(), visit);
}

// Splits a text into rows: the whole text, its lines with or without the breaks that end them, or its
// paragraphs, separated by two breaks.
std::vector<std::string_view> rows_of(std::string_view whole, TextRows rows) {
  if (rows == TextRows::kWhole) return {whole};
  std::vector<std::string_view> found;
  while (!whole.empty()) {
    const std::string_view mark = rows == TextRows::kParagraphs ? "\n\n" : "\n";
    const size_t end = std::min(whole.find(mark), whole.size());
    const size_t behind = std::min(end + mark.size(), whole.size());
    std::string_view row = whole.substr(0, rows == TextRows::kLinesWithBreaks ? behind : end);
    if (rows == TextRows::kLines && row.ends_with('\r')) row.remove_suffix(1);
    if (rows != TextRows::kParagraphs || !row.empty()) found.push_back(row);
    whole.remove_prefix(behind);
  }
  return found;
}

// Reads a text file. With `may_be_binary`, a binary file is counted and skipped.
void read_text(std::string_view bytes, const InputFile& file, bool may_be_binary,
               const DocumentOptions& options, DocumentCounts& counts, const Visit& visit) {
  if (may_be_binary && (bytes.find('\0') != bytes.npos || !base::is_utf8(bytes))) {
    ++counts.binary_files;
    return;
  }
  const std::string name = file.path.string();
  if (const char* encoding = base::wide_encoding(bytes)) {
    throw InputError(
        text(name, " is ", encoding, ": convert it to UTF-8, as with iconv -f ", encoding, " -t UTF-8"));
  }
  if (const size_t sound = base::valid_utf8_prefix(bytes); sound < bytes.size()) {
    const auto line = 1 + std::ranges::count(bytes.substr(0, sound), '\n');
    visit({RawDocument::Form::kFault, "not UTF-8: convert it first", text(name, ":", line), file.size_bytes});
    return;
  }
  bytes = base::without_byte_order_mark(bytes);
  if (bytes.empty()) visit({RawDocument::Form::kNull, "", name, file.size_bytes});
  const auto all_bytes = static_cast<double>(std::max<size_t>(bytes.size(), 1));
  const auto read_bytes = [&](std::string_view part) {
    const auto end = static_cast<double>(part.data() + part.size() - bytes.data());
    return static_cast<int64_t>(static_cast<double>(file.size_bytes) * end / all_bytes);
  };
  for (const std::string_view row : rows_of(bytes, file.text_rows)) {
    if (row.empty() && !bytes.empty()) visit({RawDocument::Form::kNull, "", name, read_bytes(row)});
    for (const std::string_view part : cut_at(row, options.delimiter))
      visit({RawDocument::Form::kText, std::string(part), name, read_bytes(part)});
  }
}

// The fault of the first column without text; "" if all columns have text.
std::string column_fault(const base::Json& object, const std::vector<std::string>& columns,
                         const std::string& place) {
  for (const std::string& column : columns) {
    const base::Json* const found = base::find(object, column);
    if (found == nullptr || !found->is_string())
      return text(place, ": there is no text under '", column, "': name the keys with --columns");
    if (base::trim(found->get_ref<const std::string&>()).empty())
      return text(place, ": the text under '", column, "' is empty, and it belongs to others: fill it in");
  }
  return "";
}

// The place of the third line of a document at "FILE:17" is "FILE:19".
std::string place_of_line(const std::string& place, int64_t line) {
  const size_t colon = place.rfind(':');
  const auto first = colon == place.npos ? std::nullopt : base::parse_integer(place.substr(colon + 1));
  return first ? text(place.substr(0, colon + 1), *first + line - 1) : place;
}

// The object in the document; nullopt if the document is left out.
std::optional<base::Json> object_of(const RawDocument& document, const DocumentOptions& options,
                                    DocumentCounts& counts) {
  if (document.form == RawDocument::Form::kNull) {
    ++counts.empty_documents;
    return std::nullopt;
  }
  if (document.form == RawDocument::Form::kFault) {
    leave_out(text(document.place, ": ", document.bytes), options, counts);
    return std::nullopt;
  }
  base::Json json;
  if (const auto fault = base::read_json_text(document.bytes, base::JsonDialect::kPython, json)) {
    leave_out(described(*fault, place_of_line(document.place, fault->line)), options, counts);
    return std::nullopt;
  }
  if (!json.is_object()) {
    leave_out(
        text(document.place, ": ", base::excerpt(json), " stands where a JSON object should: give objects"),
        options, counts);
    return std::nullopt;
  }
  return json;
}

// The delimiter with "\r\n" for each "\n"; empty if nothing changes.
std::string with_windows_line_ends(std::string_view delimiter) {
  std::string out;
  for (const char c : delimiter) {
    if (c == '\n' && !out.ends_with('\r')) out += '\r';
    out += c;
  }
  return out == delimiter ? "" : out;
}

}  // namespace

DocumentCounts& DocumentCounts::operator+=(const DocumentCounts& other) {
  files += other.files;
  documents += other.documents;
  bytes += other.bytes;
  binary_files += other.binary_files;
  empty_documents += other.empty_documents;
  refused += other.refused;
  return *this;
}

void leave_out(const std::string& fault, const DocumentOptions& options, DocumentCounts& counts) {
  if (options.strict) throw InputError(fault);
  counts.refused.add(fault);
}

std::vector<std::string_view> cut_at(std::string_view whole, std::string_view delimiter) {
  const std::string windows = with_windows_line_ends(delimiter);
  // The next occurrence of each delimiter.
  struct Next {
    std::string_view delimiter;
    size_t at = 0;
  } all[] = {{delimiter}, {windows}};
  std::vector<std::string_view> parts;
  for (Next& next : all) next.at = next.delimiter.empty() ? whole.npos : whole.find(next.delimiter);
  for (size_t begin = 0; begin < whole.size();) {
    const Next& next = all[0].at <= all[1].at ? all[0] : all[1];
    const size_t end = next.at == whole.npos ? whole.size() : next.at + next.delimiter.size();
    parts.push_back(whole.substr(begin, end - begin));
    begin = end;
    for (Next& each : all) {
      if (each.at < begin) each.at = whole.find(each.delimiter, begin);
    }
  }
  return parts;
}

void read_documents(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                    const std::function<void(RawDocument&&)>& visit) {
  ++counts.files;
  if (is_table(file.path)) return read_table(file, options, visit);
  if (options.chats) return read_chats(file, visit);
  ByteSource source(file.local());
  std::string_view bytes = source.next();
  if (const char* format = file.from_directory ? nullptr : other_format(bytes))
    throw InputError(text(file.path.string(), " is ", format));
  if (holds_json(file.path, bytes, options)) return read_json(bytes, source, file.path.string(), visit);
  std::string whole;  // all bytes of a decompressed file
  if (source.compressed()) {
    for (; !bytes.empty(); bytes = source.next()) whole += bytes;
    bytes = whole;
  }
  read_text(bytes, file, file.from_directory || source.compressed(), options, counts, visit);
}

std::optional<std::string> chat_of(const RawDocument& document, const DocumentOptions& options,
                                   DocumentCounts& counts) {
  const std::optional<base::Json> object = object_of(document, options, counts);
  if (!object) return std::nullopt;
  if (!options.answers) return document.bytes;
  try {
    AnswerKeys keys = *options.answers;
    require_answers(*object, keys, document.place);
    if (!keys.other_answer.empty()) {
      keys.answer = keys.other_answer;
      require_answers(*object, keys, document.place);
    }
    return document.bytes;
  } catch (const InputError& error) {
    leave_out(error.what(), options, counts);
    return std::nullopt;
  }
}

namespace {

// The keys of an object's labelled content and of its label.
struct LabelledKeys {
  std::string text, label;
};

LabelledKeys labelled_keys(const base::Json& object, const DocumentOptions& options) {
  LabelledKeys keys{options.text_key, options.label_key};
  if (options.chats || object.contains(keys.label)) return keys;
  const auto has_list = [&](const char* key) { return object.contains(key) && object.at(key).is_array(); };
  const auto* const label = std::ranges::find_if(kWordLabelKeys, has_list);
  if (label == std::end(kWordLabelKeys)) return keys;
  const auto* const words = std::ranges::find_if(kWordKeys, has_list);
  const bool named = object.contains(keys.text) && object.at(keys.text).is_array();
  if (!named && words != std::end(kWordKeys)) keys.text = *words;
  if (named || words != std::end(kWordKeys)) keys.label = *label;
  return keys;
}

std::string fault_of_words(const base::Json& words, const base::Json& label, const LabelledKeys& keys) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].is_string()) continue;
    return text("word ", i, " under '", keys.text, "' is ", base::excerpt(words[i]),
                ": give a list of texts");
  }
  if (words.empty()) return text("there is no word under '", keys.text, "', so there is nothing to label");
  if (!label.is_array()) {
    return text("the label under '", keys.label, "' is ", base::excerpt(label), ", and '", keys.text,
                "' is a list of words: give a list with a label for each");
  }
  if (label.size() == words.size()) return "";
  return text("there are ", base::human_count(std::ssize(words), "word", "words"), " under '", keys.text,
              "' and ", base::human_count(std::ssize(label), "label", "labels"), " under '", keys.label,
              "': give one for each word");
}

}  // namespace

std::optional<DocumentLabel> label_of(const RawDocument& document, const DocumentOptions& options,
                                      DocumentCounts& counts) {
  if (document.form == RawDocument::Form::kText) {
    leave_out(text(document.place, ": plain text has no label: give JSON Lines with '", options.text_key,
                   "' and '", options.label_key, "'"),
              options, counts);
    return std::nullopt;
  }
  const std::optional<base::Json> object = object_of(document, options, counts);
  if (!object) return std::nullopt;
  const LabelledKeys keys = labelled_keys(*object, options);
  const base::Json* const label = base::find(*object, keys.label);
  if (label == nullptr || label->is_null()) {
    leave_out(text(document.place, ": there is no '", keys.label,
                   "': name the key of labels with --label-key, of pairs' margins with --margin-key"),
              options, counts);
    return std::nullopt;
  }
  const base::Json* const whole = options.chats ? nullptr : base::find(*object, keys.text);
  const bool has_words = whole != nullptr && whole->is_array();
  std::string fault;
  if (has_words) {
    fault = fault_of_words(*whole, *label, keys);
  } else if (whole != nullptr && whole->is_string() &&
             base::trim(whole->get_ref<const std::string&>()).empty()) {
    fault = "the text is empty, so there is nothing to label";
  }
  if (!fault.empty()) {
    leave_out(text(document.place, ": ", fault), options, counts);
    return std::nullopt;
  }
  return DocumentLabel{base::json_text(*label),
                       has_words ? whole->get<std::vector<std::string>>() : std::vector<std::string>()};
}

void require_answers(const base::Json& object, const AnswerKeys& keys, const std::string& place) {
  const auto require = [&](const std::string& key, const char* kind) {
    const base::Json* found = base::find(object, key);
    if (found != nullptr && (found->is_string() || found->is_array())) return;
    throw InputError(text(place, ": there is neither a text nor a list of messages under '", key,
                          "': name the key of ", kind));
  };
  const base::Json* answer = base::find(object, keys.answer);
  const bool whole = answer != nullptr && answer->is_array() && !object.contains(keys.prompt);
  if (!whole) require(keys.prompt, "prompts");
  require(keys.answer, "answers");
}

void texts_of(const RawDocument& document, const DocumentOptions& options, DocumentCounts& counts,
              const std::function<void(std::string_view)>& visit) {
  std::optional<base::Json> json;
  std::string_view whole = document.bytes;
  if (document.form != RawDocument::Form::kText) {
    json = object_of(document, options, counts);
    if (!json) return;
    if (const std::string fault = column_fault(*json, options.columns, document.place); !fault.empty())
      return leave_out(fault, options, counts);
    const base::Json* found = base::find(*json, options.text_key);
    if (found == nullptr || !(found->is_string() || found->is_null())) {
      leave_out(
          text(document.place, ": ",
               found == nullptr ? text("there is no '", options.text_key, "'")
                                : text("'", options.text_key, "' is ", base::excerpt(*found), ", no text"),
               ": name the key of the documents with --text-key"),
          options, counts);
      return;
    }
    whole = found->is_null() ? "" : std::string_view(found->get_ref<const std::string&>());
  } else if (!options.columns.empty()) {
    return leave_out(text(document.place, ": plain text has no columns: give JSON Lines or a table"), options,
                     counts);
  } else if (!base::is_utf8(whole)) {
    return leave_out(text(document.place, ": not UTF-8: convert it first"), options, counts);
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
