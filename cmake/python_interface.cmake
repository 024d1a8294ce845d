# The plug-in that runs targets written in Python.
function(intact_python_target folder)
  add_library(intact_python_target MODULE ${PROJECT_SOURCE_DIR}/python/python_target.c)
  target_link_libraries(intact_python_target PRIVATE intact_flags)
  set_target_properties(intact_python_target PROPERTIES PREFIX "" OUTPUT_NAME python_target
                        LIBRARY_OUTPUT_DIRECTORY ${folder})
endfunction()

# The library that holds a process to an older CPU, of x86-64. Its constructor runs before all others.
function(intact_held_to folder)
  if(NOT INTACT_X86)
    return()
  endif()
  add_library(intact_held_to MODULE ${PROJECT_SOURCE_DIR}/examples/targets/held_to.c)
  target_link_libraries(intact_held_to PRIVATE intact_flags)
  target_link_options(intact_held_to PRIVATE LINKER:-z,initfirst)
  set_target_properties(intact_held_to PROPERTIES PREFIX "" OUTPUT_NAME held_to LIBRARY_OUTPUT_DIRECTORY ${folder})
endfunction()

# The library that pairs channels, if LEMON is installed. It needs only LEMON's headers, which are not valid C++20.
function(intact_channel_order folder)
  find_path(INTACT_LEMON_INCLUDE lemon/matching.h DOC "Folder with LEMON's headers")
  mark_as_advanced(INTACT_LEMON_INCLUDE)
  if(NOT INTACT_LEMON_INCLUDE)
    message(STATUS "channel_order.so is left out: LEMON (Debian: liblemon-dev) was not found")
    return()
  endif()
  add_library(intact_channel_order MODULE ${PROJECT_SOURCE_DIR}/python/channel_order.cc)
  target_link_libraries(intact_channel_order PRIVATE intact_flags)
  target_include_directories(intact_channel_order SYSTEM PRIVATE ${INTACT_LEMON_INCLUDE})
  set_target_properties(intact_channel_order PROPERTIES CXX_STANDARD 17 PREFIX "" OUTPUT_NAME channel_order
                        LIBRARY_OUTPUT_DIRECTORY ${folder})
endfunction()

# intact_python_interface(python out): runs `python` to write the declarations of the public headers of C to `out`, a module
# that cffi loads.
function(intact_python_interface python out)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/intact/*.h)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${python} ${PROJECT_SOURCE_DIR}/python/make_interface.py ${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/include ${out}
    DEPENDS ${PROJECT_SOURCE_DIR}/python/make_interface.py ${headers}
    COMMENT "C interface for cffi" VERBATIM)
endfunction()
