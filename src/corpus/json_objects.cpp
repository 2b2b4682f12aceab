#include "corpus/json_objects.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

using base::text;

void JsonObjects::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (in_text_ && !escaped_) {
      take_plain(bytes);
      if (bytes.empty()) return;
    }
    const char c = bytes.front();
    if (depth_ == 0) {
      outside(c);
    } else {
      inside(c);
    }
    if (c == '\n') ++line_;
    bytes.remove_prefix(1);
  }
}

// Nearly all of an object is text, in which only these three matter.
void JsonObjects::take_plain(std::string_view& bytes) {
  const size_t size = std::min(bytes.find_first_of("\"\\\n"), bytes.size());
  object_.append(bytes.substr(0, size));
  bytes.remove_prefix(size);
}

void JsonObjects::finish() const {
  if (depth_ > 0)
    refuse(object_line_, "the object that begins here has no end: fetch or write the file again");
  if (array_ == Array::kOpen) refuse(line_, "the list has no end: fetch or write the file again");
}

void JsonObjects::outside(char c) {
  if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return;
  if (c == '{' && array_ != Array::kClosed) {
    object_ = c;
    object_line_ = line_;
    depth_ = 1;
  } else if (c == '[' && !any_) {
    array_ = Array::kOpen;
  } else if (c == ']' && array_ == Array::kOpen) {
    array_ = Array::kClosed;
  } else if (c != ',' || array_ != Array::kOpen) {
    refuse(line_,
           text("'", c, "' stands where a JSON object should begin: give objects, one a line or in a list"));
  }
  any_ = true;
}

void JsonObjects::inside(char c) {
  object_ += c;
  if (in_text_) {
    if (c == '\n')
      refuse(line_, "a text goes beyond the end of the line, which is not JSON: write \\n for line ends");
    in_text_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return;
  }
  if (c == '"') in_text_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (depth_ == 0) visit_(object_, object_line_);
}

void JsonObjects::refuse(int64_t line, const std::string& fault) const {
  throw base::InputError(text(name_, ":", line, ": ", fault));
}

}  // namespace sluice::corpus
