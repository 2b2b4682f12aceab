// Documents from files: text, JSON and source trees, compressed or not, Parquet and Arrow tables, and the
// folders of Hugging Face data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/chat.h"
#include "corpus/findings.h"
#include "corpus/inputs.h"
#include "corpus/python_child.h"
#include "corpus/word_labels.h"

namespace sluice::corpus {

// Keys of the words and of their labels in data sets of labelled words (CoNLL 2003 and its kin).
inline constexpr const char* kWordKeys[] = {"tokens", "words"};
inline constexpr const char* kWordLabelKeys[] = {"labels", "ner_tags", "tags"};

struct DocumentOptions {
  bool chats = false;                 // documents are conversations: JSON objects with messages
  std::optional<AnswerKeys> answers;  // chats whose objects hold prompts and answers instead
  std::string text_key = "text";      // key of a JSON object, or column of a table, with the document
  std::string label_key;              // key of a JSON object with its label; empty: documents have none
  LabelledPieces label_pieces = LabelledPieces::kFirst;
  std::vector<std::string> columns;  // keys of a JSON object; if one has no text, the object is left out
  std::string delimiter;  // cuts documents into parts, each of which keeps it at its end; empty: none
  bool strict = false;    // reading ends with an error at the first document that would be left out
  PythonTools tools;      // for tables
};

// Counts of documents, and of everything that reading skipped.
struct DocumentCounts {
  int64_t files = 0;
  int64_t documents = 0;        // after cutting
  int64_t bytes = 0;            // bytes of the documents
  int64_t binary_files = 0;     // in directories: holding a NUL or no UTF-8
  int64_t empty_documents = 0;  // without a character, or null
  Findings refused;             // documents that leave_out() left out, with their places

  DocumentCounts& operator+=(const DocumentCounts& other);
};

// The one rule for a document that cannot be read, whatever its file: it is counted and left out, and the
// first ones are kept for reports. `fault` names file, line and a way out. InputError with `fault` if
// options.strict.
void leave_out(const std::string& fault, const DocumentOptions& options, DocumentCounts& counts);

// Cuts `whole` behind each `delimiter`, which stays with the part in front of it; joined, the parts are
// `whole`. No part is empty. A line end in the delimiter also matches the line end of Windows.
std::vector<std::string_view> cut_at(std::string_view whole, std::string_view delimiter);

// A document as it stands in a file. Parsing is separate from reading because several threads can parse at
// the same time.
struct RawDocument {
  // kFault: no document can be read there, and `bytes` say why. kNull: a row without a document.
  enum class Form { kText, kJson, kFault, kNull };
  Form form = Form::kText;
  std::string bytes;       // the text, or an unparsed JSON object
  std::string place;       // file and line, for errors
  int64_t read_bytes = 0;  // bytes of the file read so far
};

// Calls `visit` for each document of the file, in order, and counts what it skips. Parquet and Arrow files
// (.parquet, .arrow) hold a document a row. Files ending in .jsonl, .ndjson or .json hold JSON objects (one
// per line, in a list, or over several lines), a document each. Files of other names hold JSON if the first
// object of their first line or list has text under text_key. All others are text: one document, or several
// if a delimiter cuts it. A byte order mark is dropped. InputError naming file and line if a file cannot be
// cut into documents (json_objects.h), is UTF-16, or has a format that is not read. Conversations stand in
// JSON only: InputError naming any other file.
void read_documents(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                    const std::function<void(RawDocument&&)>& visit);

// Returns the conversation as JSON text; nullopt if the document is left out. Neither case is counted as a
// document yet. REQUIRES: options.chats.
std::optional<std::string> chat_of(const RawDocument& document, const DocumentOptions& options,
                                   DocumentCounts& counts);

// InputError naming `place` if an object lacks a key of a prompt and its answer, each a text or a list of
// messages. If the answer is a list, it may contain the prompt, whose key may then be missing.
void require_answers(const base::Json& object, const AnswerKeys& keys, const std::string& place);

// Calls `visit` for the texts of a document, cut at the delimiter. The document is left out if it is not a
// JSON object, has no text under the key or is not UTF-8.
void texts_of(const RawDocument& document, const DocumentOptions& options, DocumentCounts& counts,
              const std::function<void(std::string_view)>& visit);

// The label in a document's object.
struct DocumentLabel {
  std::string json;                // for words a list with each word's label
  std::vector<std::string> words;  // set if the document is a list of words, not a text
};

// Returns nullopt, and leaves the document out, if it has no label, nothing to label, or not one label for
// each word. An object without options.label_key may have kWordKeys and kWordLabelKeys in place of the usual
// keys. REQUIRES: options.label_key.
std::optional<DocumentLabel> label_of(const RawDocument& document, const DocumentOptions& options,
                                      DocumentCounts& counts);

// read_documents() and texts_of() combined.
void for_each_document(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                       const std::function<void(std::string_view)>& visit);

}  // namespace sluice::corpus
