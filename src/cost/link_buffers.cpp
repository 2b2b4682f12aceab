#include "cost/link_buffers.h"

#include <algorithm>

namespace sluice::cost {

using strategy::Codec;
using strategy::PullCodec;

namespace {

// Pieces end with a group of numbers that are coded together, so some are longer than the mean.
int64_t longest_piece(int64_t elements, int64_t pieces) {
  if (pieces == 1) return elements;
  constexpr int64_t kLongerBy = 64;  // a part of the mean
  const int64_t mean = divide_up(elements, pieces);
  return mean + divide_up(mean, kLongerBy);
}

}  // namespace

int64_t link_pieces(int64_t busiest_elements) {
  return std::max<int64_t>(1, divide_up(busiest_elements, kPieceElements));
}

// Parts for different peers are coded separately; norms and biases travel uncoded.
int64_t LinkBuffers::coded(Codec codec, int64_t elements, int64_t wide) const {
  if (codec == Codec::kNone || elements == 0) return elements * wide;
  constexpr int64_t kExactPart = 50;
  return strategy::coded_bytes(codec, elements, wide) + world_size_ * strategy::coded_bytes(codec, 1, wide) +
         divide_up(elements * wide, kExactPart);
}

void LinkBuffers::add_round(const LinkLoad& load, int64_t pieces) {
  const auto grow = [](int64_t& bytes, int64_t to) { bytes = std::max(bytes, to); };
  const int64_t element = memory_.element_bytes, accumulator = memory_.accumulator_bytes;
  const int64_t sent = longest_piece(load.sent, pieces), received = longest_piece(load.received, pieces);
  const Codec pull = pull_ == PullCodec::kBFloat16 && element > 2 ? Codec::kBFloat16 : Codec::kNone;
  grow(send_, coded(pull, sent, element));
  grow(receive_, coded(pull, received, element));
  if (pull != Codec::kNone) grow(wide_, std::max(sent, received) * element);
  if (strategy::is_difference(pull_)) {
    constexpr int64_t kCodeBytes = 2;
    const int64_t numbers = sent + received;
    grow(differences_, numbers * kCodeBytes + strategy::codec_groups(numbers) * strategy::kFactorBytes);
  }
  const int64_t pushed = longest_piece(load.trained_received, pieces);
  const int64_t summed = longest_piece(load.trained_sent, pieces);
  grow(send_, coded(push_, pushed, accumulator));
  grow(receive_, coded(push_, summed, accumulator));
  if (push_ != Codec::kNone) grow(wide_, std::max(pushed, summed) * accumulator);
}

}  // namespace sluice::cost
