// Splits a JSON text into records, one after the other, without the whole text in memory. The text may be
// JSON Lines, a list, or objects printed over several lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::corpus {

// Cuts the text into records without parsing them. The layout follows from the beginning of the text. A
// bracket means a list; an object over several lines means such objects. Otherwise each line is a record, so
// that an error in one line does not affect the next.
class JsonObjects {
 public:
  // Called with each record's trimmed bytes and the line on which the record begins, counted from 1. The
  // record may turn out to be no object, or no JSON at all.
  using Visit = std::function<void(std::string_view record, int64_t line)>;
  // `name` stands in errors.
  JsonObjects(std::string name, Visit visit) : name_(std::move(name)), visit_(std::move(visit)) {}

  // Takes the text's next bytes, cut anywhere. InputError naming the line that cannot be cut into records.
  // Causes: missing or extra commas in a list, text behind a list or between objects over several lines, a
  // record beyond base::kMostJsonBytes, UTF-16.
  void feed(std::string_view bytes);
  // Ends the text. InputError if a list or an object over several lines is not closed.
  void finish();

 private:
  enum class Layout : uint8_t { kUnknown, kLines, kObjects, kList };
  // The reader's state between the records of a list: which character may come next.
  enum class Next : uint8_t { kList, kElement, kElementOrEnd, kCommaOrEnd, kNothing };

  void cut_beginning();
  void cut(std::string_view bytes);
  void cut_lines(std::string_view bytes);
  void end_line();
  void between(char c);
  // Adds the character to the record; false if the character stands behind a record that has just ended.
  bool inside(char c);
  void begin_record(char c);
  void end_record();
  void require_room(size_t more_bytes) const;
  // Moves the plain text at the front of `bytes`, up to the next significant character, into the record.
  void take_plain(std::string_view& bytes);
  [[noreturn]] void refuse(int64_t line, const std::string& fault) const;

  std::string name_;
  Visit visit_;
  Layout layout_ = Layout::kUnknown;
  std::string beginning_;  // the text's, until the layout is known
  std::string record_;     // the record's bytes so far
  int64_t line_ = 1;
  int64_t record_line_ = 1;
  Next next_ = Next::kList;
  bool in_record_ = false;
  int64_t depth_ = 0;  // open brackets in the record; 0: it is a word, a number or a string
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace sluice::corpus
