# Finds oneDNN, quietly: dnnl_FOUND and DNNL::dnnl. Debian's version 2 stops the configuration if OpenCL is missing.
find_package(dnnl 3 CONFIG QUIET)
if(NOT dnnl_FOUND)
  find_package(OpenCL QUIET)
  if(OpenCL_FOUND)
    find_package(dnnl CONFIG QUIET)
  endif()
endif()
