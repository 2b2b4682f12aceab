#include "runtime/link_kernels.h"

namespace sluice::runtime {
namespace {

constexpr int kThreads = 256;

// Words of this block's job, thread by thread.
template <typename Word>
__device__ void copy_words(const CopyJob& job) {
  const Word* from = static_cast<const Word*>(job.from);
  Word* to = static_cast<Word*>(job.to);
  const int64_t words = job.bytes / static_cast<int64_t>(sizeof(Word));
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

// A thread reads all terms of its element before it writes, so the result may replace a term.
template <typename Element>
__global__ void sums(const SumJob* jobs, const Element* const* sources) {
  const SumJob job = jobs[blockIdx.x];
  const Element* const* terms = sources + job.first_source;
  Element* to = static_cast<Element*>(job.to);
  for (int64_t i = threadIdx.x; i < job.elements; i += kThreads) {
    Element sum = terms[0][job.offset + i];
    for (int32_t term = 1; term < job.sources; ++term) sum += terms[term][job.offset + i];
    to[i] = sum;
  }
}

template <typename Element>
cudaError_t launch(const SumJob* jobs, int64_t count, const Element* const* sources, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  sums<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(jobs, sources);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_copies(const CopyJob* jobs, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  copies<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(jobs);
  return cudaGetLastError();
}

cudaError_t launch_sums(const SumJob* jobs, int64_t count, const float* const* sources, cudaStream_t stream) {
  return launch(jobs, count, sources, stream);
}

cudaError_t launch_sums(const SumJob* jobs, int64_t count, const double* const* sources,
                        cudaStream_t stream) {
  return launch(jobs, count, sources, stream);
}

}  // namespace sluice::runtime
