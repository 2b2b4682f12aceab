// Records of a JSON text, one after the other, without the whole in memory: JSON Lines, a list, or objects
// that are printed over several lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::corpus {

// Cuts the text into records without reading them. How it is laid out is told by its beginning: a list, where
// a bracket stands first; objects over several lines, where the first is one; else lines, a record each, so
// that nothing of a bad line reaches into the next.
class JsonObjects {
 public:
  // Called with each record's bytes, trimmed, of which it is not known whether they are an object or JSON at
  // all, and with the line on which it begins, from 1.
  using Visit = std::function<void(std::string_view record, int64_t line)>;
  // `name` stands in errors.
  JsonObjects(std::string name, Visit visit) : name_(std::move(name)), visit_(std::move(visit)) {}

  // The text's next bytes, cut anywhere. InputError naming the line of what cannot be cut into records:
  // commas of a list that are missing or too many, whatever stands behind it or between objects of several
  // lines, a record beyond base::kMostJsonBytes, and a text in UTF-16.
  void feed(std::string_view bytes);
  // After the last bytes. InputError when an object of several lines or a list is not closed.
  void finish();

 private:
  enum class Layout : uint8_t { kUnknown, kLines, kObjects, kList };
  // Where reading stands between the records of a list: what may come next.
  enum class Next : uint8_t { kList, kElement, kElementOrEnd, kCommaOrEnd, kNothing };

  void cut_beginning();
  void cut(std::string_view bytes);
  void cut_lines(std::string_view bytes);
  void end_line();
  void between(char c);
  // Takes the character into the record; false where it stands behind a record that has just ended.
  bool inside(char c);
  void begin_record(char c);
  void end_record();
  void require_room(size_t more_bytes) const;
  // Takes what lies before the next character that means something from the front of `bytes`.
  void take_plain(std::string_view& bytes);
  [[noreturn]] void refuse(int64_t line, const std::string& fault) const;

  std::string name_;
  Visit visit_;
  Layout layout_ = Layout::kUnknown;
  std::string beginning_;  // of the text, until the layout is known
  std::string record_;     // as far as it has come
  int64_t line_ = 1;
  int64_t record_line_ = 1;
  Next next_ = Next::kList;
  bool in_record_ = false;
  int64_t depth_ = 0;  // of brackets in the record; 0: it is a word, a number or a string
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace sluice::corpus
