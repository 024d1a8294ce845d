// What spinning threads use (kernels/runtime/thread_pool.cc).
#ifndef INTACT_OFF_X86_IMMINTRIN_H_
#define INTACT_OFF_X86_IMMINTRIN_H_

#include "off_x86/emmintrin.h"

inline void _mm_pause() {}

#endif  // INTACT_OFF_X86_IMMINTRIN_H_
