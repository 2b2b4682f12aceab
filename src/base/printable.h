// Text that is safe on a terminal or in a log. Names, messages and contents come from files by strangers:
// printed unchanged, their control characters could move the cursor, retitle the window or forge lines.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace sluice::base {

enum class Layout { kLine, kLines };  // kLines: line feeds and tabs stay

// `value` with every control character, line separator and change of writing direction written as an escape
// like \u001b, and every byte that is not UTF-8 as one like \xff. Inside a JSON text a \u escape means the
// same as the character that it replaces.
std::string printable(std::string_view value, Layout layout = Layout::kLine);

// While it lives, `stream` writes printable lines; it fails where its own buffer fails. Not thread-safe.
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
  bool pass_on(size_t size);  // the first `size` pending bytes; returns whether all were written

  std::ostream& stream_;
  std::streambuf* const destination_;
  std::string pending_;
};

}  // namespace sluice::base
