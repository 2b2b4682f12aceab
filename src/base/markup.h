// HTML and SVG that cannot come out unbalanced or unescaped.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::base {

// Text for content and attribute values: &, <, >, both quotes; what XML forbids (control characters,
// malformed UTF-8) becomes U+FFFD.
std::string escaped(std::string_view value);

// 12.3456 -> "12.35", 3.0 -> "3": a coordinate or a length in CSS. `unit` is put behind it ("%").
std::string coordinate(double value, std::string_view unit = "");

// Writes elements in document order. Elements are also well-formed XML: without content they are closed
// by "/>" where HTML allows it (its void elements, and SVG's shapes).
class Markup {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  // Closes its element at the end of its scope.
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
  // An element with text alone.
  void leaf(std::string_view tag, Attributes attributes, std::string_view content = {});
  void leaf(std::string_view tag, std::string_view content) { leaf(tag, {}, content); }
  void text(std::string_view content) { bytes_ += escaped(content); }
  // As it is. REQUIRES: balanced and escaped.
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
