# Libraries that others keep: Debian's packages, and libtorch from PyPI's wheel.
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
if(SLUICE_PROGRAMS)
  find_package(CLI11 REQUIRED)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
find_package(PkgConfig REQUIRED)
set(SLUICE_PKG_CONFIG_LIBRARIES sentencepiece tomlplusplus)
foreach(library ${SLUICE_PKG_CONFIG_LIBRARIES})
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${library})
endforeach()
if(SLUICE_PYTHON STREQUAL ONLY)  # a wheel goes where Debian's library is not: toml++ is compiled in
  set_target_properties(PkgConfig::tomlplusplus PROPERTIES
    INTERFACE_COMPILE_OPTIONS "" INTERFACE_COMPILE_DEFINITIONS "" INTERFACE_LINK_LIBRARIES "")
endif()

if(SLUICE_TORCH)
  pkg_check_modules(libcrypto REQUIRED IMPORTED_TARGET libcrypto)
  include(LibTorch)
endif()
