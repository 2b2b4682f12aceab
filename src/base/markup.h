// Writes HTML and SVG that is always balanced and escaped.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::base {

// `value` escaped for content and attribute values: &, <, >, both quotes. Bytes that XML forbids (control
// characters, malformed UTF-8) become U+FFFD.
std::string escaped(std::string_view value);

// 12.3456 -> "12.35", 3.0 -> "3": a coordinate or a length in CSS, followed by `unit` ("%").
std::string coordinate(double value, std::string_view unit = "");

// Writes elements in document order. The result is well-formed XML, too: elements without content end in "/>"
// where HTML allows that (void elements and SVG's shapes).
class Markup {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  // Closes its element when destroyed.
  class [[nodiscard]] Element {
   public:
    explicit Element(Markup& markup) : markup_(&markup) {}
    Element(Element&& other) noexcept : markup_(std::exchange(other.markup_, nullptr)) {}
    Element& operator=(Element&&) = delete;
    ~Element() {
      if (markup_) markup_->close();
    }

   private:
    Markup* markup_;
  };

  Element element(std::string_view tag, Attributes attributes = {});
  // An element whose only content is text.
  void leaf(std::string_view tag, Attributes attributes, std::string_view content = {});
  void leaf(std::string_view tag, std::string_view content) { leaf(tag, {}, content); }
  void text(std::string_view content) { bytes_ += escaped(content); }
  // Writes `bytes` unchanged. REQUIRES: balanced and escaped.
  void raw(std::string_view bytes) { bytes_ += bytes; }

  // REQUIRES: every element is closed.
  const std::string& bytes() const;

 private:
  void open(std::string_view tag, Attributes attributes);
  void close();

  std::string bytes_;
  std::vector<std::string> open_;
};

}  // namespace sluice::base
