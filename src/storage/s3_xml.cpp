// The XML that S3's responses need: no relevant attributes, no comments, no element inside an equal one.
#include "base/text.h"
#include "storage/s3_client.h"

namespace sluice::storage {

namespace {

constexpr std::pair<const char*, const char*> kEntities[] = {
    {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::vector<std::string> xml_elements(const std::string& xml, const std::string& tag) {
  std::vector<std::string> found;
  const std::string begin = "<" + tag + ">";
  const std::string end = "</" + tag + ">";
  for (size_t at = xml.find(begin); at != std::string::npos; at = xml.find(begin, at)) {
    at += begin.size();
    const size_t close = xml.find(end, at);
    if (close == std::string::npos) break;
    found.push_back(xml.substr(at, close - at));
    at = close + end.size();
  }
  return found;
}

std::string xml_text(const std::string& xml, const std::string& tag) {
  const std::vector<std::string> found = xml_elements(xml, tag);
  if (found.empty()) return "";
  std::string text = found.front();
  for (const auto& [entity, character] : kEntities) text = replaced(text, entity, character);
  return text;
}

std::string xml_escaped(const std::string& text) {
  std::string escaped = replaced(text, "&", "&amp;");
  for (const auto& [entity, character] : kEntities) {
    if (*character != '&') escaped = replaced(escaped, character, entity);
  }
  return escaped;
}

}  // namespace sluice::storage
