// UTF-8 as RFC 3629 defines it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::base {

// Bytes of the well-formed character that `bytes` begins with; 0 where there is none: overlong forms,
// surrogates and code points above U+10FFFF included. REQUIRES: bytes is not empty.
size_t utf8_character_size(std::string_view bytes);

// The code point of the character that `character` is. REQUIRES: a well-formed one.
char32_t utf8_code_point(std::string_view character);

// At most so many bytes of `value`, cut between characters, and "…" where something is missing.
std::string beginning(std::string_view value, size_t most_bytes = 200);

// `bytes`, the beginning of a text, without the byte order mark that Windows' programs put in front.
std::string_view without_byte_order_mark(std::string_view bytes);

// "UTF-16" or "UTF-32" where a byte order mark or the zero bytes of a first ASCII character say so; else
// null.
const char* wide_encoding(std::string_view bytes);

}  // namespace sluice::base
