#include "base/error.h"

#include "base/text.h"

namespace sluice::base {

void assertion_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw AssertionError(text("internal error at ", file, ":", line, ": ", condition, ": ", message));
}

}  // namespace sluice::base
