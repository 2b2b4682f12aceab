#include "comm/transport.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace sluice::comm {
namespace {

// Inner loops have a fixed length: -O2 vectorizes them, because its cost model need not consider a remainder.
constexpr int64_t kBlock = 32;

template <typename Element, typename Add>
void add_all(Element* __restrict destination, const Element* __restrict source, int64_t count, Add add) {
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int64_t j = 0; j < kBlock; ++j) destination[i + j] = add(destination[i + j], source[i + j]);
  }
  for (; i < count; ++i) destination[i] = add(destination[i], source[i]);
}

float widen(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Adding half of the last kept bit, minus one if that bit is even, rounds to nearest even. A NaN would
// overflow to infinity, so it is made quiet instead.
uint16_t narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
}

}  // namespace

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 4;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 2;
  }
  SLUICE_ASSERT(false, "unknown dtype");
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kBFloat16: return "bfloat16";
  }
  SLUICE_ASSERT(false, "unknown dtype");
}

PendingPtr Communicator::send(const void* data, int64_t bytes, int peer) {
  const Message message{.send = data, .bytes = bytes, .peer = peer};
  return exchange({&message, 1});
}

PendingPtr Communicator::receive(void* data, int64_t bytes, int peer) {
  const Message message{.receive = data, .bytes = bytes, .peer = peer};
  return exchange({&message, 1});
}

void accumulate(void* destination, const void* source, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return add_all(static_cast<float*>(destination), static_cast<const float*>(source), count,
                     [](float a, float b) { return a + b; });
    case DType::kFloat64:
      return add_all(static_cast<double*>(destination), static_cast<const double*>(source), count,
                     [](double a, double b) { return a + b; });
    case DType::kBFloat16:
      return add_all(static_cast<uint16_t*>(destination), static_cast<const uint16_t*>(source), count,
                     [](uint16_t a, uint16_t b) { return narrow(widen(a) + widen(b)); });
  }
}

}  // namespace sluice::comm
