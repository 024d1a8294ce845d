/** @file
 * intact: activations of 8 bits times weights of 4 or 8 bits with a scale for each group of depths. Large
 * language models store their weights in this way. This header continues intact/intact.h: statuses, structs
 * that begin with their size, threads, scratch and errors work as described there.
 *
 * ## Arithmetic
 * Activations A (M×K), weights B (K×N), output C (M×N). The depths 0 … K−1 are cut into groups of `group`
 * depths. The last group may be shorter. With g as the number of a group:
 *
 *     acc_g = Σ_{k in g} (a[m,k] − za)·(b[k,n] − zb[n,g])         exact integer arithmetic
 *     f     = +0, then for g = 0, 1, …: f = fma(float(acc_g), s_g, f)              one float32 rounding
 *     f     = f·sa[m]                                              only with INTACT_GRANULARITY_ROWS
 *     f     = f + bias_f32[n]                                      only with a bias; float32 rounding
 *     f     = activation(f)                                        an f32 output is f
 *
 * float() rounds to nearest even. For groups of at most 256 depths, float(acc_g) is exact. The order of the
 * groups is part of the definition. So C has the same bytes on every ISA, for every number of threads and
 * however M is split. The scale s_g and the zero point za depend on the granularity of A's scales:
 *
 *     INTACT_GRANULARITY_ROWS:    s_g = sb[n,g]                    za = za[m]
 *     INTACT_GRANULARITY_GROUPS:  s_g = sa[m,g]·sb[n,g], rounded to float32        za = za[m,g]
 *
 * With minimums, a weight is sb·b + minimum, and f starts from the minimums mb[n,g] instead of +0:
 *
 *     sum_g = Σ_{k in g} (a[m,k] − za)                             exact integer arithmetic
 *     f     = +0, then for g = 0, 1, …: f = fma(u_g, mb[n,g], f)   one float32 rounding
 *
 * Here u_g is float(sum_g). With INTACT_GRANULARITY_GROUPS, u_g is sa[m,g]·float(sum_g), rounded to float32.
 *
 * sb is the float32 that equals the stored f32, f16 or bf16 scale. A bf16 or f16 output is f rounded to
 * nearest even. An f16 output keeps subnormal numbers, and is infinite from 65520 on. If f is a NaN before
 * the activation (an infinity times 0, or a difference of infinities), −∞ replaces f.
 *
 * If A has a float type (a_source_type), each run quantizes A by the formulas of intact_quantization: u8 with
 * a zero point, or s8 without one. Each row, or each group of a row, has its own scale and zero point. If a
 * row or one of its groups has no scale, all outputs of the row are NaNs (0x7FC00000; bfloat16: 0x7FC0;
 * float16: 0x7E00).
 *
 * ## Experts
 * A plan of `experts` > 1 has a matrix B, scales, zero points and a bias for each expert (mixture of
 * experts). The rows of A are sorted by expert: a run passes the number of rows of each expert. A row of C
 * has the bytes that a plan of the row's expert alone computes. A run reads only the weights of experts that
 * have rows.
 *
 * ## Common formats of weights
 *   - ONNX MatMulNBits with 4 bits: b_type U4, group = block_size, b_stride_n = ⌈K/group⌉·group/2. Zero
 *     points must be unpacked to a byte each. Without zero points, b_zero_points is NULL.
 *   - GGUF Q8_0: after removing the scales from the blocks, b_type S8, group 32, f16 scales.
 *   - GGUF Q4_0: b_type U4, group 32, f16 scales, no zero points; the nibbles of a block must be reordered,
 *     because its high nibbles have depths 16 to 31.
 */
#ifndef INTACT_GROUPED_H_
#define INTACT_GROUPED_H_

#include <intact/intact.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which elements of A share a scale and a zero point. */
typedef enum intact_granularity {
  INTACT_GRANULARITY_ROWS = 0,  /**< the elements of a row */
  INTACT_GRANULARITY_GROUPS = 1 /**< the elements of a row that belong to one group of depths */
} intact_granularity;

