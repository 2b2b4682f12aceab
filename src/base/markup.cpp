#include "base/markup.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "base/error.h"
#include "base/utf8.h"

namespace sluice::base {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_forbidden(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte == 0x7F || (byte < 0x20 && c != '\n' && c != '\t');
}

bool closes_itself(std::string_view tag) {
  constexpr std::array<std::string_view, 10> kTags = {"meta", "br",       "col",     "rect", "line",
                                                      "path", "polyline", "polygon", "use",  "circle"};
  return std::ranges::find(kTags, tag) != kTags.end();
}

}  // namespace

std::string escaped(std::string_view value) {
  std::string out;
  out.reserve(value.size());
  while (!value.empty()) {
    const size_t size = utf8_character_size(value);
    if (size == 0 || is_forbidden(value.front())) {
      out += kReplacement;
    } else if (value.front() == '<') {
      out += "&lt;";
    } else if (value.front() == '>') {
      out += "&gt;";
    } else if (value.front() == '&') {
      out += "&amp;";
    } else if (value.front() == '"') {
      out += "&quot;";
    } else if (value.front() == '\'') {
      out += "&#39;";
    } else {
      out += value.substr(0, size);
    }
    value.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

std::string coordinate(double value, std::string_view unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.2f", value);
  std::string out = buffer;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  if (out == "-0") out = "0";
  return out + std::string(unit);
}

void Markup::open(std::string_view tag, Attributes attributes) {
  bytes_ += '<';
  bytes_ += tag;
  for (const auto& [name, value] : attributes) {
    bytes_ += ' ';
    bytes_ += name;
    bytes_ += "=\"" + escaped(value) + '"';
  }
}

void Markup::close() {
  bytes_ += "</" + open_.back() + ">";
  open_.pop_back();
}

Markup::Element Markup::element(std::string_view tag, Attributes attributes) {
  open(tag, attributes);
  bytes_ += '>';
  open_.emplace_back(tag);
  return Element(*this);
}

void Markup::leaf(std::string_view tag, Attributes attributes, std::string_view content) {
  open(tag, attributes);
  if (content.empty() && closes_itself(tag)) {
    bytes_ += "/>";
    return;
  }
  bytes_ += '>' + escaped(content) + "</";
  bytes_ += tag;
  bytes_ += '>';
}

const std::string& Markup::bytes() const {
  SLUICE_ASSERT(open_.empty(), "an element is open: " + open_.back());
  return bytes_;
}

}  // namespace sluice::base
