#include "cli/number.h"

namespace sluice::cli {

CLI::Validator token_count() {
  const auto in_digits = [](std::string& value) -> std::string {
    const std::string given = value;
    const auto fault = [&] { return base::text("'", given, "': give tokens, as 131072, 128K or 1M"); };
    if (value.empty()) return fault();
    const int bits = value.back() == 'K' || value.back() == 'k'   ? 10
                     : value.back() == 'M' || value.back() == 'm' ? 20
                                                                  : 0;
    if (bits > 0) value.pop_back();
    int64_t number = 0;
    constexpr int64_t kMost = int64_t{1} << 31;
    if (!CLI::detail::lexical_cast(value, number) || number < 1 || number > (kMost >> bits) || (number << bits) < 2) {
      value = given;
      return fault();
    }
    value = std::to_string(number << bits);
    return "";
  };
  return {in_digits, "TOKENS"};
}

}  // namespace sluice::cli
