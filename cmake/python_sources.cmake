# cmake -DSOURCE=FOLDER -DSTAGE=FOLDER -P python_sources.cmake: copies the Python package to STAGE, without the modules that an
# earlier build left there. Libraries in STAGE stay.
file(GLOB_RECURSE stale ${STAGE}/*.py)
if(stale)
  file(REMOVE ${stale})
endif()
file(GLOB children ${SOURCE}/*)
file(COPY ${children} DESTINATION ${STAGE} PATTERN __pycache__ EXCLUDE)
