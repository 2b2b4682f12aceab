#include "ops/paged_sequences.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "ops/device.h"
#include "ops/planned_sizes.h"

namespace sluice::ops {
namespace {

int64_t pages_for(int64_t keys, int64_t page_rows) { return (keys + page_rows - 1) / page_rows; }

// The tables of all groups, and where each begins.
std::vector<int32_t> page_table(PagedSequences& paged) {
  constexpr int64_t kAligned = 4;
  std::vector<int32_t> numbers;
  for (const SequenceGroup& group : paged.table.groups) {
    const auto width =
        static_cast<size_t>(pages_for(planned_page_sizes(group).longest_keys, paged.page_rows));
    const size_t begin = numbers.size();
    paged.tables_at.push_back(static_cast<int64_t>(begin));
    const size_t end = begin + static_cast<size_t>(group.count) * width;
    numbers.resize((end + kAligned - 1) / kAligned * kAligned);
    for (size_t i = 0; i < static_cast<size_t>(group.count); ++i) {
      const PagedSequence& sequence = paged.sequences[static_cast<size_t>(group.first) + i];
      for (size_t page = 0; page < sequence.pages.size(); ++page)
        numbers[begin + i * width + page] = static_cast<int32_t>(sequence.pages[page]);
    }
  }
  return numbers;
}

}  // namespace

PagedSequences paged_sequences(std::vector<PagedSequence> sequences, int64_t page_rows,
                               const at::Device& device) {
  PagedSequences paged{.page_rows = page_rows, .sequences = std::move(sequences)};
  std::vector<base::Interval> queries, keys;
  for (PagedSequence& sequence : paged.sequences) {
    const auto pages = static_cast<size_t>(pages_for(sequence.keys, page_rows));
    SLUICE_ASSERT(sequence.queries.size() <= sequence.keys && sequence.pages.size() >= pages,
                  "a sequence has fewer keys than queries, or fewer pages than its keys need");
    sequence.pages.resize(pages);
    queries.push_back(sequence.queries);
    keys.push_back({0, sequence.keys});
  }
  paged.table = block_table(queries, keys);
  paged.words = to_device(paged.table.words, device);
  const std::vector<int32_t> numbers = page_table(paged);
  const at::Tensor buffer = upload_buffer(static_cast<int64_t>(numbers.size()), at::kInt, device);
  std::ranges::copy(numbers, buffer.mutable_data_ptr<int32_t>());
  paged.page_table = upload(buffer, device);
  return paged;
}

}  // namespace sluice::ops
