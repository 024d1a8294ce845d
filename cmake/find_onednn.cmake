# Finds oneDNN, quietly: dnnl_FOUND and DNNL::dnnl. Debian's package ends the configuration if there is no OpenCL.
find_package(OpenCL QUIET)
if(OpenCL_FOUND)
  find_package(dnnl CONFIG QUIET)
endif()
