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

// Where data sets of labelled words (CoNLL 2003 and its kin) have words and their labels.
inline constexpr const char* kWordKeys[] = {"tokens", "words"};
inline constexpr const char* kWordLabelKeys[] = {"labels", "ner_tags", "tags"};

struct DocumentOptions {
  bool chats = false;                 // documents are conversations, JSON objects with messages
  std::optional<AnswerKeys> answers;  // of chats: objects are prompts and answers instead
  std::string text_key = "text";      // of a JSON object, or the column of a table: its document
  std::string label_key;              // of a JSON object, its label; empty: documents have none
  LabelledPieces label_pieces = LabelledPieces::kFirst;
  std::vector<std::string>
      columns;            // keys of a JSON object under all of which texts stand, or it is left out
  std::string delimiter;  // cuts documents further, each part keeping it at its end; empty: none
  bool strict = false;    // the first document that would be left out ends reading
  PythonTools tools;      // for tables
};

// What was passed over while reading.
struct DocumentCounts {
  int64_t files = 0;
  int64_t documents = 0;        // after cutting
  int64_t bytes = 0;            // of the documents
  int64_t binary_files = 0;     // in directories: holding a NUL or no UTF-8
  int64_t empty_documents = 0;  // without a character, or null
  Findings refused;             // documents that leave_out() left out, with their places

  DocumentCounts& operator+=(const DocumentCounts& other);
};

// The one rule for a document that cannot be read, whatever file it stands in: it is counted and left out,
// and the first ones are kept to be shown. `fault` names file and line and a way out. InputError with it
// where options.strict.
void leave_out(const std::string& fault, const DocumentOptions& options, DocumentCounts& counts);

// The parts of `whole` after each `delimiter`, which they keep: joined they are `whole`. No empty ones. Where
// the delimiter has line ends, those of Windows are meant, too.
std::vector<std::string_view> cut_at(std::string_view whole, std::string_view delimiter);

// A document as it stands in a file. To look into it is apart from reading it, for several threads can do
// that.
struct RawDocument {
  // kFault: there is none that can be read; `bytes` say why. kNull: a row without a document.
  enum class Form { kText, kJson, kFault, kNull };
  Form form = Form::kText;
  std::string bytes;       // the text, or what should be a JSON object and is not parsed
  std::string place;       // file and line, for errors
  int64_t read_bytes = 0;  // of the file, by then
};

// Calls `visit` for each document of the file, in order, counting what is passed over. Parquet and Arrow
// files (.parquet, .arrow) hold a document a row. Files ending in .jsonl, .ndjson or .json hold JSON objects
// (a line each, in a list, or over several lines), a document each; so do files of other names that begin
// with a line, or a list, whose first object has text under text_key. All others are text, a document each,
// or several where a delimiter cuts them. A byte order mark in front is no part of them. InputError naming
// file and line where a file cannot be cut into documents (json_objects.h), is UTF-16, or is of a format that
// is not read. Conversations stand in JSON only: InputError naming any other file.
void read_documents(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                    const std::function<void(RawDocument&&)>& visit);

// The conversation, as JSON text, that the document is; nothing where it is left out. Neither is counted as a
// document yet. REQUIRES: options.chats.
std::optional<std::string> chat_of(const RawDocument& document, const DocumentOptions& options,
                                   DocumentCounts& counts);

// Ends with InputError naming `place` where an object lacks a key of a prompt and its answer: a text or a
// list of messages each. Where the answer is a list, it may hold the prompt, which then has no key.
void require_answers(const base::Json& object, const AnswerKeys& keys, const std::string& place);

// Calls `visit` for the texts of one of them, cut at the delimiter, or leaves it out: what is no JSON, no
// object, has no text under the key or is not UTF-8.
void texts_of(const RawDocument& document, const DocumentOptions& options, DocumentCounts& counts,
              const std::function<void(std::string_view)>& visit);

// What the object that a document is says of it.
struct DocumentLabel {
  std::string json;                // of words a list with the label of each
  std::vector<std::string> words;  // where the document is a list of words in place of a text
};

// Nothing where there is no label, or nothing that it labels, or not one for each word: then the document is
// left out. An object without options.label_key may have kWordKeys and kWordLabelKeys in place of the usual
// keys. REQUIRES: options.label_key.
std::optional<DocumentLabel> label_of(const RawDocument& document, const DocumentOptions& options,
                                      DocumentCounts& counts);

// Both in turn.
void for_each_document(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                       const std::function<void(std::string_view)>& visit);

}  // namespace sluice::corpus
