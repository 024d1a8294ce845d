# Installs the library to a new prefix, and uses it from there like a user.
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/package_test/prefix)
set(sources ${CMAKE_CURRENT_LIST_DIR})
if(INTACT_SANITIZE)
  set(sanitize -fsanitize=address,undefined)
endif()

add_test(NAME package.install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
add_test(NAME package.cmake
         COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${sources} ${CMAKE_CURRENT_BINARY_DIR}/package_test/build
                 --build-generator ${CMAKE_GENERATOR} --build-options -DCMAKE_PREFIX_PATH=${prefix}
                 -DCMAKE_C_FLAGS=${sanitize} -DCMAKE_CXX_FLAGS=${sanitize}
                 --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure --no-tests=error)
add_test(NAME package.pkg_config
         COMMAND ${sources}/pkg_config_test.sh ${sources} ${prefix} ${CMAKE_INSTALL_LIBDIR} ${CMAKE_C_COMPILER}
                 ${CMAKE_CXX_COMPILER} ${sanitize})
add_test(NAME package.c_only
         COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${sources}/c_only
                 ${CMAKE_CURRENT_BINARY_DIR}/package_test/c_only --build-generator ${CMAKE_GENERATOR}
                 --build-options -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_FLAGS=${sanitize}
                 --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure --no-tests=error)
add_test(NAME package.exports
         COMMAND ${sources}/exports_test.sh ${prefix}/${CMAKE_INSTALL_LIBDIR}/libintact.so
                 ${PROJECT_SOURCE_DIR}/include/intact/bound.h ${PROJECT_SOURCE_DIR}/include/intact/engines.h
                 ${PROJECT_SOURCE_DIR}/include/intact/grouped.h ${PROJECT_SOURCE_DIR}/include/intact/intact.h)

add_test(NAME package.examples
         COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${prefix}/${CMAKE_INSTALL_DATADIR}/intact/examples
                 ${CMAKE_CURRENT_BINARY_DIR}/package_test/examples --build-generator ${CMAKE_GENERATOR}
                 --build-options -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_FLAGS=${sanitize}
                 --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure --no-tests=error)
if(TARGET api_reference)
  add_test(NAME docs.api_reference COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target api_reference)
endif()

set(installed cmake pkg_config c_only exports examples)

set(packages libintact${PROJECT_VERSION_MAJOR} libintact-dev)
if(TARGET intact)
  set(programs intact)
  list(APPEND packages intact-tools)
endif()
if(TARGET intact_bench)
  list(APPEND programs intact_bench)
  list(APPEND packages intact-bench)
endif()
get_property(peers GLOBAL PROPERTY INTACT_PEERS)
if(peers)
  list(APPEND packages intact-peers)
endif()
if(programs)
  add_test(NAME package.documents
           COMMAND ${sources}/documents_test.sh ${prefix} ${PROJECT_SOURCE_DIR} ${programs})
  set_tests_properties(package.documents PROPERTIES SKIP_RETURN_CODE 77)
  list(APPEND installed documents)
endif()
if(PROJECT_IS_TOP_LEVEL)
  add_test(NAME package.debian
           COMMAND ${sources}/debian_test.sh ${PROJECT_BINARY_DIR} ${sources} ${CMAKE_INSTALL_LIBDIR}
                   ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER} "${sanitize}" ${packages})
  set_tests_properties(package.debian PROPERTIES SKIP_RETURN_CODE 77)
endif()

set_tests_properties(package.install PROPERTIES FIXTURES_SETUP installed_package)
list(TRANSFORM installed PREPEND package.)
set_tests_properties(${installed} PROPERTIES FIXTURES_REQUIRED installed_package)
