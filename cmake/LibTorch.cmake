# Imported targets for the libtorch inside PyPI's torch wheel. find_package(Torch) is not used: it needs a
# CUDA toolkit even for CPU builds and fails at the default link (docs/decisions/0001-libtorch-wheel.md).
file(GLOB SLUICE_SITE_PACKAGES ${SLUICE_DEPS}/libtorch/lib/python3*/site-packages)
set(torch_root ${SLUICE_SITE_PACKAGES}/torch)
if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "libtorch is not in ${SLUICE_DEPS}: run tools/bootstrap, or configure with -DSLUICE_TORCH=OFF")
endif()
set(nvidia_lib ${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib)

function(sluice_torch_library name)
  add_library(torch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${name} PROPERTIES
    IMPORTED_LOCATION ${torch_root}/lib/lib${name}.so
    INTERFACE_INCLUDE_DIRECTORIES "${torch_root}/include;${torch_root}/include/torch/csrc/api/include")
endfunction()
sluice_torch_library(c10)
sluice_torch_library(torch_cpu)
target_link_libraries(torch::torch_cpu INTERFACE torch::c10)
# ATen's parallel_for is serial in files compiled without OpenMP. Loops with comparisons (exp, maxima)
# vectorise only where floating-point traps are ruled out.
target_compile_options(torch::torch_cpu INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fopenmp> $<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math>)
target_link_options(torch::torch_cpu INTERFACE -fopenmp)
# The wheel's libtorch_cpu needs CUDA's runtime and CUPTI beside it, whatever the device.
target_link_options(torch::torch_cpu INTERFACE
  -Wl,-rpath,${torch_root}/lib -Wl,-rpath,${nvidia_lib} -Wl,-rpath-link,${nvidia_lib})

set(SLUICE_CUDA_FOUND OFF)
if(SLUICE_CUDA)
  include(Cuda)
endif()
