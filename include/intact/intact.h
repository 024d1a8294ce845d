/** @file
 * intact: exact int8 GEMM and convolution for x86-64, the same bytes on every CPU.
 *
 * This is the C ABI of the library. Every object is an opaque handle. Every call that can fail returns a
 * status. After a failure, intact_last_error() names the argument, its value and what was expected.
 *
 * ## Arithmetic
 * With activations A (M×K), weights B (K×N) and output C (M×N):
 *
 *     acc[m,n] = Σ_k (a[m,k] − a_zero_point)·(b[k,n] − b_zero_points[n])    exact integer arithmetic
 *     y        = acc + bias_s32[n]            int32, see intact_overflow; an s32 output is y
 *     f        = float(y) · scales[n]  (+ bias_f32[n])           separate float32 roundings, no FMA
 *    (f        = f + float(r[m,n] − residual_zero_point) · residual_scale)       with a residual r, M×N
 *     f        = activation(f)                                   an f32 output is f
 *     c        = clamp(rne(f) + c_zero_point, type's range)      u8 and s8 outputs; rne: to nearest even
 *
 * With a lookup table, an 8-bit output is lookup_table[c − lowest(c_type)]. lowest is 0 for u8 and −128 for
 * s8. So the output can be any function of c.
 *
 * A bf16 or f16 output is f rounded to nearest even. An f16 output keeps subnormal numbers, and is infinite
 * from 65520 on. f can be a NaN only if the residual term is a NaN or infinite, or if a_scales[m]·scales[n]
 * is infinite. If f is a NaN, −∞ replaces f. A scale may be 0 (a pruned channel): then float(y) · 0 is 0, or
 * −0 for a negative y.
 *
 * If the run determines A's zero point and scale (intact_quantization), a_zero_point is the zero point of row
 * m or of all of A. Then f = float(y) · (a_scales[m]·scales[n]). The product in brackets is rounded to
 * float32 first.
 *
 * If the plan has a fixed point (intact_fixed_point), integers replace scales[n] and bias_f32. f is then the
 * v of these formulas, with multiplier q = multipliers[n] and shift s = shifts[n]:
 *
 *     z = clamp(y·2^max(s, 0), int32's range)
 *     h = floor((z·q + 2^30) / 2^31)          the high half of the doubled product; h = z without multipliers
 *     v = h / 2^max(−s, 0)                    rounded to an integer: ties away from zero, or up
 *
 * h is SaturatingRoundingDoublingHighMul of gemmlowp (fixedpoint/fixedpoint.h). v is RoundingDivideByPOT of
 * gemmlowp. TensorFlow Lite's MultiplyByQuantizedMultiplier combines the two functions in this way.
 * TensorFlow Lite's optimized kernels round ties up.
 *
 * A convolution has this arithmetic too. Its sum runs over taps and input channels: see intact_conv_desc.
 *
 * The result does not depend on the ISA, on the number of threads or on how M is split. Exception: the result
 * of a plan with INTACT_SATURATING depends on the ISA (intact_mode).
 *
 * ## Structs
 * A struct that a call takes by pointer begins with its own size. Initialize it with the matching *_INIT
 * macro. These structs grow only at their end. A struct_size is accepted if it is a multiple of 8, at least
 * the size of the struct's first version, and at most 4096 bytes. So a program and a library of different
 * versions work together:
 *   - a field that the caller's struct does not have takes its default;
 *   - in a struct that is longer than the library's struct, the bytes beyond the library's fields must be
 *     zero, so that an older library never ignores a request of a newer program;
 *   - a struct that the library fills is filled to its end, with zeros beyond the library's fields.
 *
 * The elements of an array (panel certificates, failing pairs) have no size field and never change.
 * Enumerations are int32_t in structs and arguments, with the named constants below.
 *
 * ## Threads and processes
 * Plans are immutable except during intact_gemm_tune() and intact_conv_tune(): any number of threads may run
 * and query one plan at once. The error message belongs to the calling thread. No call throws or aborts, and
 * no call prints unless INTACT_VERBOSE is set. No call depends on the calling thread's floating-point
 * environment (rounding, flush to zero, unmasked exceptions). No call changes this environment or its
 * exception flags. Plans work in the child of a fork(). No mapping of generated code is writable and
 * executable at once. If a process may not have executable memory, its plans use INTACT_ISA_PORTABLE.
 * docs/embedding.md describes what the library does in a process.
 *
 * ## Environment
 * INTACT_MAX_ISA (a cap: a name that intact_isa_name() returns), INTACT_VERBOSE=1 (a line on stderr for each
 * plan, tuning and run), INTACT_JIT_DUMP=DIR (listing and bytes of each generated kernel), INTACT_PERF_MAP=1
 * (symbols for perf).
 */
#ifndef INTACT_INTACT_H_
#define INTACT_INTACT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "intact targets the System V x86-64 ABI (Linux)"
#endif
/** Marks what the shared library exports. */
#define INTACT_API __attribute__((visibility("default")))

#define INTACT_VERSION_MAJOR 0 /**< version of this header; for the library's version: intact_version() */
#define INTACT_VERSION_MINOR 1 /**< see INTACT_VERSION_MAJOR */
#define INTACT_VERSION_PATCH 0 /**< see INTACT_VERSION_MAJOR */

