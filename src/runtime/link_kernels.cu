#include "ops/cuda/kernel_parts.h"
#include "runtime/link_kernels.h"

namespace sluice::runtime {
namespace {

using ops::kernels::kThreads;
using ops::kernels::Status;
using ops::kernels::Stream;

// This block's job, word by word: each thread takes its share.
template <typename Word>
__device__ void copy_words(const CopyJob& job) {
  const Word* from = static_cast<const Word*>(job.from);
  Word* to = static_cast<Word*>(job.to);
  const int64_t words = job.bytes / static_cast<int64_t>(sizeof(Word));
  SLUICE_UNROLL_BY(4)
  for (int64_t i = threadIdx.x; i < words; i += kThreads) to[i] = from[i];
}

// Slices begin at any element, so the widest word that divides addresses and length is found job by job.
__global__ void copies(const CopyJob* jobs) {
  const CopyJob job = jobs[blockIdx.x];
  const uint64_t all = reinterpret_cast<uint64_t>(job.from) | reinterpret_cast<uint64_t>(job.to) |
                       static_cast<uint64_t>(job.bytes);
  if (all % sizeof(uint4) == 0) {
    copy_words<uint4>(job);
  } else if (all % sizeof(uint64_t) == 0) {
    copy_words<uint64_t>(job);
  } else if (all % sizeof(uint32_t) == 0) {
    copy_words<uint32_t>(job);
  } else {
    copy_words<uint16_t>(job);
  }
}

template <typename Element, typename Word>
__device__ void add(Element (&sum)[sizeof(Word) / sizeof(Element)], const Element* from) {
  const Word word = *reinterpret_cast<const Word*>(from);
  Element values[sizeof(Word) / sizeof(Element)];
  memcpy(values, &word, sizeof word);
  SLUICE_UNROLL
  for (size_t i = 0; i < sizeof(Word) / sizeof(Element); ++i) sum[i] += values[i];
}

// A thread reads all terms of its word before it writes, so the result may replace a term. Sums begin with 0,
// which changes no sum but that of negative zeros.
template <typename Element, typename Word>
__device__ void sum_words(const SumJob& job, const Element* const* terms) {
  constexpr int64_t kElements = sizeof(Word) / sizeof(Element);
  for (int64_t i = threadIdx.x * kElements; i < job.elements; i += kThreads * kElements) {
    Element sum[kElements] = {};
    SLUICE_UNROLL_BY(4)  // so that the loads of several terms overlap
    for (int32_t term = 0; term < job.sources; ++term) {
      add<Element, Word>(sum, terms[term] + job.offset + i);
    }
    Word word;
    memcpy(&word, sum, sizeof word);
    *reinterpret_cast<Word*>(static_cast<Element*>(job.to) + i) = word;
  }
}

template <typename Element>
__global__ void sums(const SumJob* jobs, const Element* const* sources) {
  const SumJob job = jobs[blockIdx.x];
  const Element* const* terms = sources + job.first_source;
  uint64_t all = reinterpret_cast<uint64_t>(job.to) | static_cast<uint64_t>(job.elements) * sizeof(Element);
  for (int32_t term = 0; term < job.sources; ++term)
    all |= reinterpret_cast<uint64_t>(terms[term] + job.offset);
  if (all % sizeof(uint4) == 0) {
    sum_words<Element, uint4>(job, terms);
  } else {
    sum_words<Element, Element>(job, terms);
  }
}

}  // namespace

Status launch_copies(const CopyJob* jobs, int64_t count, Stream stream) {
  return ops::kernels::launch(copies, count, stream, jobs);
}

Status launch_sums(const SumJob* jobs, int64_t count, const float* const* sources, Stream stream) {
  return ops::kernels::launch(sums<float>, count, stream, jobs, sources);
}

Status launch_sums(const SumJob* jobs, int64_t count, const double* const* sources, Stream stream) {
  return ops::kernels::launch(sums<double>, count, stream, jobs, sources);
}

}  // namespace sluice::runtime
