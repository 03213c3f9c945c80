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

# For builds without CMake: pkg-config --cflags --libs sparsek. The library is static, so that what it needs is in Libs.
set(sparsek_pc_libs "-lstdc++ -lpthread")
if(SPARSEK_WITH_CUDA)
  string(PREPEND sparsek_pc_libs "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt ")
endif()
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY /prefix OUTPUT_VARIABLE sparsek_pc_libdir)
file(RELATIVE_PATH sparsek_pc_up "${sparsek_pc_libdir}/pkgconfig" /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/sparsek.pc.in ${PROJECT_BINARY_DIR}/sparsek.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sparsek.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)
