# make install: header, both libraries, pkg-config file, CMake package. All of it may be moved to another place afterwards.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/glint)

install(TARGETS glint glint_static EXPORT glint-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/glint.h ${PROJECT_SOURCE_DIR}/include/glint_layout.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT glint-targets NAMESPACE glint:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/glint-config.cmake.in ${PROJECT_BINARY_DIR}/glint-config.cmake
  INSTALL_DESTINATION ${package_dir})
# before 1.0 a minor version may change the interface
write_basic_package_version_file(${PROJECT_BINARY_DIR}/glint-config-version.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/glint-config.cmake ${PROJECT_BINARY_DIR}/glint-config-version.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH GLINT_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/glint.pc.in ${PROJECT_BINARY_DIR}/glint.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/glint.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
