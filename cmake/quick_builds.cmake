# Makes builds of this project faster with ccache and mold, if they are installed and their options are on, and with
# precompiled headers and unity builds. The built programs do not change.
if(PROJECT_IS_TOP_LEVEL AND INTACT_CCACHE)
  find_program(INTACT_CCACHE_PROGRAM ccache)
  mark_as_advanced(INTACT_CCACHE_PROGRAM)
  if(INTACT_CCACHE_PROGRAM)
    set(launcher ${CMAKE_CURRENT_LIST_DIR}/launch_ccache.sh ${INTACT_CCACHE_PROGRAM})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL AND INTACT_MOLD)
  find_program(INTACT_MOLD_PROGRAM mold)
  mark_as_advanced(INTACT_MOLD_PROGRAM)
  if(INTACT_MOLD_PROGRAM)
    execute_process(COMMAND ${INTACT_MOLD_PROGRAM} --version OUTPUT_VARIABLE mold_version)
    string(REGEX REPLACE "^mold ([0-9.]+).*" "\\1" mold_version "${mold_version}")
    # Earlier versions may begin GNU_RELRO within a page, after thread-local variables. Such a program does not start.
    # Debian 12 has 1.10.
    if(mold_version VERSION_GREATER_EQUAL 2)
      add_link_options(-fuse-ld=mold)
    endif()
  endif()
endif()

# intact_precompile(target [HEADER...]): precompiles headers that nearly all sources of `target` include.
function(intact_precompile target)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <functional> <limits> <map>
                            <memory> <numeric> <optional> <span> <string> <string_view> <utility> <vector> ${ARGN})
  # GCC 12 does not treat a precompiled standard library as system headers, so it prints false warnings.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-stringop-overread$<SEMICOLON>-Wno-stringop-overflow>)
endfunction()

# intact_unity(target [SIZE]): compiles SIZE (default 8) sources of `target` at once. They share one anonymous namespace.
function(intact_unity target)
  if(INTACT_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    if(ARGC GREATER 1)
      set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${ARGV1})
    endif()
  endif()
endfunction()
