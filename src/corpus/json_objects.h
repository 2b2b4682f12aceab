// Objects of a JSON text, one after the other, without the whole in memory: JSON Lines, an array of objects,
// or objects that are printed over several lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::corpus {

class JsonObjects {
 public:
  // Calls `visit` with each object's bytes, which are balanced and not parsed, and the line on which it
  // begins, from 1. `name` stands in errors.
  using Visit = std::function<void(const std::string& object, int64_t line)>;
  JsonObjects(std::string name, Visit visit) : name_(std::move(name)), visit_(std::move(visit)) {}

  // The text's next bytes, cut anywhere. InputError naming the line of what is no object.
  void feed(std::string_view bytes);
  // After the last bytes. InputError when an object or the array is not closed.
  void finish() const;

 private:
  void outside(char c);
  void inside(char c);
  // Takes what lies before the next character that means something from the front of `bytes`.
  void take_plain(std::string_view& bytes);
  [[noreturn]] void refuse(int64_t line, const std::string& fault) const;

  std::string name_;
  Visit visit_;
  std::string object_;  // as far as it has come
  int64_t line_ = 1;
  int64_t object_line_ = 0;
  int64_t depth_ = 0;  // 0: between objects
  bool in_text_ = false;
  bool escaped_ = false;
  enum class Array { kNone, kOpen, kClosed } array_ = Array::kNone;
  bool any_ = false;  // object or bracket so far
};

}  // namespace sluice::corpus
