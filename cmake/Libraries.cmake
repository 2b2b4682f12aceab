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
find_package(ZLIB REQUIRED)
find_package(BZip2 REQUIRED)
set(SLUICE_PKG_CONFIG_LIBRARIES libzstd sentencepiece tomlplusplus)
foreach(library ${SLUICE_PKG_CONFIG_LIBRARIES})
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${library})
endforeach()
if(SLUICE_PYTHON STREQUAL ONLY)  # a wheel goes where Debian's library is not: toml++ is compiled in
  set_target_properties(PkgConfig::tomlplusplus PROPERTIES
    INTERFACE_COMPILE_OPTIONS "" INTERFACE_COMPILE_DEFINITIONS "" INTERFACE_LINK_LIBRARIES "")
endif()

# Checkpoints in S3 need both; a program without them says so where s3:// is asked for.
set(SLUICE_S3_LIBRARIES)
if(SLUICE_PROGRAMS)
  pkg_check_modules(libcurl IMPORTED_TARGET libcurl>=7.88)
  pkg_check_modules(libcrypto IMPORTED_TARGET libcrypto)
  if(libcurl_FOUND AND libcrypto_FOUND)
    set(SLUICE_S3_LIBRARIES PkgConfig::libcurl PkgConfig::libcrypto)
    list(APPEND SLUICE_PKG_CONFIG_LIBRARIES libcurl libcrypto)
  endif()
endif()

if(SLUICE_TORCH)
  pkg_check_modules(libcrypto REQUIRED IMPORTED_TARGET libcrypto)
  find_package(Boost 1.74 REQUIRED)  # headers alone: Asio
  include(LibTorch)
endif()
