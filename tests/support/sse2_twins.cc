#include "off_x86/emmintrin.h"
#include "tests/support/sse2_results.h"

INTACT_SSE2_RESULTS(ResultsOfTwins)
