#include "cli/print.h"

#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <string>

namespace sluice::cli {

void print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string line(static_cast<size_t>(size), '\0');
  std::vsnprintf(line.data(), line.size() + 1, format, again);
  va_end(again);
  std::cout << line;
}

}  // namespace sluice::cli
