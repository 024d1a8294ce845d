# The one place that makes builds for other CPUs than x86-64 (INTACT_X86=OFF): portable kernels, the reference, the verifier.
# Headers of off_x86 come before all others (intact_flags).

# intact_choose_sources(target): off x86-64, a source in off_x86 takes the place of the target's source of the same name, and
# the sources in off_x86/left_out.txt are left out.
function(intact_choose_sources target)
  if(INTACT_X86)
    return()
  endif()
  set(list ${PROJECT_SOURCE_DIR}/off_x86/left_out.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} left_out REGEX "^[^#]")
  get_target_property(sources ${target} SOURCES)
  set(chosen)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    if(EXISTS ${PROJECT_SOURCE_DIR}/off_x86/${name})
      list(APPEND chosen ${PROJECT_SOURCE_DIR}/off_x86/${name})
    elseif(NOT name IN_LIST left_out)
      list(APPEND chosen ${source})
    endif()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${chosen})
endfunction()
