// printf onto std::cout, for tables: C's own stdout would bypass the PrintableStream that main puts there.
#pragma once

namespace sluice::cli {

[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

}  // namespace sluice::cli
