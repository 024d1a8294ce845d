# Rules for `cmake --install`: the headers, libintact.so and libintact.a, the CMake package and intact.pc. Included by
# kernels/CMakeLists.txt, which defines the two libraries. Each component becomes a Debian package (cmake/debian.cmake), except
# the license, which Debian's packages state in their own way.
#
# There are two export sets. A program that links libintact.so needs nothing else, and must not be asked for asmjit. The archive
# names its dependencies. It gives libm and the runtimes of OpenMP and C++ as names of libraries, because they depend on the
# compiler that made the archive, and not on the languages and the compiler of the program that links it. A runtime that
# linkers search only with -fopenmp (LLVM's libomp) is given by its path.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/intact)
set(pkg_config_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(static_runtimes ${OpenMP_CXX_LIB_NAMES} ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER static_runtimes INCLUDE REGEX "^(gomp|i?omp5?|pthread|m|stdc[+][+]|c[+][+]|c[+][+]abi)$")
list(REMOVE_DUPLICATES static_runtimes)
foreach(runtime IN LISTS OpenMP_CXX_LIB_NAMES)
  cmake_path(GET OpenMP_${runtime}_LIBRARY PARENT_PATH folder)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    list(TRANSFORM static_runtimes REPLACE "^${runtime}$" ${OpenMP_${runtime}_LIBRARY})
  endif()
endforeach()
list(TRANSFORM static_runtimes REPLACE "(.+)" "$<LINK_ONLY:\\1>" OUTPUT_VARIABLE static_links)
target_link_libraries(intact_static INTERFACE "$<INSTALL_INTERFACE:$<LINK_ONLY:asmjit::asmjit>;${static_links}>")

set_target_properties(intact_shared PROPERTIES EXPORT_NAME intact)
install(TARGETS intact_shared EXPORT intactTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS intact_static EXPORT intactStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT intactTargets NAMESPACE intact:: DESTINATION ${package_dir} COMPONENT development)
install(EXPORT intactStaticTargets NAMESPACE intact:: DESTINATION ${package_dir} COMPONENT development)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/intact DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples ${PROJECT_SOURCE_DIR}/docs
        DESTINATION ${CMAKE_INSTALL_DATADIR}/intact COMPONENT development PATTERN "*.json" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/intactConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/intactConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break compatibility.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/intactConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/intactConfig.cmake ${PROJECT_BINARY_DIR}/intactConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

# The prefix is relative to intact.pc, so that a tree that was installed with --prefix, or moved, still works.
file(RELATIVE_PATH pkg_config_to_prefix ${CMAKE_INSTALL_PREFIX}/${pkg_config_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pkg_config_to_prefix ${pkg_config_to_prefix})
list(TRANSFORM static_runtimes REPLACE "^([^/].*)" "-l\\1" OUTPUT_VARIABLE pkg_config_runtimes)
list(JOIN pkg_config_runtimes " " pkg_config_runtimes)
configure_file(${PROJECT_SOURCE_DIR}/cmake/intact.pc.in ${PROJECT_BINARY_DIR}/intact.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/intact.pc DESTINATION ${pkg_config_dir} COMPONENT development)