#ifdef __cplusplus
extern "C" {
#endif

/** What a call returns. */
typedef enum intact_status {
  INTACT_OK = 0,               /**< success */
  INTACT_INVALID_ARGUMENT = 1, /**< an argument is wrong; the message names it and its value */
  INTACT_UNSUPPORTED = 2,      /**< valid, but not supported (by this ISA, for this combination of types) */
  INTACT_OVERFLOW = 3,         /**< some activation could make a sum leave int32: see intact_overflow */
  INTACT_CODEGEN_FAILED = 4,   /**< a kernel could not be generated: a bug of the library */
  INTACT_OUT_OF_MEMORY = 5     /**< memory ran out; a later call may succeed */
} intact_status;

/** The element type of a tensor. */
typedef enum intact_type {
  INTACT_TYPE_NONE = 0, /**< no tensor; only for fields that allow it */
  INTACT_U8 = 1,        /**< uint8_t */
  INTACT_S8 = 2,        /**< int8_t */
  INTACT_S32 = 3,       /**< int32_t */
  INTACT_F32 = 4,       /**< float: IEEE 754 binary32 */
  INTACT_BF16 = 5,      /**< bfloat16: the upper half of a float32 */
  INTACT_F16 = 6,       /**< float16: IEEE 754 binary16 */
  INTACT_S4 = 7,        /**< −8 to 7, two's complement; only weights of intact/grouped.h */
  INTACT_U4 = 8         /**< 0 to 15; only weights of intact/grouped.h */
} intact_type;

/** Whether sums are exact. */
typedef enum intact_mode {
  /** The arithmetic above, bit for bit, on every ISA. The default. */
  INTACT_EXACT = 0,
  /** The arithmetic of kernels that use VPMADDUBSW, on CPUs without VNNI. The products of two adjacent depths
   * (k, k+1), k even, are added in int16 with saturation. s8 activations are shifted by +128 first, u8
   * weights by −128. FBGEMM and ONNX Runtime compute GEMMs in this way. oneDNN does so up to some depth
   * (docs/peers.md). For convolutions, the descriptor's `pairing` says which depths are adjacent. Padding has
   * the value of the zero point. The products of padding are added in pairs too. FBGEMM has the arithmetic of
   * INTACT_PAIRING_FLATTENED. ONNX Runtime has this arithmetic too, but its depthwise kernels are exact.
   * oneDNN has the pairs of INTACT_PAIRING_WITHIN_TAP, but adds no products of padding. On VNNI, AMX and
   * PORTABLE this mode equals INTACT_EXACT. This mode is for study and comparison. The library never chooses
   * it by itself. */
  INTACT_SATURATING = 1
} intact_mode;

/** An instruction set. As a cap, an ISA stands for a machine: a plan capped at AVX512 behaves as on a machine
 * with AVX-512 and without VNNI. A cap only removes ISAs.
 *
 * The cap AVX_VNNI_INT8 also keeps AVX2 and AVX_VNNI. The cap AVX10_2 removes only AMX_INT8. The cap AMX_INT8
 * removes nothing, because some machines with AMX have AVX_VNNI_INT8 and AVX10_2 too. All other caps remove
 * AVX_VNNI_INT8 and AVX10_2. Every cap keeps PORTABLE. A plan uses PORTABLE only if no other ISA is
 * permitted. Enumerator values are not ordered. */
typedef enum intact_isa {
  INTACT_ISA_ANY = 0,           /**< all that the machine offers */
  INTACT_ISA_AVX2 = 1,          /**< AVX2, FMA and F16C */
  INTACT_ISA_AVX_VNNI = 2,      /**< AVX2 and AVX-VNNI: VPDPBUSD on ymm registers */
  INTACT_ISA_AVX512 = 3,        /**< AVX2, and AVX-512 F, BW, DQ, VL */
  INTACT_ISA_AVX512_VNNI = 4,   /**< AVX512 and AVX512-VNNI: VPDPBUSD on zmm registers */
  INTACT_ISA_AMX_INT8 = 5,      /**< AVX512_VNNI and AMX-TILE, AMX-INT8 */
  INTACT_ISA_AVX_VNNI_INT8 = 6, /**< AVX-VNNI and AVX-VNNI-INT8: s8×s8 without a shift */
  INTACT_ISA_PORTABLE = 7, /**< compiled code for any x86-64 CPU, many times slower; no code is generated */
  INTACT_ISA_AVX10_2 = 8   /**< AVX512_VNNI and AVX10.2: s8×s8 without a shift on zmm registers */
} intact_isa;

/** How a run treats activations outside the plan's activation range (a_min, a_max). */
typedef enum intact_range_check {
  /** A run checks every activation. If a row has an activation outside the range, the run computes this row
   * without relying on the range. The result is exact for all activations. The default. */
  INTACT_RANGE_CHECKED = 0,
  /** The caller guarantees the range. For activations outside the range results may be wrong. */
  INTACT_RANGE_UNCHECKED = 1
} intact_range_check;

/** The function between scaling and rounding. */
typedef enum intact_activation {
  INTACT_ACTIVATION_NONE = 0, /**< f unchanged */
  INTACT_ACTIVATION_RELU = 1, /**< f > 0 ? f : +0. So −0 becomes +0. */
  /** g = f > clamp_min ? f : clamp_min, then g < clamp_max ? g : clamp_max. So a zero gets the sign of a
   * bound that is zero: with a clamp_min of −0, +0 becomes −0. */
  INTACT_ACTIVATION_CLAMP = 2
} intact_activation;

/** How activations represent real numbers: the real number is (a − zero_point)·scale. Convolutions support
 * STATIC, TENSOR and DYNAMIC_TENSOR. Padding of a convolution has the value of the zero point. The numbers x
 * below do not include padding.
 *
 * The DYNAMIC quantizations compute a scale and a zero point from the real numbers x of one row or of the
 * whole tensor. The computation for u8 is DynamicQuantizeLinear of ONNX (operator set 11). The computation
 * for s8 is its symmetric counterpart. Every operation is rounded to float32. Division is a true division,
 * rne rounds to the nearest integer (ties to even), and sat clamps to the type's range:
 *
 *     u8:  lo = min(0, min x), hi = max(0, max x)       s8:  hi = max |x|
 *          scale = (hi − lo)/255                             scale = hi/127
 *          zero_point = sat(rne(0 − lo/scale))               zero_point = 0
 *
 *     scale = 1 if it would be 0;  a = sat(rne(x/scale) + zero_point)
 *
 * If some x is a NaN or infinite, or if hi − lo is not a finite float32, there is no scale. Then all outputs
 * of the row, or of the tensor, are NaNs (0x7FC00000; bfloat16: 0x7FC0; float16: 0x7E00). An 8-bit output is
 * then the output for f = −∞. */
typedef enum intact_quantization {
  /** One zero point, a_zero_point; `scales` contain the scale of A as a factor. The default. */
  INTACT_QUANTIZATION_STATIC = 0,
  /** The caller passes each run a zero point and a scale for each row: a_zero_points and a_scales of
   * intact_gemm_args. */
  INTACT_QUANTIZATION_ROWS = 1,
  /** A holds real numbers of a_source_type. Each run quantizes each row to a_type while it reads the row. */
  INTACT_QUANTIZATION_DYNAMIC_ROWS = 2,
  /** As DYNAMIC_ROWS, with one scale and zero point for all of A: all rows of all items of a batch, or all
   * images. A convolution quantizes its input into scratch, a byte for each element. */
  INTACT_QUANTIZATION_DYNAMIC_TENSOR = 3,
  /** The caller passes each run one zero point and one scale for all of A: see a_zero_points and a_scales. */
  INTACT_QUANTIZATION_TENSOR = 4
} intact_quantization;

/** What happens if some activations could make acc + bias_s32 leave int32. INTACT_RANGE_UNCHECKED considers
 * the activations in the activation range. INTACT_RANGE_CHECKED considers all activations of the type,
 * because runs with this check are exact for all activations. If a run gives or computes the zero point, all
 * zero points of the type are considered. Exception: with INTACT_QUANTIZATION_TENSOR, only zero points in the
 * activation range are considered.
 *
 *   - A convolution is bounded as if every output had all taps that any output reads. Outputs of a transposed
 *     convolution are bounded phase by phase (outputs with the same taps). With small inputs and padding the
 *     bound may be too wide.
 *   - With runtime_b, sums are bounded by ±k·255·128, or with zero points of B by ±k·255·255.
 *   - With INTACT_SATURATING, both the exact sum and a bound of the sum of clamped pairs must fit, on every
 *     ISA. So all ISAs refuse the same plans. The bound of the clamped sum may be wider than the sums that
 *     activations reach. With runtime_b this bound is three times the bound of the exact sum. */
typedef enum intact_overflow {
  INTACT_OVERFLOW_REFUSED = 0, /**< no plan is created: the error is INTACT_OVERFLOW. The default. */
  /** y is the int32 that equals acc + bias_s32 modulo 2^32. Engines whose int32 additions wrap compute this y
   * too (docs/engines.md). Wrapping costs no time. */
  INTACT_OVERFLOW_WRAPS = 1
} intact_overflow;

/** How integers become 8-bit outputs without float scales; see the arithmetic at the top. */
typedef enum intact_fixed_point {
  INTACT_FIXED_POINT_NONE = 0,      /**< float scales. The default. */
  INTACT_FIXED_POINT_HALF_AWAY = 1, /**< multipliers and shifts; a shift rounds ties away from zero */
  INTACT_FIXED_POINT_HALF_UP = 2    /**< multipliers and shifts; a shift rounds ties up */
} intact_fixed_point;

/** The arithmetic that a GEMM and a convolution share. "Columns" are the columns of B and C, or the output
 * channels of a convolution. n is the number of columns. Pointers are read only during creation. */
typedef struct intact_linear_desc {
  size_t struct_size;           /**< sizeof(intact_linear_desc) */
  int32_t a_type;               /**< INTACT_U8 or INTACT_S8 */
  int32_t b_type;               /**< INTACT_S8 or INTACT_U8 */
  int32_t c_type;               /**< S32, F32, BF16, F16, U8 or S8 */
  int32_t mode;                 /**< an intact_mode; 0 = INTACT_EXACT */
  int32_t max_isa;              /**< an intact_isa, the cap; INTACT_ISA_ANY = all that the machine offers */
  int32_t a_zero_point;         /**< within the activation range; 0 unless a_quantization is STATIC */
  int32_t c_zero_point;         /**< within c_type's range; 0 except for u8 and s8 outputs */
  int32_t activation;           /**< an intact_activation; must be NONE for s32 output */
  const int32_t* b_zero_points; /**< b_zero_point_count values within b_type's range; NULL: all are 0 */
  int64_t b_zero_point_count;   /**< 1 (per tensor) or n (per column); 0 with NULL. With a zero point
                                     other than 0 (s8) or 128 (u8), runs also sum each row of A. */
  const int32_t* bias_s32;      /**< n values in the accumulator's scale, or NULL */
  const float* bias_f32;        /**< n finite values in the output's scale, or NULL; not with s32 output or a
                                     fixed_point */
  const float* scales; /**< scale_count finite values ≥ 0; NULL for s32 output and with a fixed_point */
  int64_t scale_count; /**< 1 (per tensor) or n (per channel); counts multipliers and shifts too; 0
                                     for s32 output */
  float clamp_min;     /**< for INTACT_ACTIVATION_CLAMP: not NaN, at most clamp_max */
  float clamp_max;     /**< for INTACT_ACTIVATION_CLAMP: not NaN; the bounds must not both be 0 */
  int32_t a_min;       /**< smallest activation; a_min and a_max both 0: the whole range of a_type */
  /** Largest activation. A smaller a_max makes exact kernels without VNNI faster, for s8 as well. The
   * certificate may then report fewer failing pairs. */
  int32_t a_max;
  int32_t range_check; /**< an intact_range_check, for a_min and a_max */
  /** The type of a tensor of C's shape that every run adds to f: INTACT_U8, INTACT_S8 or INTACT_F32.
   * INTACT_TYPE_NONE: no residual. Not with s32 output. */
  int32_t residual_type;
  float residual_scale;        /**< finite, > 0; 0 without a residual */
  int32_t residual_zero_point; /**< within residual_type's range; 0 for INTACT_F32 and without a residual */
  /** An intact_quantization. All except STATIC need an a_zero_point of 0. The DYNAMIC quantizations also need
   * a c_type other than s32, and a_min and a_max of 0. */
  int32_t a_quantization;
  /** INTACT_F32, INTACT_BF16 or INTACT_F16 with a DYNAMIC quantization, else INTACT_TYPE_NONE. */
  int32_t a_source_type;
  /** With a fixed_point: scale_count values, each 0 or 2^30 to 2^31 − 1. NULL: only shifts apply. */
  const int32_t* multipliers;
  const int32_t* shifts; /**< with a fixed_point: scale_count values, −31 to 30; positive: to the left */
  /** An intact_fixed_point. All except NONE need a c_type of u8 or s8 and a STATIC a_quantization. With them,
   * scales, bias_f32 and the residual must be absent. */
  int32_t fixed_point;
  /** 256 elements of c_type (u8 or s8), or NULL. An output is lookup_table[c − lowest(c_type)]: c is the
   * output without a table, and lowest is 0 for u8 and −128 for s8. Example: the sigmoid of an s8 c of scale
   * 1/16, as s8 of scale 1/256 and zero point −128:
   *
   *     for (int c = -128; c < 128; ++c) table[c + 128] = min(255, rint(256 / (1 + exp(-c / 16.0)))) - 128;
   */
  const void* lookup_table;
  int32_t overflow; /**< an intact_overflow */
  /** 0, or with INTACT_SATURATING an intact_pairing: which depths of a convolution are added in int16. For a
   * GEMM all pairings are the same. */
  int32_t pairing;
} intact_linear_desc;

/** Defaults: u8×s8→s32, exact, the best ISA. */
#define INTACT_LINEAR_DESC_INIT                                                                       \
  {                                                                                                   \
    sizeof(intact_linear_desc), INTACT_U8, INTACT_S8, INTACT_S32, INTACT_EXACT, INTACT_ISA_ANY, 0, 0, \
        INTACT_ACTIVATION_NONE, NULL, 0, NULL, NULL, NULL, 0, 0.0f, 0.0f, 0, 0, INTACT_RANGE_CHECKED, \
        INTACT_TYPE_NONE, 0.0f, 0, INTACT_QUANTIZATION_STATIC, INTACT_TYPE_NONE, NULL, NULL,          \
        INTACT_FIXED_POINT_NONE, NULL, INTACT_OVERFLOW_REFUSED, INTACT_PAIRING_WITHIN_TAP             \
  }

/** The weights of a GEMM: B is k×n. Limits: n and k at most 2^31 − 1, n·k at most 2^40. */
typedef struct intact_gemm_desc {
  size_t struct_size; /**< sizeof(intact_gemm_desc) */
  int64_t n;          /**< columns of B and C, ≥ 1 */
  int64_t k;          /**< depth, ≥ 1 */
  int64_t b_stride_k; /**< elements from b[k,n] to b[k+1,n], at most 2^40; 0 = n (row-major K×N) */
  /** Elements from b[k,n] to b[k,n+1], at most 2^40; 0 = 1. For N×K weights set b_stride_k to 1 and
   * b_stride_n to k. The strides must give each element of B its own place: b_stride_k ≥ (n − 1)·b_stride_n +
   * 1, or b_stride_n ≥ (k − 1)·b_stride_k + 1. */
  int64_t b_stride_n;
  /** Expected rows per run, at most 2^31 − 1. 0: unknown. With a usual_m, an exact plan without VNNI keeps
   * only the weight layout that is best for this m. Such a plan takes half the memory and less time to
   * create. Every plan with a usual_m generates the kernels that are best for up to usual_m rows. Runs of
   * more rows use these kernels too. Runs of any other m give the same bytes, but may be slower. With 0, the
   * plan keeps every layout that is best for some m. */
  int64_t usual_m;
  /** 0, or 1: B is passed to each run, with the strides above. If rows are few, the run may read B where it
   * lies. Otherwise the run packs B into its scratch, piece by piece. Create the plan with `b` NULL. The plan
   * is exact for all weights. The overflow check assumes the worst weights. Tuning, certificates and saving
   * are UNSUPPORTED. INTACT_SATURATING works as for constant weights. */
  int32_t runtime_b;
  int32_t reserved; /**< 0 */
} intact_gemm_desc;

/** Constant B; set n and k. */
#define INTACT_GEMM_DESC_INIT \
  { sizeof(intact_gemm_desc), 0, 0, 0, 0, 0, 0, 0 }

/** The buffers of one run. A is m×k, or k×m with a_transposed. C and the residual are m×n. All are row-major.
 * No alignment is needed. Nothing beyond the m·k and m·n elements is read or written.
 *
 * C must not overlap A, B or the residual. Exception: the residual may be C itself, with the same pointer,
 * stride and element size. A run checks that the C of an item does not overlap the A and the residual of this
 * item. The run does not check B, and does not compare different items.
 *
 * A batch is `batch` items of m rows each. All items have one B. Exception: with runtime_b, each item has its
 * own B. Without a_items, item i of A begins at a + i·a_batch_stride elements. With a_items, item i of A
 * begins at a_items[i]. `a` must then be NULL, and the stride is not read. C, the residual and B work the
 * same way. Items of A, of B and of the residual may share memory. Items of C must not share memory. Limit:
 * m·batch at most 2^31 − 1.
 *
 * If m or batch is 0, the run does nothing and returns INTACT_OK. It then needs no scratch and touches no
 * memory. So each pointer may be NULL. Sizes, strides and threads are still checked. */
typedef struct intact_gemm_args {
  size_t struct_size;      /**< sizeof(intact_gemm_args) */
  int64_t m;               /**< rows, ≥ 0 */
  const void* a;           /**< m×k activations: a_type, or a_source_type with a dynamic quantization */
  int64_t a_stride;        /**< elements between rows of A, k to 2^40; 0 = k. See a_transposed */
  void* c;                 /**< m×n outputs of c_type */
  int64_t c_stride;        /**< elements between rows of C, n to 2^40; 0 = n */
  const void* residual;    /**< m×n elements of the plan's residual_type; NULL if the plan has no residual */
  int64_t residual_stride; /**< elements between rows of the residual, n to 2^40; 0 = n */
  /** Threads of the run, ≥ 0; 0 = OpenMP's default, or fewer if there is little work. Not read by
   * intact_gemm_run_part(). */
  int32_t threads;
  /** Memory for the run to work in, of any alignment. Its contents mean nothing after the run. Concurrent
   * calls need separate scratch, also for parts of one run. NULL: each calling thread keeps its own memory
   * between runs. */
  void* scratch;
  /** Bytes of `scratch`; 0 with NULL. The size that intact_gemm_prepare() returns serves all threads. With
   * less scratch, the run uses fewer threads. The run is refused if the scratch is too small for one
   * thread. */
  size_t scratch_bytes;
  /** With INTACT_QUANTIZATION_ROWS: m·batch zero points, item after item, within the range of a_type (they
   * may lie outside the activation range). With TENSOR: one, within the activation range. NULL: all are 0. */
  const int32_t* a_zero_points;
  /** With INTACT_QUANTIZATION_ROWS: m·batch finite values ≥ 0; with TENSOR: one; NULL with s32 output. */
  const float* a_scales;
  int64_t batch; /**< number of items, ≥ 0; 1 if the struct ends before this field */
  /** Elements from an item of A to the next, at most 2^40; 0 = m·a_stride, k·a_stride with a_transposed. */
  int64_t a_batch_stride;
  int64_t c_batch_stride; /**< elements from an item of C to the next; 0 = m·c_stride */
  int64_t
      residual_batch_stride; /**< elements from an item of the residual to the next; 0 = m·residual_stride */
  int64_t b_batch_stride;    /**< elements from an item of B to the next; 0 = n·k. Only with runtime_b */
  const void* const* a_items; /**< `batch` pointers to items of A, with `a` NULL; or NULL */
  void* const* c_items;       /**< `batch` pointers to items of C, with `c` NULL; or NULL */
  const void* const*
      residual_items;         /**< `batch` pointers to items of the residual, with `residual` NULL; or NULL */
  const void* const* b_items; /**< `batch` pointers to items of B, with `b` NULL; or NULL */
  const void* b; /**< with runtime_b: B, b_type elements, laid out by the strides of the plan's descriptor */
  /** With runtime_b: finite values ≥ 0 that replace the plan's scales, b_scale_count for each item, item
   * after item. NULL: the scales of the plan. Must be NULL for s32 output and with a fixed_point. */
  const float* b_scales;
  /** With runtime_b, if the plan was created with b_zero_points: zero points of B within the range of b_type,
   * b_zero_point_count for each item, item after item. NULL: the zero points of the plan. */
  const int32_t* b_zero_points;
  /** 0, or 1: A is stored as k×m. The element of row i and depth j is at a + j·a_stride + i; a_stride is m to
   * 2^40; 0 = m. "Rows of A" in all other fields are still the m rows. The run copies some rows at a time
   * into its scratch. */
  int32_t a_transposed;
  int32_t reserved; /**< 0 */
  int64_t
      b_scale_count; /**< scales of each item: 1, or n (one for each column); 0 means 1. 0 if b_scales is NULL */
  int64_t b_zero_point_count; /**< zero points of each item: 1 or n; 0 means 1. 0 if b_zero_points is NULL */
} intact_gemm_args;

/** One item, on OpenMP's default number of threads; set m and the buffers. */
#define INTACT_GEMM_ARGS_INIT                                                                            \
  {                                                                                                      \
    sizeof(intact_gemm_args), 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0, NULL, NULL, 1, 0, 0, 0, 0, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0                                                   \
  }

/** What a run needs, and the shape of its output. */
typedef struct intact_run_info {
  size_t struct_size; /**< sizeof(intact_run_info) */
  /** Extents of the output: m and n of a GEMM; the spatial extents of a convolution, outermost first. Unused
   * entries are 1. */
  int64_t output[3];
  size_t scratch_bytes;      /**< bytes that a run with these arguments uses, for all its threads */
  size_t part_scratch_bytes; /**< bytes that each part of the run needs, or a run on one thread */
} intact_run_info;

/** The initial value of a struct that a call fills. */
#define INTACT_RUN_INFO_INIT \
  { sizeof(intact_run_info), {0}, 0, 0 }

/** A plan of a GEMM: packed weights and kernels. See intact_gemm_create(). */
typedef struct intact_gemm intact_gemm;

/** What a plan chose. Strings live as long as the plan. */
typedef struct intact_gemm_info {
  size_t struct_size;    /**< sizeof(intact_gemm_info) */
  int64_t n;             /**< as in the descriptor */
  int64_t k;             /**< as in the descriptor */
  int32_t a_type;        /**< as in the descriptor */
  int32_t b_type;        /**< as in the descriptor */
  int32_t c_type;        /**< as in the descriptor */
  int32_t residual_type; /**< as in the descriptor */
  int32_t isa;           /**< the best intact_isa that the plan may use; `kernel` names the ISA that runs */
  int32_t mode;          /**< as in the descriptor */
  const char* kernel;    /**< name of the kernel for large m, or for usual_m, as in logs and perf */
  /** Memory that the packed weights occupy now. Each schedule that is found adds to it: see
   * intact_gemm_create(). If no kernel reads the panels, they are freed once all schedules are found. */
  int64_t packed_bytes;
  /** Smallest y that activations in the activation range can make, bias_s32 included: see
   * intact_certificate. */
  int64_t accumulator_min;
  int64_t accumulator_max; /**< largest y; within int32 unless sums wrap: see intact_certificate */
  int32_t a_quantization;  /**< as in the descriptor */
  int32_t a_source_type;   /**< as in the descriptor */
} intact_gemm_info;

/** The initial value of a struct that a call fills. */
#define INTACT_GEMM_INFO_INIT                                                                           \
  {                                                                                                     \
    sizeof(intact_gemm_info), 0, 0, INTACT_U8, INTACT_S8, INTACT_S32, INTACT_TYPE_NONE, INTACT_ISA_ANY, \
        INTACT_EXACT, NULL, 0, 0, 0, INTACT_QUANTIZATION_STATIC, INTACT_TYPE_NONE                       \
  }

/** What intact_gemm_tune() or intact_conv_tune() measured. The name of a convolution's candidate says how the
 * input is read, then which kernel runs. Each phase of a transposed convolution has its own choice. The times
 * are then sums over the phases. The names belong to the phase that takes longest. */
typedef struct intact_tune_info {
  size_t struct_size;        /**< sizeof(intact_tune_info) */
  double microseconds;       /**< median time of a run with `kernel`, on one thread */
  double model_microseconds; /**< median time of a run with `model_kernel`; the two kernels run in turns */
  int32_t candidates;        /**< number of candidates that were timed */
  int32_t reserved;          /**< 0 */
  char kernel[120];          /**< the choice: the fastest, unless `model_kernel` is hardly slower */
  char model_kernel[120];    /**< the cost model's choice */
} intact_tune_info;

/** The initial value of a struct that a call fills. */
#define INTACT_TUNE_INFO_INIT                        \
  {                                                  \
    sizeof(intact_tune_info), 0, 0, 0, 0, {0}, { 0 } \
  }

/** Which depths of an output a kernel without VNNI adds in int16, two at a time. For a GEMM both pairings are
 * the same: depths (k, k+1), k even. docs/peers.md lists the pairing of each engine. */
typedef enum intact_pairing {
  /** For a convolution: channels (c, c+1) of a tap, c even within the group; an odd last channel is alone. */
  INTACT_PAIRING_WITHIN_TAP = 0,
  /** For a convolution: adjacent depths of the window (kd, kh, kw, channel of the group), the first one even.
   * With an odd number of channels in a group, pairs cross taps. With one channel, adjacent taps are
   * pairs. */
  INTACT_PAIRING_FLATTENED = 1
} intact_pairing;

/** The weights that can make VPMADDUBSW saturate. The certificate holds for all activations in the plan's
 * range at once, and is the same on every machine. Kernels without VNNI that add two products in int16 can be
 * wrong for these weights. Plans with INTACT_EXACT are never wrong.
 *
 * `pairing` says which depths of a column are pairs. Let w be a weight and [lo, hi] the range of activations,
 * both as the instruction sees them: s8 activations are shifted by +128, u8 weights by −128. A pair fails if
 * Σ max(lo·w, hi·w) > 32767 or Σ min(lo·w, hi·w) < −32768. Zero points do not matter. */
typedef struct intact_certificate {
  size_t struct_size;                 /**< sizeof(intact_certificate) */
  int32_t a_min;                      /**< smallest activation that the certificate holds for, in a_type */
  int32_t a_max;                      /**< largest activation that the certificate holds for, in a_type */
  int64_t pairs;                      /**< number of pairs; of a GEMM: ⌈k/2⌉·n */
  int64_t failing_pairs;              /**< pairs that fail; 0 proves that no input in the range saturates */
  int64_t worst_column;               /**< the column with most failing pairs */
  int64_t worst_column_failing_pairs; /**< failing pairs of that column */
  /** Smallest y that activations in the range can make, bias_s32 included. This bound covers every zero point
   * that a run may have. With INTACT_SATURATING too, it bounds the exact sums, not the clamped sums. Some
   * activations reach the bound. Possible exceptions: runtime_b, and convolutions of small inputs (for both
   * see intact_overflow); DYNAMIC quantizations that never make all values of their type. */
  int64_t accumulator_min;
  /** Largest y. Without INTACT_OVERFLOW_WRAPS, both bounds are within int32. With INTACT_OVERFLOW_WRAPS, they
   * are bounds of acc + bias_s32 before this sum wraps. If a bound is then beyond int32, sums can wrap to any
   * int32. */
  int64_t accumulator_max;
  int64_t panels; /**< ⌈n/16⌉ */
  /** The number of quads in the schedule of exact kernels without VNNI (for large m, or for usual_m), summed
   * over columns. A quad is four depths of a column. Without a schedule the three counts are 0. Items and
   * groups are estimates until a schedule is found: see intact_gemm_create(). */
  int64_t schedule_quads;
  int64_t schedule_items;  /**< items of the schedule: one for a quad, or two if its weights are large */
  int64_t schedule_groups; /**< groups of items that are added in int16 before one widening to int32 */
  int32_t pairing;         /**< the intact_pairing that the certificate holds for */
  int32_t reserved;        /**< 0 */
} intact_certificate;

/** The initial value of a struct that a call fills. */
#define INTACT_CERTIFICATE_INIT \
  { sizeof(intact_certificate), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, INTACT_PAIRING_WITHIN_TAP, 0 }

/** The certificate of 16 adjacent columns. */
typedef struct intact_panel_certificate {
  int64_t failing_pairs;    /**< pairs of these columns that can saturate */
  int64_t safe_depth_quads; /**< sums of up to this number of adjacent quads stay within int16 */
} intact_panel_certificate;

/** A pair that can saturate, with a witness: a problem of K = 2 that saturates. */
typedef struct intact_failing_pair {
  int64_t k;   /**< depths k and k + 1 … */
  int64_t n;   /**< … of column n */
  int32_t w0;  /**< weight of depth k as the instruction sees it, −128 to 127 */
  int32_t w1;  /**< weight of depth k + 1; 0 beyond the last depth */
  int32_t a0;  /**< activation of depth k as the instruction sees it, 0 to 255 */
  int32_t a1;  /**< activation of depth k + 1 */
  int32_t sum; /**< a0·w0 + a1·w1, outside int16 */
} intact_failing_pair;

/** The library's version, "MAJOR.MINOR.PATCH". Thread-safe; the string is constant. */
INTACT_API const char* intact_version(void);

/** Why this thread's last call failed; "" if it did not fail. Valid until the thread's next call. */
INTACT_API const char* intact_last_error(void);

/** The name of an intact_status in words, for example "invalid argument". Thread-safe; the string is
 * constant. */
INTACT_API const char* intact_status_name(int32_t status);

/** The name of an intact_isa: "portable", "avx2", "avx_vnni", "avx_vnni_int8", "avx512", "avx512_vnni",
 * "avx10_2", "amx_int8", or "any"; NULL for other values. Thread-safe; the string is constant. */
INTACT_API const char* intact_isa_name(int32_t isa);

/** 1 if the CPU, the operating system, INTACT_MAX_ISA and this process's rights permit `isa`, else 0.
 * Thread-safe. */
INTACT_API int32_t intact_isa_available(int32_t isa);

/** Packs `b` and chooses kernels. Kernels without VNNI may need a schedule of the weights. The search for it
 * can take longer than this call. The first intact_gemm_prepare(), intact_gemm_bind() or run whose kernel
 * needs the schedule finds it. Later calls use this schedule. `linear`: NULL for the defaults. `b` holds
 * linear->b_type elements; b[k,n] is element k·b_stride_k + n·b_stride_n. `b` must not be NULL unless
 * desc->runtime_b. On success `*gemm` owns copies of everything that it needs. Destroy the plan with
 * intact_gemm_destroy(). Thread-safe. Errors: INVALID_ARGUMENT, UNSUPPORTED, OVERFLOW, CODEGEN_FAILED,
 * OUT_OF_MEMORY; `*gemm` is then NULL. */
INTACT_API intact_status intact_gemm_create(const intact_gemm_desc* desc, const intact_linear_desc* linear,
                                            const void* b, intact_gemm** gemm);

/** Reports what a run with `args` needs, finds its schedules and generates its kernels. Reads no memory that
 * pointers in `args` point to. Each of these pointers may be NULL; the count of a NULL pointer must be 0.
 * The reported scratch is enough whether the run gives items by strides or by pointers. Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY, CODEGEN_FAILED. */
INTACT_API intact_status intact_gemm_prepare(const intact_gemm* gemm, const intact_gemm_args* args,
                                             intact_run_info* info);

/** Times the kernels that can run `m` rows, with the plan's own weights. If `m` exceeds 8192, kernels are
 * timed on 8192 rows. Kernels take turns on the calling thread until `milliseconds` are spent (0 to 1000000).
 * Each kernel runs at least four times. Later runs of `m` rows use the fastest kernel. Exception: if the cost
 * model's choice is hardly slower, later runs use that choice. Without tuning, the cost model chooses. All
 * kernels of a plan compute the same bytes, so tuning changes no result.
 *
 * The choice is saved with the plan. After loading, a CPU of the same vendor, family and model uses the
 * choice if the plan may use the kernel. Other CPUs ignore the choice and do not save it again. `info` may be
 * NULL. Not thread-safe: tune a plan before other threads use it. Tune before intact_gemm_prepare(), because
 * tuning may change the scratch that a run needs. Errors: INVALID_ARGUMENT, CODEGEN_FAILED, OUT_OF_MEMORY;
 * the plan is then unchanged. */
INTACT_API intact_status intact_gemm_tune(intact_gemm* gemm, int64_t m, double milliseconds,
                                          intact_tune_info* info);

/** Computes C by the arithmetic above. Thread-safe. With valid arguments and the scratch that
 * intact_gemm_prepare() reported, a run cannot fail and allocates nothing. Exception: a run creates its
 * helper threads the first time. Without intact_gemm_prepare() or scratch, a run fails only if memory runs
 * out. It then writes nothing. A run may find schedules and generate kernels. If a run with the same numbers
 * of rows, parts and threads was prepared or ran before, it does neither. If memory runs out for a new
 * kernel, slower kernels give the same bytes. For runs that repeat, see intact/bound.h. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_gemm_run(const intact_gemm* gemm, const intact_gemm_args* args);

/** Computes part `part` of `parts` of a run, on the calling thread. This call is for callers that own their
 * threads. Call it once for each part in [0, parts), from any threads. All calls have the same `args`, except
 * scratch. The parts together write the bytes of intact_gemm_run(). Thread-safe. Errors: those of
 * intact_gemm_run(). */
INTACT_API intact_status intact_gemm_run_part(const intact_gemm* gemm, const intact_gemm_args* args,
                                              int32_t part, int32_t parts);

/** Reports what the plan chose. Thread-safe. Errors: INVALID_ARGUMENT. */
INTACT_API intact_status intact_gemm_query(const intact_gemm* gemm, intact_gemm_info* info);

/** Reports which weights can make VPMADDUBSW saturate: see intact_certificate. Thread-safe. Errors:
 * INVALID_ARGUMENT; UNSUPPORTED with runtime_b. */
INTACT_API intact_status intact_gemm_certificate(const intact_gemm* gemm, intact_certificate* certificate);

/** Copies the certificates of panels [first, first + count) to `panels`. `panels` has room for `count`.
 * Thread-safe. A plan with usual_m unpacks its weights in each call. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY;
 * UNSUPPORTED with runtime_b. */
INTACT_API intact_status intact_gemm_panel_certificates(const intact_gemm* gemm, int64_t first, int64_t count,
                                                        intact_panel_certificate* panels);

/** Writes failing pairs to `pairs`, ordered by column, then depth: at most `count`, from number `first` on.
 * `*written` is the number written. Thread-safe. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY; UNSUPPORTED with
 * runtime_b. */
INTACT_API intact_status intact_gemm_failing_pairs(const intact_gemm* gemm, int64_t first, int64_t count,
                                                   intact_failing_pair* pairs, int64_t* written);

/** Writes the plan to `path`: weights in the canonical layout, arithmetic, the orders of its schedules, a
 * checksum. The file loads on any ISA. The file's bytes depend on the ISA and the caches of the machine,
 * because schedules do. The file appears whole or not at all. A new file has the permissions that the umask
 * leaves. A replaced file keeps its own permissions. Symbolic links are followed. Thread-safe. Errors:
 * INVALID_ARGUMENT (the file cannot be written; the message says why), OUT_OF_MEMORY; UNSUPPORTED with
 * runtime_b. */
INTACT_API intact_status intact_gemm_save(const intact_gemm* gemm, const char* path);

/** Writes the bytes of intact_gemm_save() to `data`. Before the call, `*size` is the room at `data`, in
 * bytes. The call sets `*size` to the number of bytes of the plan. With `data` NULL, or with too little
 * room, nothing is written to `data`. With NULL, the call computes only the size. It then copies no weights,
 * but finds the plan's schedules first. Writing the bytes can take as long as finding the schedules.
 * Thread-safe. Errors: INVALID_ARGUMENT (too little room), OUT_OF_MEMORY; UNSUPPORTED with
 * runtime_b. */
INTACT_API intact_status intact_gemm_save_memory(const intact_gemm* gemm, void* data, size_t* size);

/** Creates a plan from a file that intact_gemm_save() wrote, on this or another machine. The file is mapped,
 * not copied: it must not change while the plan lives. `max_isa`, an intact_isa, is a cap as in a descriptor.
 * Thread-safe. Errors: INVALID_ARGUMENT (the file cannot be read, is truncated or corrupted, is no plan, or
 * holds a convolution or grouped weights; the message says which), and those of intact_gemm_create(); `*gemm`
 * is then NULL. */
INTACT_API intact_status intact_gemm_load(const char* path, int32_t max_isa, intact_gemm** gemm);

/** As intact_gemm_load(), from `size` bytes at `data`, aligned to 64 bytes. These bytes must stay valid and
 * unchanged while the plan lives. Thread-safe. Errors: those of intact_gemm_load(). */
INTACT_API intact_status intact_gemm_load_memory(const void* data, size_t size, int32_t max_isa,
                                                 intact_gemm** gemm);

/** Destroys the plan. NULL is allowed. No other call may be using the plan. */
INTACT_API void intact_gemm_destroy(intact_gemm* gemm);

/** The most spatial dimensions that a convolution can have. */
#define INTACT_MAX_SPATIAL 3

/** Used in place of an extent of a convolution's input: the caller passes the extent to each run. */
#define INTACT_ANY_EXTENT (-1)

/** A convolution with constant weights: channels-last, with any stride, dilation, padding and groups.
 *
 *     input    [batch][D][H][W][input_channels]              NWC, NHWC or NDHWC, a_type or a_source_type
 *     weights  [output_channels][KD][KH][KW][input_channels/groups]   OWI, OHWI or ODHWI, b_type
 *     output   [batch][OD][OH][OW][output_channels]          c_type
 *
 *     O = (in + pad_begin + pad_end − dilation·(kernel − 1) − 1) / stride + 1   in each spatial dimension
 *
 * The convolution is a GEMM with a row for each output pixel and a column for each output channel. Depth k is
 * (tap, channel of the group). Tap (kd, kh, kw) of output (od, oh, ow) reads input pixel (od·stride −
 * pad_begin + kd·dilation, …). A tap outside the input contributes zero: padding has the value of the zero
 * point. Output channel n belongs to group n / (output_channels/groups) and reads the input channels of its
 * group.
 *
 * In INTACT_SATURATING mode without VNNI, `pairing` says which products are added in int16:
 *   - INTACT_PAIRING_WITHIN_TAP: adjacent channels of a tap, (c, c+1), c even within the group; an odd last
 *     channel is alone. Depthwise convolutions have no pairs.
 *   - INTACT_PAIRING_FLATTENED: depths (k, k+1), k even, with k as above; an odd last depth is alone. With an
 *     odd number of channels, pairs cross taps. A depthwise convolution pairs adjacent taps. A transposed
 *     convolution must then have one tap, or an even number of channels per group. Otherwise it is
 *     UNSUPPORTED.
 *
 * **Transposed convolution** ("deconvolution"; ConvTranspose of ONNX and PyTorch): the same tensors, but
 * input pixel i contributes with tap k to output o:
 *
 *     o = i·stride − pad_begin + k·dilation
 *     O = (in − 1)·stride − pad_begin − pad_end + dilation·(kernel − 1) + output_pad + 1
 *
 * So padding crops the output, and output_pad extends its end. As a GEMM: tap k of output o reads input pixel
 * (o + pad_begin − k·dilation) / stride. If this number is not an integer, or is outside the input, the tap
 * contributes zero. An output without any input pixel has the accumulator bias_s32. INTACT_SATURATING treats
 * every tap without an input pixel as padding. Weights have the layout above. PyTorch and ONNX have
 * [input_channels][output_channels/groups][KD][KH][KW]. Their weight [g·input_channels/groups +
 * c][n][kd][kh][kw] is intact's weight [g·output_channels/groups + n][kd][kh][kw][c]: input channel c and
 * output channel n of group g.
 *
 * Arrays of spatial values are outermost first: (W), (H, W) or (D, H, W). Entries beyond spatial_dims are not
 * read.
 *
 * Limits: every number, taps·input_channels/groups, and output pixels per image at most 2^31 − 1. The numbers
 * of weights, of output elements and of padded input elements at most 2^40. For a transposed convolution, the
 * output before cropping counts instead of the padded input. */
typedef struct intact_conv_desc {
  size_t struct_size;      /**< sizeof(intact_conv_desc) */
  int32_t spatial_dims;    /**< 1, 2 or 3 */
  int32_t transposed;      /**< 1: a transposed convolution; else 0 */
  int64_t input_channels;  /**< ≥ 1 */
  int64_t output_channels; /**< ≥ 1 */
  int64_t groups;          /**< ≥ 1, divides both numbers of channels; 0 = 1 */
  /** Extents of the input, ≥ 1; INTACT_ANY_EXTENT: the caller passes the extent to each run. */
  int64_t input[INTACT_MAX_SPATIAL];
  int64_t kernel[INTACT_MAX_SPATIAL];    /**< ≥ 1; 0 = 1 */
  int64_t stride[INTACT_MAX_SPATIAL];    /**< ≥ 1; 0 = 1 */
  int64_t dilation[INTACT_MAX_SPATIAL];  /**< distance of taps, ≥ 1; 0 = 1 */
  int64_t pad_begin[INTACT_MAX_SPATIAL]; /**< ≥ 0 */
  int64_t pad_end[INTACT_MAX_SPATIAL];   /**< ≥ 0 */
  /** ≥ 0 and less than the stride or the dilation; 0 unless `transposed`. */
  int64_t output_pad[INTACT_MAX_SPATIAL];
} intact_conv_desc;

/** Two spatial dimensions, kernel, stride and dilation 1, no padding, one group; set the channels and the
 * input. */
#define INTACT_CONV_DESC_INIT                                                    \
  {                                                                              \
    sizeof(intact_conv_desc), 2, 0, 0, 0, 0, {0}, {0}, {0}, {0}, {0}, {0}, { 0 } \
  }

/** The buffers of one run. No alignment is needed. Nothing beyond the channels of the pixels is read or
 * written. The output must not overlap the input or the residual. Exception: the residual may be the output
 * itself, with the same pointer, stride and element size. Limits: batch × output pixels at most 2^31 − 1;
 * with a dynamic quantization batch × pixels × channels of the input at most 2^40.
 *
 * If batch is 0, the run does nothing and returns INTACT_OK. It then needs no scratch and touches no memory.
 * So each pointer may be NULL. Extents, strides and threads are still checked. */
typedef struct intact_conv_args {
  size_t struct_size;   /**< sizeof(intact_conv_args) */
  int64_t batch;        /**< images, ≥ 0 */
  const void* a;        /**< the input: a_type, or a_source_type with a dynamic quantization */
  int64_t a_stride;     /**< elements between adjacent pixels of the input, input_channels to 2^40; 0 =
                         input_channels */
  void* c;              /**< the output */
  int64_t c_stride;     /**< elements between adjacent pixels of the output, output_channels to 2^40; 0 =
                         output_channels */
  const void* residual; /**< the output's shape, the plan's residual_type; NULL: the plan has no residual */
  int64_t residual_stride; /**< elements between adjacent pixels of the residual; 0 = output_channels */
  /** Threads of the run, ≥ 0; 0 = OpenMP's default, or fewer if there is little work. Not read by
   * intact_conv_run_part(). */
  int32_t threads;
  void* scratch;        /**< memory for the run to work in, as in intact_gemm_args */
  size_t scratch_bytes; /**< bytes of `scratch`; the size that intact_conv_prepare() reports serves all
                           threads */
  /** Extents of the input. Required where the descriptor has INTACT_ANY_EXTENT; elsewhere 0, or the
   * descriptor's extent. */
  int64_t input[INTACT_MAX_SPATIAL];
  /** Extents of the output that the caller expects. The run is refused if an extent differs; 0: not checked.
   * intact_conv_prepare() does not read it. */
  int64_t output[INTACT_MAX_SPATIAL];
  /** With INTACT_QUANTIZATION_TENSOR: one zero point of A, within the activation range; NULL: 0. */
  const int32_t* a_zero_points;
  const float* a_scales; /**< with INTACT_QUANTIZATION_TENSOR: one finite value ≥ 0; NULL with s32 output */
} intact_conv_args;

/** One image, on OpenMP's default number of threads; set the buffers. */
#define INTACT_CONV_ARGS_INIT \
  { sizeof(intact_conv_args), 1, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0, {0}, {0}, NULL, NULL }

/** A plan of a convolution: packed weights and kernels. See intact_conv_create(). */
typedef struct intact_conv intact_conv;

/** What a plan chose. Strings live as long as the plan. */
typedef struct intact_conv_info {
  size_t struct_size;                 /**< sizeof(intact_conv_info) */
  int32_t spatial_dims;               /**< as in the descriptor */
  int32_t a_type;                     /**< as in the descriptor */
  int32_t b_type;                     /**< as in the descriptor */
  int32_t c_type;                     /**< as in the descriptor */
  int32_t residual_type;              /**< as in the descriptor */
  int32_t isa;                        /**< the best intact_isa that the plan may use */
  int32_t mode;                       /**< as in the descriptor */
  int64_t input_channels;             /**< as in the descriptor */
  int64_t output_channels;            /**< as in the descriptor */
  int64_t input[INTACT_MAX_SPATIAL];  /**< as in the descriptor; 1 beyond spatial_dims */
  int64_t output[INTACT_MAX_SPATIAL]; /**< extents of the output; INTACT_ANY_EXTENT if they depend on the
                                         run */
  const char* kernel;                 /**< name of the main kernel, as in logs, dumps and perf */
  /** Memory that the packed weights occupy now: see intact_gemm_info. With INTACT_ANY_EXTENT: only the memory
   * that all sizes share. intact_conv_prepare() keeps more memory for each size. */
  int64_t packed_bytes;
  /** Smallest y that activations in the activation range can make, bias_s32 included: see
   * intact_certificate. */
  int64_t accumulator_min;
  int64_t accumulator_max; /**< largest y; within int32 unless sums wrap: see intact_certificate */
  int32_t a_quantization;  /**< as in the descriptor */
  int32_t a_source_type;   /**< as in the descriptor */
} intact_conv_info;

/** The initial value of a struct that a call fills. */
#define INTACT_CONV_INFO_INIT                                                                        \
  {                                                                                                  \
    sizeof(intact_conv_info), 2, INTACT_U8, INTACT_S8, INTACT_S32, INTACT_TYPE_NONE, INTACT_ISA_ANY, \
        INTACT_EXACT, 0, 0, {0}, {0}, NULL, 0, 0, 0, INTACT_QUANTIZATION_STATIC, INTACT_TYPE_NONE    \
  }

/** Packs `weights`, dense in the layout of intact_conv_desc, and chooses kernels. `linear`: NULL for the
 * defaults. On success `*conv` owns copies of everything that it needs. Destroy the plan with
 * intact_conv_destroy(). Thread-safe. Errors: INVALID_ARGUMENT, UNSUPPORTED, OVERFLOW, CODEGEN_FAILED,
 * OUT_OF_MEMORY; `*conv` is then NULL. */
INTACT_API intact_status intact_conv_create(const intact_conv_desc* desc, const intact_linear_desc* linear,
                                            const void* weights, intact_conv** conv);

/** Reports what a run with `args` needs, and prepares what depends on its batch and extents. Pointers in
 * `args` are not read. A plan keeps the preparations for the last 64 combinations of batch and extents. If
 * the descriptor gives all extents, intact_conv_create() prepares a batch of one, except for its schedules:
 * see intact_gemm_create(). Thread-safe. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY, CODEGEN_FAILED; with INTACT_ANY_EXTENT also OVERFLOW, UNSUPPORTED. */
INTACT_API intact_status intact_conv_prepare(const intact_conv* conv, const intact_conv_args* args,
                                             intact_run_info* info);

/** Times the ways to compute a convolution, as intact_gemm_tune() times kernels. `input`: the extents of the
 * input, as in intact_conv_args; NULL: the extents of the descriptor. Ways differ in how the input is read,
 * which groups of channels are computed together, and which kernels run. A depthwise convolution has one way.
 * Later runs of inputs of these extents, of any batch, use the fastest way. Exception: if the cost model's
 * choice is hardly slower, later runs use that choice. Each way runs at least four times, on a batch of one.
 * A way that takes twice as long as the fastest is then dropped. All ways compute the same bytes. Choices are
 * saved with the plan, see intact_gemm_tune(). `info` may be NULL. Not thread-safe: tune a plan before other
 * threads use it. Tune before intact_conv_prepare(), because tuning may change the scratch that a run needs.
 * Errors: those of intact_conv_prepare(); the plan is then unchanged. */
INTACT_API intact_status intact_conv_tune(intact_conv* conv, const int64_t* input, double milliseconds,
                                          intact_tune_info* info);

/** Computes the output by the arithmetic above. Thread-safe. With valid arguments and the scratch that
 * intact_conv_prepare() reported, a prepared run cannot fail and allocates nothing. Exception: a run creates
 * its helper threads the first time. A run that is not prepared prepares first, and fails only before
 * anything is written. A run may find schedules and generate kernels. If a run with the same numbers of
 * threads and parts was prepared or ran before, it does neither: see intact_gemm_run(). Errors: those of
 * intact_conv_prepare(). */
INTACT_API intact_status intact_conv_run(const intact_conv* conv, const intact_conv_args* args);

/** Computes part `part` of `parts` of a run: see intact_gemm_run_part(). Thread-safe. Errors: those of
 * intact_conv_run(). */
INTACT_API intact_status intact_conv_run_part(const intact_conv* conv, const intact_conv_args* args,
                                              int32_t part, int32_t parts);

/** Reports what the plan chose. Thread-safe. Errors: INVALID_ARGUMENT. */
INTACT_API intact_status intact_conv_query(const intact_conv* conv, intact_conv_info* info);

/** Reports which weights can make VPMADDUBSW saturate in the pairs of `pairing`, an intact_pairing: see
 * intact_certificate. Columns are output channels. Each call reads all packed weights. Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_certificate(const intact_conv* conv, int32_t pairing,
                                                 intact_certificate* certificate);

/** A pair of a convolution's weights that can saturate, with a witness: see intact_failing_pair. */
typedef struct intact_conv_failing_pair {
  int64_t output_channel;          /**< output channel */
  int64_t tap[INTACT_MAX_SPATIAL]; /**< place in the kernel, outermost first; 0 beyond spatial_dims */
  /** Channel c of the group. The pair is this channel and the next channel. With INTACT_PAIRING_FLATTENED,
   * the last channel is followed by channel 0 of the next tap. */
  int64_t channel;
  int32_t w0;  /**< weight of the first channel as the instruction sees it, −128 to 127 */
  int32_t w1;  /**< weight of the second channel; 0 if there is none */
  int32_t a0;  /**< activation of the first channel as the instruction sees it, 0 to 255 */
  int32_t a1;  /**< activation of the second channel */
  int32_t sum; /**< a0·w0 + a1·w1, outside int16 */
} intact_conv_failing_pair;

/** Writes the failing pairs with `pairing`, an intact_pairing, to `pairs`. The pairs are ordered by output
 * channel, then tap, then channel. Writes at most `count` pairs, from number `first` on. `*written` is the
 * number written. Each call reads all packed weights. Thread-safe. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_failing_pairs(const intact_conv* conv, int32_t pairing, int64_t first,
                                                   int64_t count, intact_conv_failing_pair* pairs,
                                                   int64_t* written);

/** Writes the plan to `path`, with its geometry: see intact_gemm_save(). Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_save(const intact_conv* conv, const char* path);

/** Writes the bytes of intact_conv_save() to memory: see intact_gemm_save_memory(). Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_save_memory(const intact_conv* conv, void* data, size_t* size);

/** Creates a plan from a file that intact_conv_save() wrote: see intact_gemm_load(). The file is mapped: it
 * must not change while the plan lives. Thread-safe. Errors: those of intact_gemm_load(), except that a
 * GEMM's file is refused; `*conv` is then NULL. */
INTACT_API intact_status intact_conv_load(const char* path, int32_t max_isa, intact_conv** conv);

/** As intact_conv_load(), from `size` bytes at `data`, of any alignment. These bytes are not needed
 * afterwards. Thread-safe. Errors: those of intact_conv_load(). */
INTACT_API intact_status intact_conv_load_memory(const void* data, size_t size, int32_t max_isa,
                                                 intact_conv** conv);

/** Destroys the plan. NULL is allowed. No other call may be using the plan. */
INTACT_API void intact_conv_destroy(intact_conv* conv);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_INTACT_H_ */
