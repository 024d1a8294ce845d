# Installs the library to a prefix of its own, and uses it from there as others would.
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
add_test(NAME package.exports
         COMMAND ${sources}/exports_test.sh ${prefix}/${CMAKE_INSTALL_LIBDIR}/libintact.so
                 ${PROJECT_SOURCE_DIR}/include/intact/intact.h)

set_tests_properties(package.install PROPERTIES FIXTURES_SETUP installed_package)
set_tests_properties(package.cmake package.pkg_config package.exports PROPERTIES FIXTURES_REQUIRED installed_package)
