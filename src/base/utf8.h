// UTF-8 as RFC 3629 defines it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::base {

// The size in bytes of the well-formed character at the start of `bytes`. It is 0 for malformed bytes,
// overlong forms, surrogates and code points above U+10FFFF. REQUIRES: bytes is not empty.
size_t utf8_character_size(std::string_view bytes);

// The position of the first malformed character, or the size of a well-formed text.
size_t valid_utf8_prefix(std::string_view bytes);
inline bool is_utf8(std::string_view bytes) { return valid_utf8_prefix(bytes) == bytes.size(); }

// The largest size, at most `limit`, at which the well-formed `bytes` may be cut between two characters.
size_t utf8_cut(std::string_view bytes, size_t limit);

// The code point of `character`. REQUIRES: it is exactly one well-formed character.
char32_t utf8_code_point(std::string_view character);

// At most `most_bytes` bytes of `value`, cut between characters, followed by "…" if it was cut.
std::string beginning(std::string_view value, size_t most_bytes = 200);

// `bytes`, the start of a text, without the byte order mark that Windows programs put there.
std::string_view without_byte_order_mark(std::string_view bytes);

// "UTF-16" or "UTF-32" if a byte order mark, or the zero bytes of a first ASCII character, shows it.
// Otherwise null.
const char* wide_encoding(std::string_view bytes);

}  // namespace sluice::base
