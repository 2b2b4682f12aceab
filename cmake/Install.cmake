# `cmake --install BUILD --component libraries`: what find_package(Sluice) finds, the modules without libtorch.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT Sluice NAMESPACE Sluice:: DESTINATION ${package} FILE SluiceTargets.cmake COMPONENT libraries)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SluiceConfig.cmake.in ${CMAKE_BINARY_DIR}/SluiceConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/SluiceConfig.cmake ${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake
  DESTINATION ${package} COMPONENT libraries)
