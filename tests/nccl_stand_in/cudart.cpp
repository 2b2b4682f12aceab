// CUDA's runtime over the network's streams, as far as Sluice's transports and libtorch's streams call it.
// The test program defines these functions itself, so they come before those of libcudart.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "network.h"

namespace {

using namespace sluice::nccl_stand_in;

constexpr int kDevices = 16;

Network& network() { return Network::of_process(); }

Stream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? *network().default_stream(current_device()) : *reinterpret_cast<Stream*>(stream);
}

cudaError_t answer(bool works) { return works ? cudaSuccess : cudaErrorLaunchFailure; }

}  // namespace

#undef cudaGetDeviceProperties

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  current_device() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = cudaDeviceProp{};
  properties->uuid.bytes[0] = static_cast<char>('a' + device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  *stream = reinterpret_cast<cudaStream_t>(network().new_stream(current_device()));
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return answer(network().synchronize(stream_of(stream)));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  network().copy(stream_of(stream), [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : network().fault();
}

const char* cudaGetErrorName(cudaError_t /*error*/) { return "an error of the stand-in"; }

}  // extern "C"
