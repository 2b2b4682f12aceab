# CUDA code: *_cuda.cpp and *.cu, built wherever nvcc and NCCL's header are (SLUICE_CUDA=OFF: nowhere).
#
# Programs link only c10_cuda and CUDA's runtime, which come with the libtorch that CPU runs need too, so
# they start on any machine, quickly. libtorch's kernels (libtorch_cuda) and NCCL are loaded when a GPU is
# first used (ops/device.cpp, transport/nccl_api_cuda.cpp, docs/decisions/0003-cuda-build.md).
set(SLUICE_CUDA_FOUND OFF)
find_program(SLUICE_NVCC nvcc PATHS /usr/local/cuda/bin ${SLUICE_SITE_PACKAGES}/nvidia/cu13/bin)  # the last: bootstrap --gpu
if(SLUICE_NVCC)
  get_filename_component(cuda_root ${SLUICE_NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
endif()
find_path(SLUICE_CUDA_INCLUDE cuda_runtime.h PATHS ${cuda_root}/include)
find_path(SLUICE_NCCL_INCLUDE nccl.h
  PATHS ${cuda_root}/include ${SLUICE_SITE_PACKAGES}/nvidia/nccl/include)

if(SLUICE_CUDA_INCLUDE)
  file(STRINGS ${SLUICE_CUDA_INCLUDE}/cuda.h cuda_version REGEX "#define CUDA_VERSION")
  if(NOT cuda_version MATCHES " 13[0-9]+")  # libtorch's own
    set(SLUICE_CUDA_INCLUDE "${SLUICE_CUDA_INCLUDE}-NOTFOUND")
  endif()
endif()

if(NOT SLUICE_NVCC OR NOT SLUICE_CUDA_INCLUDE OR NOT SLUICE_NCCL_INCLUDE)
  if(NOT SLUICE_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "SLUICE_CUDA=${SLUICE_CUDA} needs the CUDA 13 toolkit (nvcc: ${SLUICE_NVCC}, headers: "
      "${SLUICE_CUDA_INCLUDE}) and nccl.h (${SLUICE_NCCL_INCLUDE}): install them or set -DSLUICE_CUDA=OFF")
  endif()
  message(STATUS "Without CUDA 13: nvcc ${SLUICE_NVCC}, headers ${SLUICE_CUDA_INCLUDE}, nccl.h ${SLUICE_NCCL_INCLUDE}")
  return()
endif()
set(SLUICE_CUDA_FOUND ON)
message(STATUS "With CUDA of ${cuda_root}")

set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC})
set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 100)  # 100 also as PTX, for later GPUs
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)
set(CMAKE_CUDA17_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc takes C++20
# A kernel that spills registers to memory, or keeps an array there, is slower than it looks: it does not build.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas --warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>")

# cuDNN's frontend, header-only, which tools/bootstrap fetches. Without it, flash attention does all of attention.
find_path(SLUICE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h PATHS ${SLUICE_DEPS}/cudnn-frontend/include)
find_path(SLUICE_CUDNN_INCLUDE cudnn.h
  PATHS ${cuda_root}/include ${SLUICE_SITE_PACKAGES}/nvidia/cudnn/include)

sluice_torch_library(c10_cuda)
target_link_libraries(torch::c10_cuda INTERFACE torch::c10)
add_library(sluice_cuda INTERFACE)
target_include_directories(sluice_cuda SYSTEM INTERFACE ${SLUICE_CUDA_INCLUDE} ${SLUICE_NCCL_INCLUDE})
target_compile_definitions(sluice_cuda INTERFACE SLUICE_CUDA=1)
target_link_libraries(sluice_cuda INTERFACE torch::c10_cuda torch::torch_cpu ${nvidia_lib}/libcudart.so.13)
if(SLUICE_CUDNN_FRONTEND_INCLUDE AND SLUICE_CUDNN_INCLUDE)
  target_include_directories(sluice_cuda SYSTEM INTERFACE ${SLUICE_CUDNN_FRONTEND_INCLUDE} ${SLUICE_CUDNN_INCLUDE})
  # Tests let cuDNN judge graphs where there is no driver.
  target_compile_definitions(sluice_cuda INTERFACE SLUICE_CUDNN=1 SLUICE_CUDA_STUBS="${cuda_root}/lib64/stubs")
else()
  message(STATUS "Without cuDNN's attention: cudnn_frontend.h ${SLUICE_CUDNN_FRONTEND_INCLUDE}, cudnn.h ${SLUICE_CUDNN_INCLUDE}")
endif()