/** The weights and the arithmetic. Pointers are read only during creation.
 *
 * B lies in memory column by column. With S8 and U8, b[k,n] is the byte b[n·b_stride_n + k·b_stride_k]. With
 * S4 and U4, two depths share a byte: b[k,n] is in byte b[n·b_stride_n + ⌊k/2⌋], in the low four bits if k is
 * even, else in the high four bits. The high bits of the last byte of a column are not read if K is odd.
 *
 * Limits: n and k at most 2^31 − 1, experts·n·k at most 2^40. A plan is refused (INTACT_OVERFLOW) if
 * activations exist for which a sum acc_g is not an int32. This needs a group of more than 33025 depths. */
typedef struct intact_grouped_desc {
  size_t struct_size;    /**< sizeof(intact_grouped_desc) */
  int64_t n;             /**< columns of B and C, ≥ 1 */
  int64_t k;             /**< depth, ≥ 1 */
  int64_t group;         /**< depths of a group: 16, 32, 64, 128 or 256; 0: all depths are one group */
  int32_t a_source_type; /**< INTACT_F32, BF16 or F16: each run quantizes A. INTACT_TYPE_NONE: A is of a_type,
                              and each run gives a_scales and a_zero_points */
  int32_t a_type;        /**< INTACT_U8 or INTACT_S8 */
  int32_t a_granularity; /**< an intact_granularity */
  int32_t b_type;        /**< INTACT_S8, INTACT_U8, INTACT_S4 or INTACT_U4 */
  /** Bytes from a column to the next, at most 2^40; 0: ⌈k/2⌉ for 4 bits, else k. With 4 bits at least ⌈k/2⌉.
   * With 8 bits the two strides must give each element of a matrix its own place, as in intact_gemm_desc. */
  int64_t b_stride_n;
  int64_t b_stride_k; /**< bytes from a depth to the next, at most 2^40; 0: 1. Must be 0 for 4 bits */
  /** Elements of scale_type, finite, of either sign. The scale of column n and group g is element
   * n·scale_stride_n + g·scale_stride_g. Elements may share a place. */
  const void* b_scales;
  /** A byte for each column and group, laid out as b_scales: int8_t for S8 and S4, uint8_t for U8 and U4,
   * within the range of b_type. NULL: every zero point is 0 for S8 and S4, 128 for U8, 8 for U4. */
  const void* b_zero_points;
  int64_t scale_stride_n; /**< elements from a column to the next, at most 2^40; 0: the number of groups */
  int64_t scale_stride_g; /**< elements from a group to the next, at most 2^40; 0: 1 */
  int32_t scale_type;     /**< of b_scales: INTACT_F32, BF16 or F16 */
  int32_t c_type;         /**< INTACT_F32, BF16 or F16 */
  const float* bias_f32;  /**< n finite values, or NULL */
  int32_t activation;     /**< an intact_activation */
  float clamp_min;        /**< for INTACT_ACTIVATION_CLAMP: not NaN, at most clamp_max */
  float clamp_max;        /**< for INTACT_ACTIVATION_CLAMP: not NaN; the bounds must not both be 0 */
  int32_t max_isa;        /**< an intact_isa, the cap; INTACT_ISA_ANY: all that the machine offers */
  int64_t experts;        /**< matrices B, 1 to 65536; 1 if the struct ends before this field */
  /** Bytes from an expert's B to the next, at most 2^40. 0: the larger of n·b_stride_n and k·b_stride_k; for
   * 4 bits n·b_stride_n. In these products, a stride of 0 counts as the value that it stands for. Experts may
   * share memory. */
  int64_t b_stride_expert;
  /** Elements from an expert's scales and zero points to the next, at most 2^40. 0: the larger of
   * n·scale_stride_n and groups·scale_stride_g. */
  int64_t scale_stride_expert;
  int64_t bias_stride_expert; /**< elements from an expert's bias to the next, at most 2^40; 0: n */
  /** A finite value for each column and group, laid out as b_scales. NULL: there are no minimums. With
   * minimums, b_zero_points must be NULL, and every zero point is 0. */
  const float* b_minimums;
} intact_grouped_desc;

