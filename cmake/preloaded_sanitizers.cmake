# intact_preloaded_sanitizers(out): environment variables of a Python that loads a library with this build's sanitizers.
function(intact_preloaded_sanitizers out)
  if(INTACT_SANITIZE)
    # Memory that Python and its packages keep until the process ends is no leak of intact's. Freed memory waits in a quarantine.
    # It must be full before tests measure memory, so it is small.
    set(runtime libasan.so)
    set(environment ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8)
  elseif(INTACT_SANITIZE_THREADS)
    set(runtime libtsan.so)
    set(environment TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan_suppressions.txt)
  else()
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  # Python is linked neither with the sanitizers nor with the C++ runtime, whose exceptions they intercept: both are preloaded.
  foreach(library ${runtime} libstdc++.so.6)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE path
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND preloaded ${path})
  endforeach()
  list(JOIN preloaded : preloaded)
  set(${out} ${environment} LD_PRELOAD=${preloaded} PARENT_SCOPE)
endfunction()
