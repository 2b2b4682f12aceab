#include "base/stream_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice::base {

struct StreamHash::State {
  XXH3_state_t xxh3;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
StreamHash::~StreamHash() = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;

void StreamHash::add(const void* data, size_t size) { XXH3_64bits_update(&state_->xxh3, data, size); }
uint64_t StreamHash::value() const { return XXH3_64bits_digest(&state_->xxh3); }

}  // namespace sluice::base