/** f32 activations quantized to s8 row by row, u4 weights in groups of 32 with f16 scales, f32 outputs; set
 * n, k and b_scales. */
#define INTACT_GROUPED_DESC_INIT                                                                            \
  {                                                                                                         \
    sizeof(intact_grouped_desc), 0, 0, 32, INTACT_F32, INTACT_S8, INTACT_GRANULARITY_ROWS, INTACT_U4, 0, 0, \
        NULL, NULL, 0, 0, INTACT_F16, INTACT_F32, NULL, INTACT_ACTIVATION_NONE, 0.0f, 0.0f, INTACT_ISA_ANY, \
        1, 0, 0, 0, NULL                                                                                    \
  }

/** The buffers of one run, row-major. No alignment is needed. Nothing beyond the m·k elements of A and the
 * m·n elements of C is read or written. C must not overlap A.
 *
 * A batch is `batch` items of m rows each. Item i of A begins at a + i·a_batch_stride elements. C works the
 * same way. Items of A may share memory. Items of C must not share memory. A run checks that the C of an item
 * does not overlap the A of this item. The run does not compare different items. Limit: m·batch at most 2^31
 * − 1.
 *
 * If m or batch is 0, the run does nothing and returns INTACT_OK. It then needs no scratch and touches no
 * memory.
 */
typedef struct intact_grouped_args {
  size_t struct_size; /**< sizeof(intact_grouped_args) */
  int64_t m;          /**< rows, 0 to 2^31 − 1 */
  const void* a;      /**< m×k elements of a_source_type, or of a_type without one */
  int64_t a_stride;   /**< elements between rows of A, k to 2^40; 0 = k */
  void* c;            /**< m×n elements of c_type */
  int64_t c_stride;   /**< elements between rows of C, n to 2^40; 0 = n */
  /** With a_source_type: NULL. Otherwise: finite values ≥ 0, dense, row by row and item after item. There is
   * one for each row, or with INTACT_GRANULARITY_GROUPS one for each group of each row. */
  const float* a_scales;
  /** Without a_source_type: zero points within the range of a_type, one for each of a_scales; NULL: all are
   * 0. With a_source_type: NULL. */
  const int32_t* a_zero_points;
  int32_t threads; /**< threads of the run, ≥ 0; 0 = OpenMP's default, or fewer if there is little work. Not
                         read by intact_grouped_run_part() */
  int32_t reserved;     /**< 0 */
  void* scratch;        /**< memory for the run to work in, as in intact_gemm_args */
  size_t scratch_bytes; /**< bytes of `scratch`; 0 with NULL */
  /** With several experts: the number of rows of each expert, 0 or more. Their sum is m. The first rows of A
   * and C belong to expert 0, the next to expert 1. With one expert: NULL, or one number that equals m. */
  const int64_t* expert_rows;
  int64_t batch; /**< number of items, ≥ 0; with several experts 1; 1 if the struct ends before this field */
  /** Elements from an item of A to the next, 1 to 2^40; 0 = m·a_stride. So items cannot all have one A. */
  int64_t a_batch_stride;
  int64_t c_batch_stride; /**< elements from an item of C to the next, at most 2^40; 0 = m·c_stride */
} intact_grouped_args;

/** Defaults; set m and the buffers. */
#define INTACT_GROUPED_ARGS_INIT \
  { sizeof(intact_grouped_args), 0, NULL, 0, NULL, 0, NULL, NULL, 0, 0, NULL, 0, NULL, 1, 0, 0 }

/** A plan: packed weights and kernels. See intact_grouped_create(). */
typedef struct intact_grouped intact_grouped;

