# intact_preloaded_sanitizers(out): environment variables of a Python that loads a library with this build's sanitizers.
function(intact_preloaded_sanitizers out)
  if(INTACT_SANITIZE)
    # Memory that Python and its packages keep until the process ends is no leak of intact's. The sanitizer keeps freed memory in
    # a quarantine. A small quarantine is full before the memory tests begin, so they see no growth.
    set(runtime libasan.so)
    set(environment ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8)
  elseif(INTACT_SANITIZE_THREADS)
    set(runtime libtsan.so)
    # With a short history the sanitizer may have lost the stack that a suppression needs.
    set(environment TSAN_OPTIONS=history_size=7:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan_suppressions.txt)
  else()
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  # Python links neither the sanitizer nor libstdc++. The sanitizer intercepts the exceptions of libstdc++. So both libraries are
  # preloaded.
  foreach(library ${runtime} libstdc++.so.6)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE path
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(NOT IS_ABSOLUTE "${path}")  # the compiler repeats the name of a library that it does not find
      message(FATAL_ERROR "${library}: ${CMAKE_CXX_COMPILER} did not find it; expected its path, as tests preload it")
    endif()
    list(APPEND preloaded ${path})
  endforeach()
  list(JOIN preloaded : preloaded)
  set(${out} ${environment} LD_PRELOAD=${preloaded} PARENT_SCOPE)
endfunction()
