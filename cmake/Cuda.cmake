# CUDA code: NCCL transport and device streams. Files named *_cuda.cpp belong to this build only.
find_path(SLUICE_CUDA_INCLUDE cuda_runtime.h PATHS /usr/local/cuda/include REQUIRED)
find_library(SLUICE_CUDART cudart PATHS /usr/local/cuda/lib64 REQUIRED)
find_path(SLUICE_NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include REQUIRED)
find_library(SLUICE_NCCL nccl PATHS /usr/local/cuda/lib64 REQUIRED)

sluice_torch_library(c10_cuda)
sluice_torch_library(torch_cuda)
add_library(sluice_cuda INTERFACE)
target_include_directories(sluice_cuda SYSTEM INTERFACE ${SLUICE_CUDA_INCLUDE} ${SLUICE_NCCL_INCLUDE})
target_compile_definitions(sluice_cuda INTERFACE SLUICE_CUDA=1)
target_link_libraries(sluice_cuda INTERFACE torch::torch_cpu ${SLUICE_CUDART} ${SLUICE_NCCL})
# libtorch_cuda registers its kernels when loaded, so it must be linked though no symbol asks for it.
target_link_options(sluice_cuda INTERFACE -Wl,--allow-shlib-undefined
  -Wl,--push-state,--no-as-needed ${torch_root}/lib/libtorch_cuda.so ${torch_root}/lib/libc10_cuda.so -Wl,--pop-state)
