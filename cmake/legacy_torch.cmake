# intact_legacy_torch: headers and libraries of the torch that INTACT_PYTORCH_LEGACY_PYTHON imports. A package from PyPI contains
# them. Debian's package links to the headers of libtorch-dev, whose libraries are in the system's folder.
set(INTACT_PYTORCH_LEGACY_PYTHON /usr/bin/python3 CACHE FILEPATH "A Python with numpy, and torch 1.13 or newer")
execute_process(
  COMMAND ${INTACT_PYTORCH_LEGACY_PYTHON} -c
          "import torch; print(torch.__path__[0], torch.__version__, int(torch.compiled_with_cxx11_abi()), sep=';')"
  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
list(POP_FRONT found torch version cxx11_abi)
foreach(name torch torch_cpu c10)
  unset(library)
  find_library(library ${name} HINTS ${torch}/lib NO_CACHE)
  list(APPEND libraries ${library})
endforeach()
if(NOT EXISTS "${torch}/include/ATen/ATen.h" OR "${libraries}" MATCHES "NOTFOUND")
  message(FATAL_ERROR "INTACT_BUILD_PYTORCH_LEGACY: INTACT_PYTORCH_LEGACY_PYTHON is '${INTACT_PYTORCH_LEGACY_PYTHON}'; expected "
                      "a Python with torch 1.13 or newer, from PyPI or from Debian's python3-torch and libtorch-dev")
endif()

add_library(intact_legacy_torch INTERFACE)
target_include_directories(intact_legacy_torch SYSTEM INTERFACE ${torch}/include ${torch}/include/torch/csrc/api/include)
target_compile_definitions(intact_legacy_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${cxx11_abi})
# GCC 12 takes the union in Torch's TupleElements for an array of three, even if a tuple has more.
target_compile_options(intact_legacy_torch INTERFACE -Wno-array-bounds)
target_link_libraries(intact_legacy_torch INTERFACE ${libraries})
message(STATUS "legacy PyTorch: ${version} of ${INTACT_PYTORCH_LEGACY_PYTHON}")
