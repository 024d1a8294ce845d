# `cpack` in the build folder makes Debian packages of the files that `cmake --install` installs, one for each component. It
# needs dpkg-dev (dpkg-shlibdeps) and file.
set(INTACT_MAINTAINER "intact maintainers <maintainers@localhost>"
    CACHE STRING "Maintainer of the Debian packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${INTACT_MAINTAINER})
set(CPACK_PACKAGE_CONTACT ${INTACT_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_SOURCE intact)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # otherwise it precedes each package's own summary
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

# intact_package(component name section SUMMARY summary TEXT text [DEPENDS ...] [...])
function(intact_package component name section)
  cmake_parse_arguments(PARSE_ARGV 3 package "" "SUMMARY;TEXT;DEPENDS;RECOMMENDS;SUGGESTS" "")
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${COMPONENT}_DESCRIPTION "${package_SUMMARY}\n${package_TEXT}" PARENT_SCOPE)
  foreach(relation DEPENDS RECOMMENDS SUGGESTS)
    if(package_${relation})
      set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_${relation} ${package_${relation}} PARENT_SCOPE)
    endif()
  endforeach()
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

set(library libintact${PROJECT_VERSION_MAJOR})
set(what "intact multiplies 8-bit matrices and convolves 8-bit images with kernels
that are generated at run time for AVX2, AVX-512, VNNI and AMX. They are
exact: they compute the same bytes on every CPU.
.
This package contains")
set(CPACK_COMPONENTS_ALL)
intact_package(runtime ${library} libs SUMMARY "exact int8 GEMM and convolution for x86-64"
               TEXT "${what} the shared library.")
# Programs that link the archive need asmjit, and the runtimes of C++ and OpenMP of the compiler that made it. Clang has no C++
# runtime of its own.
string(REGEX MATCH "^[0-9]+" compiler ${CMAKE_CXX_COMPILER_VERSION})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(runtime "libstdc++-${compiler}-dev | libstdc++-dev")
else()
  set(runtime "libstdc++-dev, libomp-${compiler}-dev")
endif()
intact_package(development libintact-dev libdevel SUMMARY "exact int8 GEMM and convolution (development files)"
               TEXT "${what} the headers for C and C++, the archive, and
the files for CMake and pkg-config."
               DEPENDS "${library} (= ${version}), libasmjit-dev"
               RECOMMENDS "${runtime}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
if(TARGET intact)
  intact_package(tools intact-tools science SUMMARY "verifier of what int8 kernels compute" TEXT
"The program intact describes what a CPU does with 8-bit integers, proves
which weights can make its instructions saturate, and explains each output
in which a kernel differs from a reference."
                 SUGGESTS "intact-bench, intact-peers")
endif()
get_property(peers GLOBAL PROPERTY INTACT_PEERS)
if(peers)
  intact_package(peers intact-peers science SUMMARY "other libraries' int8 kernels as targets of intact" TEXT
"With these plug-ins the program intact verifies what other libraries
compute: the libraries that the plug-ins were built with." DEPENDS "intact-tools (= ${version})")
endif()
if(TARGET intact_bench)
  intact_package(benchmarks intact-bench science SUMMARY "speed of int8 GEMM and convolution on this CPU" TEXT
"The program intact_bench compares the kernels of intact with the peaks of
the CPU and, if it was built with oneDNN, with oneDNN.")
endif()

set(INTACT_DEBIAN_VERSION ${version})
string(TIMESTAMP INTACT_DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake.in ${PROJECT_BINARY_DIR}/debian_files.cmake @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/debian_triggers.cmake.in ${PROJECT_BINARY_DIR}/debian_triggers.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/debian_files.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/debian_triggers.cmake)
include(CPack)
