# The toolchain of wheels: this machine's compiler with the C library of an older Debian, which tools/older_glibc.sh unpacks.
cmake_path(SET CMAKE_SYSROOT NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/older_glibc)
set(libraries ${CMAKE_SYSROOT}/usr/lib/x86_64-linux-gnu)
# Without these the linker finds the files of this machine first.
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-B${libraries} -L${libraries}")
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
