#include "base/error.h"

#include "base/printable.h"
#include "base/text.h"

namespace sluice::base {

Error::Error(const std::string& message, int exit_status)
    : std::runtime_error(printable(message)), exit_status_(exit_status) {}

void assertion_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw AssertionError(text("internal error at ", file, ":", line, ": ", condition, ": ", message));
}

}  // namespace sluice::base
