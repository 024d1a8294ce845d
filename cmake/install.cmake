# What `cmake --install` puts where: the headers, libintact.so and libintact.a, the CMake package and intact.pc.
# Included by kernels/CMakeLists.txt, which defines the two libraries.
#
# Two export sets: who links libintact.so needs nothing else, and must not be asked for asmjit, whereas the archive
# names its dependencies.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/intact)
set(pkg_config_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set_target_properties(intact_shared PROPERTIES EXPORT_NAME intact)
install(TARGETS intact_shared EXPORT intactTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS intact_static EXPORT intactStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT intactTargets NAMESPACE intact:: DESTINATION ${package_dir})
install(EXPORT intactStaticTargets NAMESPACE intact:: DESTINATION ${package_dir})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/intact DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/intactConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/intactConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/intactConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/intactConfig.cmake ${PROJECT_BINARY_DIR}/intactConfigVersion.cmake
        DESTINATION ${package_dir})

# Relative to its own place, so that a tree installed with --prefix, or moved, still works.
file(RELATIVE_PATH pkg_config_to_prefix ${CMAKE_INSTALL_PREFIX}/${pkg_config_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pkg_config_to_prefix ${pkg_config_to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/cmake/intact.pc.in ${PROJECT_BINARY_DIR}/intact.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/intact.pc DESTINATION ${pkg_config_dir})
