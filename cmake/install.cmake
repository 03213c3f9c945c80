# The C++ package: libsparsek.a, the headers, and what find_package(sparsek) reads. A component of its own, so that
# the wheel does not carry it.
include(CMakePackageConfigHelpers)

set(sparsek_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sparsek)
install(TARGETS sparsek EXPORT sparsek-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sparsek ${PROJECT_BINARY_DIR}/include/sparsek
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(EXPORT sparsek-targets NAMESPACE sparsek:: DESTINATION ${sparsek_package_dir} COMPONENT cpp)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sparsek-config.cmake.in
  ${PROJECT_BINARY_DIR}/sparsek-config.cmake INSTALL_DESTINATION ${sparsek_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sparsek-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sparsek-config.cmake ${PROJECT_BINARY_DIR}/sparsek-config-version.cmake
  DESTINATION ${sparsek_package_dir} COMPONENT cpp)
