# intact_python_interface(python out): writes intact.h's declarations to `out`, a module that cffi loads, by `python`.
function(intact_python_interface python out)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${python} ${PROJECT_SOURCE_DIR}/python/make_interface.py ${CMAKE_C_COMPILER}
            ${PROJECT_SOURCE_DIR}/include/intact/intact.h ${out}
    DEPENDS ${PROJECT_SOURCE_DIR}/python/make_interface.py ${PROJECT_SOURCE_DIR}/include/intact/intact.h
    COMMENT "The C interface as cffi reads it" VERBATIM)
endfunction()
