// Text as a terminal or a log may show it. Names, messages and contents come from files that strangers wrote:
// printed as they are, their control characters would move the cursor, retitle the window or forge lines.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace sluice::base {

enum class Layout { kLine, kLines };  // kLines: line feeds and tabs stay

// `value` with \u001b in place of every control character, line separator and change of writing direction,
// and with \xff in place of every byte that is not UTF-8. Inside a JSON text such an escape means the same
// as what it replaces.
std::string printable(std::string_view value, Layout layout = Layout::kLine);

// While it lives, `stream` writes printable lines, and fails where it did. Not thread-safe beyond what it is.
class PrintableStream : private std::streambuf {
 public:
  explicit PrintableStream(std::ostream& stream);
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

 private:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* bytes, std::streamsize size) override;
  int sync() override;
  bool pass_on(size_t size);  // that many bytes of what is pending; whether they were taken

  std::ostream& stream_;
  std::streambuf* const destination_;
  std::string pending_;
};

}  // namespace sluice::base
