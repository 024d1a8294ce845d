// Functions for AVX-512 in files that are compiled for every CPU.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_AVX512_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_AVX512_H_

/// The attribute of a function for a CPU with which HasAvx512() (run.h) is true.
#define INTACT_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")

/// Around such functions: GCC 12 warns of undefined vectors in its own intrinsics.
#ifdef __clang__
#define INTACT_BEGIN_AVX512
#define INTACT_END_AVX512
#else
#define INTACT_BEGIN_AVX512 \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define INTACT_END_AVX512 _Pragma("GCC diagnostic pop")
#endif

#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_AVX512_H_
