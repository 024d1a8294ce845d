/** @file
 * Bound runs: the arguments of a run are checked once, and the run is repeated many times. An engine
 * saves time with them if a small layer gets the same shapes and buffers again: intact_gemm_run() checks its
 * arguments and finds its kernels in each run.
 */
#ifndef INTACT_BOUND_H_
#define INTACT_BOUND_H_

#include <intact/intact.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A plan and the arguments of its runs. See intact_gemm_bind(). */
typedef struct intact_bound intact_bound;

/** Checks `args` as intact_gemm_run() does, and binds them to the plan. `args` is copied. The memory that
 * `args` points to is not copied. Activations, outputs, arrays of pointers, scales, zero points and scratch
 * stay the caller's. Each run reads or writes this memory. The memory and the plan must outlive `*bound`. The
 * shapes, the aliasing and the number of threads are those of `args`. Without scratch in `args`, `*bound`
 * owns the scratch of runs on one thread. The call may read activations and write scratch. Tune a plan before
 * binding it. A bound plan must not be tuned. Thread-safe. Errors: those of intact_gemm_run(), and
 * OUT_OF_MEMORY; `*bound` is then NULL. */
INTACT_API intact_status intact_gemm_bind(const intact_gemm* gemm, const intact_gemm_args* args,
                                          intact_bound** bound);

/** As intact_gemm_bind(), for a convolution. Errors: those of intact_conv_run(), and OUT_OF_MEMORY; `*bound`
 * is then NULL. */
INTACT_API intact_status intact_conv_bind(const intact_conv* conv, const intact_conv_args* args,
                                          intact_bound** bound);

/** Reads the bound memory, and writes the outputs that intact_gemm_run() or intact_conv_run() would write
 * with the bound arguments. Different bound runs of one plan may run at once if they have different scratch.
 * One bound run is not thread-safe, because its runs share scratch. A run on one thread allocates nothing. A
 * run on one thread fails only if an array of pointers, scales or zero points now holds a value that a plain
 * run refuses. INTACT_VERBOSE prints no line. Errors: those of intact_gemm_run() or intact_conv_run(). */
INTACT_API intact_status intact_bound_run(intact_bound* bound);

/** Destroys the bound run, but not the plan. NULL is allowed. */
INTACT_API void intact_bound_destroy(intact_bound* bound);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_BOUND_H_ */
