#include "corpus/json_objects.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::corpus {

using base::text;

namespace {

// Size of the text's beginning, from which the layout is inferred.
constexpr size_t kBeginningBytes = size_t{1} << 20;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The size of the object at the front of `bytes`, by its brackets; npos if it does not end, or if a line ends
// inside a string.
size_t object_size(std::string_view bytes) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string) {
      if (c == '\n') return bytes.npos;
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return bytes.npos;
}

// Whether a text that begins with an object has one object per line.
bool stands_in_lines(std::string_view bytes) {
  const size_t line_end = std::min(bytes.find('\n'), bytes.size());
  const size_t size = object_size(bytes);
  if (size <= line_end)
    return base::trim(bytes.substr(size, line_end - size)).empty() || line_end < bytes.size();
  base::Json ignored;
  if (size != bytes.npos &&
      !base::read_json_text(bytes.substr(0, size), base::JsonDialect::kPython, ignored)) {
    return false;
  }
  // If a line is cut off, another record follows; if an object over several lines is, its own lines follow.
  const size_t next = bytes.find_first_not_of("\r\n", line_end);
  return next == bytes.npos || bytes[next] == '{';
}

}  // namespace

void JsonObjects::feed(std::string_view bytes) {
  if (layout_ != Layout::kUnknown) return cut(bytes);
  beginning_ += bytes;
  if (beginning_.size() >= kBeginningBytes) cut_beginning();
}

void JsonObjects::cut_beginning() {
  const std::string beginning = std::exchange(beginning_, {});
  if (const char* encoding = base::wide_encoding(beginning))
    refuse(1,
           text("the text is ", encoding, ": convert it to UTF-8, as with iconv -f ", encoding, " -t UTF-8"));
  const std::string_view bytes = base::without_byte_order_mark(beginning);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != bytes.npos && bytes[first] == '[') {
    layout_ = Layout::kList;
  } else if (first != bytes.npos && bytes[first] == '{' && !stands_in_lines(bytes.substr(first))) {
    layout_ = Layout::kObjects;
  } else {
    layout_ = Layout::kLines;
  }
  cut(bytes);
}

void JsonObjects::cut(std::string_view bytes) {
  if (layout_ == Layout::kLines) return cut_lines(bytes);
  while (!bytes.empty()) {
    if (in_string_ && !escaped_) {
      take_plain(bytes);
      if (bytes.empty()) return;
    }
    const char c = bytes.front();
    if (!in_record_) {
      between(c);
    } else if (!inside(c)) {
      continue;
    }
    if (c == '\n') ++line_;
    bytes.remove_prefix(1);
  }
}

void JsonObjects::cut_lines(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    require_room(end);
    record_ += bytes.substr(0, end);
    if (end == bytes.size()) return;
    end_line();
    ++line_;
    bytes.remove_prefix(end + 1);
  }
}

void JsonObjects::end_line() {
  if (const std::string_view line = base::trim(record_); !line.empty()) visit_(line, line_);
  record_.clear();
}

// Nearly all of a record is plain text, in which only these three characters matter.
void JsonObjects::take_plain(std::string_view& bytes) {
  const size_t size = std::min(bytes.find_first_of("\"\\\n"), bytes.size());
  require_room(size);
  record_.append(bytes.substr(0, size));
  bytes.remove_prefix(size);
}

void JsonObjects::require_room(size_t more_bytes) const {
  if (static_cast<int64_t>(record_.size() + more_bytes) > base::kMostJsonBytes)
    refuse(in_record_ ? record_line_ : line_, text("what begins here has more than ", base::kMostJsonBytes,
                                                   " bytes: cut it into shorter documents"));
}

void JsonObjects::finish() {
  if (layout_ == Layout::kUnknown) cut_beginning();
  if (layout_ == Layout::kLines) return end_line();
  constexpr const char* kNoEnd = " has no end: fetch or write the file again";
  if (in_record_) refuse(record_line_, text("what begins here", kNoEnd));
  if (layout_ == Layout::kList && next_ != Next::kNothing) refuse(line_, text("the list", kNoEnd));
}

void JsonObjects::between(char c) {
  if (is_space(c)) return;
  const std::string shown = text("'", base::printable(std::string_view(&c, 1)), "'");
  if (layout_ == Layout::kObjects) {
    if (c == '{') return begin_record(c);
    refuse(line_,
           text(shown, " stands where a JSON object should begin: give objects, one a line or in a list"));
  }
  const bool may_end = next_ == Next::kElementOrEnd || next_ == Next::kCommaOrEnd;
  if (next_ == Next::kList) {
    next_ = Next::kElementOrEnd;
  } else if (next_ == Next::kNothing) {
    refuse(line_, text(shown, " stands behind the list: remove it"));
  } else if (c == ']') {
    if (!may_end)
      refuse(line_, "a comma stands behind the last element of the list: remove it, or fetch the file again");
    next_ = Next::kNothing;
  } else if (next_ == Next::kCommaOrEnd) {
    if (c != ',')
      refuse(line_, text("a comma is missing in front of ", shown, ": write one, or fetch the file again"));
    next_ = Next::kElement;
  } else if (c == ',') {
    refuse(line_,
           "a comma stands where an element of the list should begin: remove it, or fetch the file again");
  } else {
    begin_record(c);
  }
}

void JsonObjects::begin_record(char c) {
  record_ = c;
  record_line_ = line_;
  in_record_ = true;
  in_string_ = c == '"';
  depth_ = c == '{' || c == '[' ? 1 : 0;
}

bool JsonObjects::inside(char c) {
  if (!in_string_ && depth_ == 0 && (is_space(c) || c == ',' || c == ']')) {
    end_record();
    return false;
  }
  require_room(1);
  record_ += c;
  if (in_string_) {
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    if (!in_string_ && depth_ == 0) end_record();
    return true;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && depth_ > 0 && --depth_ == 0) end_record();
  return true;
}

void JsonObjects::end_record() {
  in_record_ = in_string_ = escaped_ = false;
  next_ = Next::kCommaOrEnd;
  visit_(record_, record_line_);
  record_.clear();
}

void JsonObjects::refuse(int64_t line, const std::string& fault) const {
  throw base::InputError(text(name_, ":", line, ": ", fault));
}

}  // namespace sluice::corpus
