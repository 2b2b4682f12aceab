// printf for tables of commands, onto std::cout: C's own stdout would pass by what main puts before it.
#pragma once

namespace sluice::cli {

[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

}  // namespace sluice::cli