/** What a plan chose. Strings live as long as the plan. */
typedef struct intact_grouped_info {
  size_t struct_size;    /**< sizeof(intact_grouped_info) */
  int64_t n;             /**< as in the descriptor */
  int64_t k;             /**< as in the descriptor */
  int64_t group;         /**< as in the descriptor */
  int64_t groups;        /**< number of groups of a column */
  int32_t a_source_type; /**< as in the descriptor */
  int32_t a_type;        /**< as in the descriptor */
  int32_t a_granularity; /**< as in the descriptor */
  int32_t b_type;        /**< as in the descriptor */
  int32_t scale_type;    /**< as in the descriptor */
  int32_t c_type;        /**< as in the descriptor */
  int32_t isa;           /**< the best intact_isa that the plan may use */
  int32_t reserved;      /**< 0 */
  const char* kernel;    /**< name of the kernel */
  int64_t packed_bytes;  /**< memory that the packed weights occupy, with scales and zero points */
  int64_t experts;       /**< as in the descriptor */
} intact_grouped_info;

/** The initial value of a struct that a call fills. */
#define INTACT_GROUPED_INFO_INIT \
  { sizeof(intact_grouped_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0 }

/** The pairs of weights that could make VPMADDUBSW saturate in a kernel that adds two products in int16. The
 * kernels of intact never saturate. The certificate is about kernels of other libraries. The certificate
 * holds for all activations at once, and is the same on every machine.
 *
 * A pair is two depths (k, k+1) of a column, with k even. Both depths belong to one group. An odd last depth
 * is alone. Let a be an activation (0 to 255) and w a weight, both as the instruction sees them: s8
 * activations are shifted by +128, u8 weights by −128, and weights of 4 bits are 0 to 15. The largest sum of
 * a pair is the value of a0·w0 + a1·w1 that is farthest from 0. A pair fails if its largest sum is not an
 * int16. Pairs of 4-bit weights never fail: their sums are at most 2·255·15 = 7650. Scales and zero points do
 * not matter.
 *
 * Columns of all experts are numbered in one order: column j of expert e has the number e·n + j. A certificate
 * is about all experts.
 *
 * With activations from 0 to safe_activation no pair fails. safe_activation is at least 128 for all weights.
 * So kernels of 7-bit activations are exact. Kernels that multiply |a| by the weight with a's sign are exact
 * too, unless a weight is −128 (VPSIGNB negates −128 to −128). Kernels that multiply |w| by the activation
 * with w's sign are exact for activations −127 … 127. */
typedef struct intact_pairs_certificate {
  size_t struct_size;                /**< sizeof(intact_pairs_certificate) */
  int64_t pairs;                     /**< number of pairs: ⌈k/2⌉·n·experts */
  int64_t failing_pairs;             /**< pairs that fail; 0 proves that no activations saturate */
  int64_t failing_groups;            /**< groups of all columns that have a failing pair */
  int64_t worst_column;              /**< column of the group with the most failing pairs */
  int64_t worst_group;               /**< the number of this group */
  int64_t worst_group_failing_pairs; /**< failing pairs of this group */
  int64_t largest_sum_n;             /**< column of the pair with the largest sum */
  int64_t largest_sum_k;             /**< first depth of this pair */
  int32_t largest_sum;               /**< the largest sum of all pairs */
  int32_t safe_activation;           /**< the largest a with which no pair fails, 128 to 255 */
} intact_pairs_certificate;

/** The initial value of a struct that a call fills. */
#define INTACT_PAIRS_CERTIFICATE_INIT \
  { sizeof(intact_pairs_certificate), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** The certificate of one group of a column. */
typedef struct intact_group_certificate {
  int64_t failing_pairs;   /**< pairs of this group that fail */
  int64_t safe_activation; /**< the largest a with which no pair of this group fails, 128 to 255 */
} intact_group_certificate;

/** Packs `b` and chooses kernels. On success `*grouped` owns copies of everything that it needs. Destroy the
 * plan with intact_grouped_destroy(). Thread-safe. Errors: INVALID_ARGUMENT, OVERFLOW, CODEGEN_FAILED,
 * OUT_OF_MEMORY; `*grouped` is then NULL. */
INTACT_API intact_status intact_grouped_create(const intact_grouped_desc* desc, const void* b,
                                               intact_grouped** grouped);

/** Reports what a run with `args` needs. Pointers in `args` are not read. Thread-safe. Errors:
 * INVALID_ARGUMENT. */
INTACT_API intact_status intact_grouped_prepare(const intact_grouped* grouped,
                                                const intact_grouped_args* args, intact_run_info* info);

/** Computes C by the arithmetic above. Thread-safe. With valid arguments and the scratch that
 * intact_grouped_prepare() reported, a run cannot fail and allocates nothing. Exception: a run creates its
 * helper threads the first time. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY; nothing is then written. */
INTACT_API intact_status intact_grouped_run(const intact_grouped* grouped, const intact_grouped_args* args);

/** Computes part `part` of `parts` of a run: see intact_gemm_run_part(). Thread-safe. Errors: those of
 * intact_grouped_run(). */
INTACT_API intact_status intact_grouped_run_part(const intact_grouped* grouped,
                                                 const intact_grouped_args* args, int32_t part,
                                                 int32_t parts);

/** Reports what the plan chose. Thread-safe. Errors: INVALID_ARGUMENT. */
INTACT_API intact_status intact_grouped_query(const intact_grouped* grouped, intact_grouped_info* info);

/** Reports which weights can saturate in kernels of other libraries: see intact_pairs_certificate. This call
 * and the next two calls unpack the weights. Thread-safe. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_grouped_certificate(const intact_grouped* grouped,
                                                    intact_pairs_certificate* certificate);

/** Copies the certificates of the groups of columns [first, first + count) to `groups`, column by column.
 * `groups` has room for `count` times the number of groups of a column. Thread-safe. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
INTACT_API intact_status intact_grouped_group_certificates(const intact_grouped* grouped, int64_t first,
                                                           int64_t count, intact_group_certificate* groups);

/** Writes failing pairs to `pairs`, ordered by column, then depth: at most `count`, from number `first` on.
 * `n` of a pair is the number of its column. `*written` is the number written. Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_grouped_failing_pairs(const intact_grouped* grouped, int64_t first,
                                                      int64_t count, intact_failing_pair* pairs,
                                                      int64_t* written);

/** Writes the plan to `path`: descriptor, packed weights, checksum. The file loads on any ISA: see
 * intact_gemm_save(). Thread-safe. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_grouped_save(const intact_grouped* grouped, const char* path);

/** Writes the bytes of intact_grouped_save() to memory: see intact_gemm_save_memory(). Thread-safe. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_grouped_save_memory(const intact_grouped* grouped, void* data, size_t* size);

/** Creates a plan from a file that intact_grouped_save() wrote. The file is mapped: it must not change while
 * the plan lives. If this machine packs weights as the saving machine did, the plan uses the weights in the
 * file. Otherwise the plan packs the weights again. `max_isa`, an intact_isa, is a cap as in a descriptor.
 * Thread-safe. Errors: INVALID_ARGUMENT (the file cannot be read, is truncated or corrupted, or holds no
 * grouped weights; the message says which), and those of intact_grouped_create(); `*grouped` is then NULL. */
INTACT_API intact_status intact_grouped_load(const char* path, int32_t max_isa, intact_grouped** grouped);

/** As intact_grouped_load(), from `size` bytes at `data`, of any alignment. These bytes are not needed
 * afterwards. Thread-safe. Errors: those of intact_grouped_load(). */
INTACT_API intact_status intact_grouped_load_memory(const void* data, size_t size, int32_t max_isa,
                                                    intact_grouped** grouped);

/** Destroys the plan. NULL is allowed. No other call may be using the plan. */
INTACT_API void intact_grouped_destroy(intact_grouped* grouped);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_GROUPED_H_ */
