#include "profile/decode_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cost/quadratic.h"
#include "inference/kv_blocks.h"
#include "profile/timing.h"

namespace sluice::profile {

DecodeShapes::DecodeShapes(int64_t longest_tokens, int64_t token_bytes) {
  constexpr int64_t kMostTexts = 256, kMostRows = 2048, kReadBytes = int64_t{256} << 20;
  const int64_t most = std::min(longest_tokens, kMostRows), half = std::max<int64_t>(1, most / 2);
  const auto wanted = static_cast<uint64_t>(kReadBytes / std::max<int64_t>(1, token_bytes * half));
  const auto texts_behind = static_cast<int64_t>(std::bit_floor(std::clamp<uint64_t>(wanted, 4, 64)));
  // A step's row sees cached tokens, which has a price by sequence beside the price by key: a kernel's start
  // and a merge. The first KV block holds the row and these tokens.
  const int64_t cached = std::min(inference::kKvBlockTokens - 1, half / 4);
  for (int64_t texts = 1; texts <= kMostTexts; texts *= 2) {
    if (texts == texts_behind) few = all.size();
    all.push_back({.sequences = texts, .before = cached});
  }
  several_sequences = all.size();
  for (int64_t rows = 2 * kMostTexts; rows <= most; rows *= 2) all.push_back({.rows = rows});
  chunks = all.size() - several_sequences;
  few_behind = all.size();
  all.push_back({.sequences = texts_behind, .before = half});
  const int64_t rows = std::max<int64_t>(2, std::min(kMostTexts, half));
  chunk = all.size();
  all.push_back({.rows = rows});
  chunk_behind = all.size();
  all.push_back({.before = std::max<int64_t>(1, most - rows), .rows = rows});
}

std::vector<cost::DecodeCost> fit_decoding(const DecodeShapes& shapes, const DecodeTimes& times,
                                           const model::Program& program) {
  std::vector<cost::DecodeCost> costs(program.kinds().size());
  for (size_t kind = 0; kind < costs.size(); ++kind) {
    const model::TokenWork work = program.kinds()[kind]->work();
    const auto ns = [&](size_t shape) {
      std::vector<double> values;
      for (const std::vector<double>& of_kinds : times[shape]) values.push_back(of_kinds[kind]);
      return median(std::move(values));
    };
    const auto sight = [&](size_t shape) {
      const auto [texts, before, rows] = shapes.all[shape];
      cost::DecodeWork all;
      for (int64_t text = 0; text < texts; ++text) all.add(before, before + rows, true, work.window);
      return work.window > 0 ? all.windowed : all.all;
    };
    double key = 0, pair = 0;
    if (work.attention > 0) {
      const auto keys = static_cast<double>(sight(shapes.few_behind).keys - sight(shapes.few).keys);
      const auto pairs = static_cast<double>(sight(shapes.chunk_behind).pairs - sight(shapes.chunk).pairs);
      key = std::max(0.0, ns(shapes.few_behind) - ns(shapes.few)) / std::max(1.0, keys);
      pair = std::max(0.0, ns(shapes.chunk_behind) - ns(shapes.chunk)) / std::max(1.0, pairs);
    }
    cost::DecodeCost& cost = costs[kind];
    cost.key = cost::Quadratic::from_ns(key, 0, 0).a;
    cost.pair = cost::Quadratic::from_ns(pair, 0, 0).a;
    // The head computes one row of a sequence, however many rows the engine step has.
    const size_t points = shapes.several_sequences + (kind + 1 == costs.size() ? 0 : shapes.chunks);
    for (size_t shape = 0; shape < points; ++shape) {
      const auto [texts, before, rows] = shapes.all[shape];
      const double attending =
          key * static_cast<double>(sight(shape).keys) + pair * static_cast<double>(sight(shape).pairs);
      cost.by_rows.push_back(
          {.rows = texts * rows, .ns = std::llround(std::max(1.0, ns(shape) - attending))});
    }
    // More rows may take less time: libraries multiply two rows by other kernels than four. Beyond the last
    // point the line through the last two goes on, so it must not fall.
    if (const size_t count = cost.by_rows.size(); count > 1)
      cost.by_rows.back().ns = std::max(cost.by_rows.back().ns, cost.by_rows[count - 2].ns);
  }
  return costs;
}

}  // namespace sluice::profile
