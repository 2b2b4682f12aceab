#include "rl/rejected_order.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::rl {

namespace {

constexpr uint64_t kStream = uint64_t{0x4b544f} << 32;  // unlike the streams of wanted answers' permutations

}  // namespace

RejectedOrder::RejectedOrder(std::span<const corpus::LengthSource> corpora,
                             const corpus::SamplerOptions& options)
    : seed_(options.seed) {
  int64_t first = 0;
  for (const corpus::LengthSource& source : corpora) {
    const auto count = std::ssize(source.lengths);
    for (int64_t document = 0; document < count; ++document) {
      if (!corpus::is_held_out(document, options))
        documents_.push_back(static_cast<int32_t>(first + document));
    }
    first += count;
  }
  if (!documents_.empty()) return;
  throw base::InputError(base::text("[config] all ", first,
                                    " documents of rl.rejected are held out by data.validation_fraction: "
                                    "lower it, or give more documents"));
}

int64_t RejectedOrder::at(int64_t place) {
  const auto count = static_cast<int64_t>(documents_.size());
  if (place / count != epoch_) {
    epoch_ = place / count;
    order_.emplace(static_cast<uint64_t>(count), seed_, kStream + static_cast<uint64_t>(epoch_));
  }
  return documents_[order_->at(static_cast<uint64_t>(place % count))];
}

}  // namespace sluice::rl
