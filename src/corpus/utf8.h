// UTF-8 as RFC 3629 defines it.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::corpus {

// The position of the first malformed sequence (overlong forms, surrogates and code points above U+10FFFF
// included), or the size of a well-formed text.
size_t valid_utf8_prefix(std::string_view bytes);

inline bool is_utf8(std::string_view bytes) { return valid_utf8_prefix(bytes) == bytes.size(); }

// The largest size, at most `limit`, at which the well-formed `bytes` may be cut between two characters.
// REQUIRES: limit >= 4.
size_t utf8_cut(std::string_view bytes, size_t limit);

}  // namespace sluice::corpus
