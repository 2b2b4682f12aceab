// Stands in for CUDA's runtime where it is loaded before the program's own. A node has the cards that
// $STAND_IN_GPUS names with letters, "abcd"; a process sees those that $STAND_IN_VISIBLE does. A card, or a
// slice of one, has 80 GB free. $STAND_IN_ERROR is a number of cudaError_t that everything fails with.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kFreeBytes = 80'000'000'000;

const char* visible() {
  const char* some = std::getenv("STAND_IN_VISIBLE");
  return some != nullptr ? some : std::getenv("STAND_IN_GPUS");
}

cudaError_t answer(int device) {
  if (const char* error = std::getenv("STAND_IN_ERROR")) return static_cast<cudaError_t>(std::atoi(error));
  const bool there = device >= 0 && device < static_cast<int>(std::strlen(visible()));
  return there ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

#undef cudaGetDeviceProperties

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(std::strlen(visible()));
  if (const char* error = std::getenv("STAND_IN_ERROR")) return static_cast<cudaError_t>(std::atoi(error));
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) { return answer(device); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = kFreeBytes;
  return answer(0);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "NVIDIA H100 80GB HBM3");
  if (answer(device) == cudaSuccess) properties->uuid.bytes[0] = visible()[device];
  return answer(device);
}

cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

// Slices of a card have its bus id.
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  std::strncpy(id, "0000:1b:00.0", static_cast<size_t>(size));
  return answer(device);
}

}  // extern "C"
