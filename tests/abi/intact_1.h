/* Frozen: intact.h as programs of its first version were compiled against it. This file is never edited. */
/* intact: exact int8 GEMM and convolution for x86-64, the same bytes on every CPU.
 *
 * C ABI of the library. Every object is an opaque handle, every call that can fail returns a status, and
 * intact_last_error() then names the argument and its value.
 *
 * Every struct begins with its own size; fill it with the matching *_INIT macro. Structs grow at their end
 * only, and any size from the first version's on is accepted, so a program and a library of different
 * versions go together:
 *   - a field that the caller's struct is too short to have takes its default;
 *   - bytes that the library does not know, because the caller's struct is longer, must be zero: a newer
 *     program asks for nothing that an older library would overlook;
 *   - a struct that the library fills is filled as far as it reaches, and zero beyond what the library knows.
 * Enumerations are int32_t in structs and arguments, with the named constants below.
 *
 * The contract, for activations A (M×K), weights B (K×N) and output C (M×N):
 *
 *   acc[m,n] = Σ_k (a[m,k] − a_zero_point)·(b[k,n] − b_zero_points[n])    in exact integer arithmetic
 *   y        = acc + bias_s32[n]                               int32; this is an s32 output
 *   f        = float(y) · scales[n]  (+ bias_f32[n])           separate float32 roundings, no FMA
 *  (f        = f + float(r[m,n] − residual_zero_point) · residual_scale)       likewise; r the residual, M×N
 *   f        = activation(f)                                   an f32 output
 *   c        = clamp(rne(f) + c_zero_point, type's range)      u8 and s8 outputs; rne = to nearest even
 *
 * A NaN can only come of a residual: of one of its own, or of infinities that cancel. It counts as −∞.
 *
 * A convolution is the same with a sum over taps and input channels, see intact_conv_desc.
 *
 * The result does not depend on the ISA, the number of threads or on how M is split. Only a plan created
 * with INTACT_SATURATING may differ: see intact_mode.
 *
 * Thread safety: plans are immutable; any number of threads may run and query the same plan at once. The
 * error message is per thread. Nothing throws, aborts, or prints unless INTACT_VERBOSE is set.
 *
 * Environment: INTACT_MAX_ISA (cap, names as intact_isa_name() gives them), INTACT_VERBOSE=1 (a line per
 * plan and run on stderr), INTACT_JIT_DUMP=DIR (listing and bytes of each generated kernel),
 * INTACT_PERF_MAP=1 (symbols for perf).
 */
#ifndef INTACT_TESTS_ABI_INTACT_1_H_
#define INTACT_TESTS_ABI_INTACT_1_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "intact targets the System V x86-64 ABI (Linux)"
#endif
#define INTACT_API __attribute__((visibility("default")))

#define INTACT_VERSION_MAJOR 0
#define INTACT_VERSION_MINOR 1
#define INTACT_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef enum intact_status {
  INTACT_OK = 0,
  INTACT_INVALID_ARGUMENT = 1, /**< an argument is wrong; the message names it and its value */
  INTACT_UNSUPPORTED = 2,      /**< valid, but not offered here (no permitted ISA, type combination) */
  INTACT_OVERFLOW = 3,         /**< some admissible activation could leave int32 */
  INTACT_CODEGEN_FAILED = 4,   /**< a kernel could not be generated: a bug of the library */
  INTACT_OUT_OF_MEMORY = 5
} intact_status;

typedef enum intact_type {
  INTACT_TYPE_NONE = 0, /**< no tensor; only where a field says that it may be */
  INTACT_U8 = 1,
  INTACT_S8 = 2,
  INTACT_S32 = 3,
  INTACT_F32 = 4
} intact_type;

typedef enum intact_mode {
  /** The contract above, bit for bit, on every ISA. The default. */
  INTACT_EXACT = 0,
  /** What FBGEMM and oneDNN compute: without VNNI, the products of two adjacent depths (k, k+1), k even, are
   * added in int16 with saturation (VPMADDUBSW); s8 activations are shifted by +128 first, and u8 weights by
   * −128. Equal to INTACT_EXACT on VNNI and AMX. Exists to be studied and compared with; nothing chooses it
   * silently. */
  INTACT_SATURATING = 1
} intact_mode;

/** An ISA as a cap names the machine it comes from: a plan capped at AVX512 behaves as on a machine with
 * AVX-512 and no VNNI. A cap only removes. */
typedef enum intact_isa {
  INTACT_ISA_ANY = 0,
  INTACT_ISA_AVX2 = 1,
  INTACT_ISA_AVX_VNNI = 2,
  INTACT_ISA_AVX512 = 3, /**< F, BW, DQ, VL */
  INTACT_ISA_AVX512_VNNI = 4,
  INTACT_ISA_AMX_INT8 = 5
} intact_isa;

/** What a run does about activations above a declared a_max. */
typedef enum intact_range_check {
  /** Looks at every activation while packing A; rows beyond the declared range run without relying on it. The
   * result is exact whatever the activations. The default. */
  INTACT_RANGE_CHECKED = 0,
  /** The caller guarantees the range. Activations beyond it void the proof: results may then be wrong. */
  INTACT_RANGE_UNCHECKED = 1
} intact_range_check;

typedef enum intact_activation {
  INTACT_ACTIVATION_NONE = 0,
  INTACT_ACTIVATION_RELU = 1, /**< max(f, 0) */
  INTACT_ACTIVATION_CLAMP = 2 /**< min(max(f, clamp_min), clamp_max) */
} intact_activation;

/** The arithmetic that a GEMM and a convolution share: types, zero points, scales, bias, activation,
 * residual, declared range, mode, cap. "Columns" are the columns of B and C, or a convolution's output
 * channels; n is their number. Pointers are read during creation only. */
typedef struct intact_linear_desc {
  size_t struct_size;           /**< sizeof(intact_linear_desc) */
  int32_t a_type;               /**< INTACT_U8 or INTACT_S8 */
  int32_t b_type;               /**< INTACT_S8 or INTACT_U8 */
  int32_t c_type;               /**< INTACT_S32, INTACT_F32, INTACT_U8 or INTACT_S8 */
  int32_t mode;                 /**< an intact_mode: INTACT_EXACT unless asked for by name */
  int32_t max_isa;              /**< an intact_isa, the cap; INTACT_ISA_ANY = all that the machine offers */
  int32_t a_zero_point;         /**< within the declared range of activations */
  int32_t c_zero_point;         /**< within c_type's range; 0 for s32 and f32 outputs */
  int32_t activation;           /**< an intact_activation; must be NONE for s32 output */
  const int32_t* b_zero_points; /**< b_zero_point_count values within b_type's range; NULL: all are 0 */
  int64_t b_zero_point_count;   /**< 1 (per tensor) or n (per column); 0 with NULL. Zero points other than
                                     0 (s8) and 128 (u8) cost a sum over each row of A. */
  const int32_t* bias_s32;      /**< n values in the accumulator's scale, or NULL */
  const float* bias_f32;        /**< n finite values in the output's scale, or NULL; not with s32 output */
  const float* scales;          /**< scale_count finite values > 0; NULL (with count 0) for s32 output only */
  int64_t scale_count;          /**< 1 (per tensor) or n (per channel) */
  float clamp_min, clamp_max;   /**< for INTACT_ACTIVATION_CLAMP: not NaN, min ≤ max */
  int32_t a_min, a_max; /**< declared range of activations; both 0 = all of a_type. A smaller a_max (for
                             s8 too) makes exact kernels without VNNI faster, and the certificate sharper. */
  int32_t range_check;  /**< an intact_range_check, of a declared range */
  /** The type of a tensor shaped as C that every run adds to f, see the contract: INTACT_U8, INTACT_S8 or
   * INTACT_F32; INTACT_TYPE_NONE: there is none. Not with s32 output. */
  int32_t residual_type;
  float residual_scale;        /**< finite, > 0; 0 without a residual */
  int32_t residual_zero_point; /**< within residual_type's range; 0 for INTACT_F32 and without a residual */
} intact_linear_desc;

/** u8×s8→s32, exact, the best ISA. */
#define INTACT_LINEAR_DESC_INIT                                                                       \
  {                                                                                                   \
    sizeof(intact_linear_desc), INTACT_U8, INTACT_S8, INTACT_S32, INTACT_EXACT, INTACT_ISA_ANY, 0, 0, \
        INTACT_ACTIVATION_NONE, NULL, 0, NULL, NULL, NULL, 0, 0.0f, 0.0f, 0, 0, INTACT_RANGE_CHECKED, \
        INTACT_TYPE_NONE, 0.0f, 0                                                                     \
  }

/** The weights of a GEMM: B is k×n. */
typedef struct intact_gemm_desc {
  size_t struct_size; /**< sizeof(intact_gemm_desc) */
  int64_t n;          /**< columns of B and C, ≥ 1 */
  int64_t k;          /**< depth, ≥ 1 */
  int64_t b_stride_k; /**< elements from b[k,n] to b[k+1,n]; 0 = n (row-major K×N) */
  int64_t b_stride_n; /**< elements from b[k,n] to b[k,n+1]; 0 = 1. For N×K weights: 1 and k. */
} intact_gemm_desc;

#define INTACT_GEMM_DESC_INIT \
  { sizeof(intact_gemm_desc), 0, 0, 0, 0 }

/** The buffers of one run. A is m×k, C and the residual are m×n, row-major. They must not overlap, but that
 * the residual may be C itself: c's pointer and stride, and elements of its size. No alignment is needed.
 * Nothing beyond the m·k and m·n elements is read or written. */
typedef struct intact_gemm_args {
  size_t struct_size; /**< sizeof(intact_gemm_args) */
  int64_t m;          /**< rows, ≥ 1 */
  const void* a;
  int64_t a_stride; /**< elements between rows of A, ≥ k; 0 = k */
  void* c;
  int64_t c_stride;        /**< elements between rows of C, ≥ n; 0 = n */
  const void* residual;    /**< of the plan's residual_type; NULL if it has none */
  int64_t residual_stride; /**< elements between its rows, ≥ n; 0 = n */
  int32_t threads;         /**< ≥ 0; 0 = OpenMP's default. Not read by intact_gemm_run_part(). */
  /** Memory for the run to work in, of any alignment; NULL: each thread that calls keeps its own between
   * runs. Its contents are of no use after the run. Calls that run at once, parts among them, need one each.
   */
  void* scratch;
  size_t scratch_bytes; /**< of `scratch`: no less than intact_gemm_prepare() tells; 0 with NULL */
} intact_gemm_args;

#define INTACT_GEMM_ARGS_INIT \
  { sizeof(intact_gemm_args), 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0 }

/** What a run needs and makes. */
typedef struct intact_run_info {
  size_t struct_size; /**< sizeof(intact_run_info) */
  /** Extents of the output: m and n of a GEMM; of a convolution its spatial dimensions, outermost first. 1
   * beyond the dimensions. */
  int64_t output[3];
  size_t scratch_bytes;      /**< that intact_…_run() of these arguments needs, for all its threads */
  size_t part_scratch_bytes; /**< that each call of intact_…_run_part() needs */
} intact_run_info;

#define INTACT_RUN_INFO_INIT \
  { sizeof(intact_run_info), {0}, 0, 0 }

typedef struct intact_gemm intact_gemm;

/** What a plan chose. Strings live as long as the plan. */
typedef struct intact_gemm_info {
  size_t struct_size; /**< sizeof(intact_gemm_info) */
  int64_t n, k;
  int32_t a_type, b_type, c_type, residual_type;
  int32_t isa;
  int32_t mode;
  const char* kernel;   /**< name of the kernel for large m, as in logs, dumps and perf */
  int64_t packed_bytes; /**< memory the packed weights occupy */
  /** Smallest y that activations in the declared range can make, bias_s32 included. */
  int64_t accumulator_min;
  int64_t accumulator_max; /**< largest; both are within int32 */
} intact_gemm_info;

#define INTACT_GEMM_INFO_INIT                                                                           \
  {                                                                                                     \
    sizeof(intact_gemm_info), 0, 0, INTACT_U8, INTACT_S8, INTACT_S32, INTACT_TYPE_NONE, INTACT_ISA_ANY, \
        INTACT_EXACT, NULL, 0, 0, 0                                                                     \
  }

/** Which weights can make VPMADDUBSW saturate, decided for all activations in the plan's range at once, on
 * any machine (kernels without VNNI that add two products in int16 are wrong for them; this library's exact
 * mode never is). A pair is two adjacent depths (k, k+1), k even, of one column. With a in [lo, hi] and w as
 * the instruction sees activations (s8 shifted by +128) and weights (u8 shifted by −128), it fails if
 * Σ max(lo·w, hi·w) > 32767 or Σ min(lo·w, hi·w) < −32768. Zero points do not matter to it. */
typedef struct intact_certificate {
  size_t struct_size;    /**< sizeof(intact_certificate) */
  int32_t a_min, a_max;  /**< the range it holds for, in a_type */
  int64_t pairs;         /**< ⌈k/2⌉·n */
  int64_t failing_pairs; /**< 0: no input in the range can saturate; proven */
  int64_t worst_column;  /**< the column with most failing pairs */
  int64_t worst_column_failing_pairs;
  int64_t accumulator_min; /**< smallest y that activations in the range can make, bias_s32 included */
  int64_t accumulator_max; /**< largest; both are within int32 */
  int64_t panels;          /**< ⌈n/16⌉ */
  /** What exact kernels without VNNI run, × columns; 0 where the plan has no schedule. A quad is four depths
   * of a column, as the plan lays them out; heavy quads are split into two items; a group of items is added
   * up in int16. */
  int64_t schedule_quads, schedule_items, schedule_groups;
} intact_certificate;

#define INTACT_CERTIFICATE_INIT \
  { sizeof(intact_certificate), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** The certificate of 16 adjacent columns. */
typedef struct intact_panel_certificate {
  int64_t failing_pairs;
  int64_t safe_depth_quads; /**< how many adjacent k-quads may be added up in int16 anywhere in the depth; 0:
                               not one */
} intact_panel_certificate;

/** A pair that can saturate, with a witness: a problem of K = 2 that makes it. */
typedef struct intact_failing_pair {
  int64_t k, n;   /**< depths k and k+1 of column n */
  int32_t w0, w1; /**< their weights as the instruction sees them, −128 to 127 */
  int32_t a0, a1; /**< activations as the instruction sees them, 0 to 255 */
  int32_t sum;    /**< a0·w0 + a1·w1, outside int16 */
} intact_failing_pair;

INTACT_API const char* intact_version(void);

/** Why this thread's last call failed; "" if it did not. Valid until the thread's next call. */
INTACT_API const char* intact_last_error(void);

INTACT_API const char* intact_status_name(int32_t status);

/** "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8"; "any" for INTACT_ISA_ANY; NULL if unknown. */
INTACT_API const char* intact_isa_name(int32_t isa);

/** 1 if this machine, its kernel and INTACT_MAX_ISA permit `isa`, else 0. */
INTACT_API int32_t intact_isa_available(int32_t isa);

/** Packs `b` and chooses kernels. On success `*gemm` owns all it needs; destroy with intact_gemm_destroy().
 * `linear`: NULL for the defaults. `b` holds linear->b_type elements at b[k·b_stride_k + n·b_stride_n].
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OVERFLOW, CODEGEN_FAILED, OUT_OF_MEMORY; `*gemm` is then NULL. */
INTACT_API intact_status intact_gemm_create(const intact_gemm_desc* desc, const intact_linear_desc* linear,
                                            const void* b, intact_gemm** gemm);

/** Tells what a run of `args` needs, whose pointers are not read. Thread-safe. Errors: INVALID_ARGUMENT. */
INTACT_API intact_status intact_gemm_prepare(const intact_gemm* gemm, const intact_gemm_args* args,
                                             intact_run_info* info);

/** C = the contract. Thread-safe. With valid arguments and scratch it cannot fail, and takes no memory (but
 * for OpenMP's threads, the first time). Without scratch it fails only if memory runs out, before anything is
 * written. */
INTACT_API intact_status intact_gemm_run(const intact_gemm* gemm, const intact_gemm_args* args);

/** The share `part` of `parts` of the same run, for callers that own their threads: call it once for each
 * part in [0, parts), from any threads. The bytes are those of intact_gemm_run(). */
INTACT_API intact_status intact_gemm_run_part(const intact_gemm* gemm, const intact_gemm_args* args,
                                              int32_t part, int32_t parts);

INTACT_API intact_status intact_gemm_query(const intact_gemm* gemm, intact_gemm_info* info);

INTACT_API intact_status intact_gemm_certificate(const intact_gemm* gemm, intact_certificate* certificate);

/** Copies the certificates of panels [first, first + count) to `panels`. */
INTACT_API intact_status intact_gemm_panel_certificates(const intact_gemm* gemm, int64_t first, int64_t count,
                                                        intact_panel_certificate* panels);

/** Lists failing pairs by column, then depth: number `first` and on, at most `count`; `*written` tells how
 * many. */
INTACT_API intact_status intact_gemm_failing_pairs(const intact_gemm* gemm, int64_t first, int64_t count,
                                                   intact_failing_pair* pairs, int64_t* written);

/** Writes the plan to `path`: weights in the canonical layout, arithmetic, certificate, checksum. The file
 * loads on any ISA; its format is told in kernels/weights/pack_file.h. It appears whole or not at all.
 * Errors: INVALID_ARGUMENT (the file cannot be written; the message says why), OUT_OF_MEMORY. */
INTACT_API intact_status intact_gemm_save(const intact_gemm* gemm, const char* path);

/** Writes the same bytes to memory of the caller's: `*size` tells how many there is room for at `data`, and
 * then how many the plan takes. With `data` NULL that is all; with too little room nothing is written.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_gemm_save_memory(const intact_gemm* gemm, void* data, size_t* size);

/** Makes a plan from a file that intact_gemm_save() wrote, on this or another machine. The file is mapped,
 * not copied: it must not change while the plan lives. `max_isa`, an intact_isa, caps as in a descriptor. A
 * file that is truncated, corrupted, foreign or a convolution's is refused with INVALID_ARGUMENT and a
 * message that says what is wrong. */
INTACT_API intact_status intact_gemm_load(const char* path, int32_t max_isa, intact_gemm** gemm);

/** The same from memory that stays valid and unchanged while the plan lives; `data` is aligned to 64 bytes.
 */
INTACT_API intact_status intact_gemm_load_memory(const void* data, size_t size, int32_t max_isa,
                                                 intact_gemm** gemm);

/** NULL is allowed. No run of the plan may be under way. */
INTACT_API void intact_gemm_destroy(intact_gemm* gemm);

/** Most spatial dimensions of a convolution. */
#define INTACT_MAX_SPATIAL 3

/** An extent of a convolution's input that each run gives. */
#define INTACT_ANY_EXTENT (-1)

/** A convolution whose weights are fixed: channels-last, any stride, dilation, padding and groups; or a
 * transposed one, see below.
 *
 *   input    [batch][D][H][W][input_channels]              NWC, NHWC or NDHWC, a_type
 *   weights  [output_channels][KD][KH][KW][input_channels/groups]   OWI, OHWI or ODHWI, b_type
 *   output   [batch][OD][OH][OW][output_channels]          c_type
 *
 *   O = (in + pad_begin + pad_end − dilation·(kernel − 1) − 1) / stride + 1   in each spatial dimension
 *
 * It is the GEMM of the contract above with a row per output pixel and a column per output channel: depth k =
 * (tap, channel of the group), where tap (kd, kh, kw) of output (od, oh, ow) is input
 * (od·stride − pad_begin + kd·dilation, …). A tap outside the input contributes zero: it is a_zero_point.
 * Output channel n belongs to group n / (output_channels/groups), and reads the input channels of its group.
 *
 * In INTACT_SATURATING mode without VNNI, pairs are adjacent channels of a tap, (c, c+1) with c even within
 * the group; an odd last channel is alone.
 *
 * A transposed convolution ("deconvolution"; ConvTranspose of ONNX and of PyTorch) has the same tensors, and
 * scatters what a convolution gathers: input pixel i contributes with tap k to
 *
 *   output o = i·stride − pad_begin + k·dilation
 *   O = (in − 1)·stride − pad_begin − pad_end + dilation·(kernel − 1) + output_pad + 1
 *
 * so padding crops its output, and output_pad adds to the end. It is the GEMM of the contract too: tap k of
 * output o is input (o + pad_begin − k·dilation) / stride, and zero, that is a_zero_point, where this is no
 * input pixel: outside the input, or no integer. (So it is a convolution of stride 1, its taps in reverse, of
 * the input with stride − 1 pixels of a_zero_point between its pixels; all of them are padding to
 * INTACT_SATURATING too. But what contributes nothing is not computed.) Outputs that no input pixel
 * contributes to are those of an accumulator that is bias_s32 alone.
 * Weights are O…I as above, with taps in their order: those of PyTorch and ONNX, [input_channels]
 * [output_channels/groups][KD][KH][KW], have channel c of group g and output channel n of it at
 * [g·input_channels/groups + c][n]; here that is [g·output_channels/groups + n][KD][KH][KW][c].
 *
 * Arrays of spatial values are outermost first: (W), (H, W) or (D, H, W); what is beyond spatial_dims is not
 * read. Pointers are read during intact_conv_create() only. */
typedef struct intact_conv_desc {
  size_t struct_size;   /**< sizeof(intact_conv_desc) */
  int32_t spatial_dims; /**< 1, 2 or 3 */
  int32_t transposed;   /**< 1: a transposed convolution; else 0 */
  int64_t input_channels, output_channels;
  int64_t groups; /**< ≥ 1, divides both numbers of channels; 0 = 1 */
  /** Extents of the input, ≥ 1; INTACT_ANY_EXTENT where each run gives its own. */
  int64_t input[INTACT_MAX_SPATIAL];
  int64_t kernel[INTACT_MAX_SPATIAL];    /**< ≥ 1; 0 = 1 */
  int64_t stride[INTACT_MAX_SPATIAL];    /**< ≥ 1; 0 = 1 */
  int64_t dilation[INTACT_MAX_SPATIAL];  /**< distance of taps, ≥ 1; 0 = 1 */
  int64_t pad_begin[INTACT_MAX_SPATIAL]; /**< ≥ 0 */
  int64_t pad_end[INTACT_MAX_SPATIAL];   /**< ≥ 0 */
  /** ≥ 0, of a transposed convolution only: less than its stride or its dilation. */
  int64_t output_pad[INTACT_MAX_SPATIAL];
} intact_conv_desc;

#define INTACT_CONV_DESC_INIT                                                    \
  {                                                                              \
    sizeof(intact_conv_desc), 2, 0, 0, 0, 0, {0}, {0}, {0}, {0}, {0}, {0}, { 0 } \
  }

/** The buffers of one run. They must not overlap, but that the residual may be the output itself: c's pointer
 * and stride, and elements of its size. No alignment is needed. Nothing beyond the channels of the pixels is
 * read or written. */
typedef struct intact_conv_args {
  size_t struct_size; /**< sizeof(intact_conv_args) */
  int64_t batch;      /**< ≥ 1 */
  const void* a;
  int64_t a_stride; /**< elements between adjacent pixels of the input, ≥ input_channels; 0 = that */
  void* c;
  int64_t c_stride;     /**< elements between adjacent pixels of the output, ≥ output_channels; 0 = that */
  const void* residual; /**< shaped as the output, of the plan's residual_type; NULL if it has none */
  int64_t residual_stride; /**< elements between its adjacent pixels, ≥ output_channels; 0 = that */
  int32_t threads;         /**< ≥ 0; 0 = OpenMP's default. Not read by intact_conv_run_part(). */
  void* scratch;           /**< as in intact_gemm_args */
  size_t scratch_bytes;    /**< of `scratch`: no less than intact_conv_prepare() tells; 0 with NULL */
  /** Extents of the input, as in the descriptor: given where that says INTACT_ANY_EXTENT; elsewhere 0 or the
   * descriptor's. */
  int64_t input[INTACT_MAX_SPATIAL];
} intact_conv_args;

#define INTACT_CONV_ARGS_INIT                                                 \
  {                                                                           \
    sizeof(intact_conv_args), 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0, { 0 } \
  }

typedef struct intact_conv intact_conv;

/** What a plan chose. Strings live as long as the plan. */
typedef struct intact_conv_info {
  size_t struct_size; /**< sizeof(intact_conv_info) */
  int32_t spatial_dims;
  int32_t a_type, b_type, c_type, residual_type;
  int32_t isa;
  int32_t mode;
  int64_t input_channels, output_channels;
  int64_t input[INTACT_MAX_SPATIAL]; /**< as in the descriptor; 1 beyond its dimensions */
  int64_t
      output[INTACT_MAX_SPATIAL]; /**< extents of the output likewise; INTACT_ANY_EXTENT where runs tell */
  const char* kernel;             /**< name of the main kernel, as in logs, dumps and perf */
  int64_t packed_bytes;           /**< memory the packed weights occupy */
  int64_t accumulator_min;        /**< smallest y that activations in the declared range can make */
  int64_t accumulator_max;        /**< largest; both are within int32 */
} intact_conv_info;

#define INTACT_CONV_INFO_INIT                                                                        \
  {                                                                                                  \
    sizeof(intact_conv_info), 2, INTACT_U8, INTACT_S8, INTACT_S32, INTACT_TYPE_NONE, INTACT_ISA_ANY, \
        INTACT_EXACT, 0, 0, {0}, {0}, NULL, 0, 0, 0                                                  \
  }

/** Packs `weights`, dense O…I as above, and chooses kernels. On success `*conv` owns all it needs; destroy
 * with intact_conv_destroy(). `linear`: NULL for the defaults. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 * OVERFLOW, CODEGEN_FAILED, OUT_OF_MEMORY; `*conv` is then NULL. */
INTACT_API intact_status intact_conv_create(const intact_conv_desc* desc, const intact_linear_desc* linear,
                                            const void* weights, intact_conv** conv);

/** Tells what a run of `args` needs, whose pointers are not read, and prepares what depends on its batch and
 * extents. A plan keeps that for the 64 combinations used last; a batch of one of a plan whose extents are
 * all fixed is always prepared. Thread-safe. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, and where the extents
 * are the run's own those of creation that depend on them: OVERFLOW, UNSUPPORTED, CODEGEN_FAILED. */
INTACT_API intact_status intact_conv_prepare(const intact_conv* conv, const intact_conv_args* args,
                                             intact_run_info* info);

/** Output = the contract. Thread-safe. With valid arguments and scratch, a run that is prepared cannot fail,
 * and takes no memory (but for OpenMP's threads, the first time). Else it fails only as intact_conv_prepare()
 * does, or if memory runs out, before anything is written. */
INTACT_API intact_status intact_conv_run(const intact_conv* conv, const intact_conv_args* args);

/** The share `part` of `parts` of the same run: see intact_gemm_run_part(). */
INTACT_API intact_status intact_conv_run_part(const intact_conv* conv, const intact_conv_args* args,
                                              int32_t part, int32_t parts);

INTACT_API intact_status intact_conv_query(const intact_conv* conv, intact_conv_info* info);

/** Which weights can make VPMADDUBSW saturate: see intact_certificate; columns are output channels and pairs
 * adjacent channels of a tap. Thread-safe. Each call makes it anew, in a pass over the packed weights.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_certificate(const intact_conv* conv, int32_t pairing,
                                                 intact_certificate* certificate);

/** A pair of a convolution's weights that can saturate, with a witness: see intact_failing_pair. */
typedef struct intact_conv_failing_pair {
  int64_t output_channel;
  int64_t tap[INTACT_MAX_SPATIAL]; /**< its place in the kernel, as in the descriptor; 0 beyond its dims */
  int64_t channel;                 /**< channels c and c+1 of the group */
  int32_t w0, w1; /**< as the instruction sees them, −128 to 127; w1 is 0 beyond the last */
  int32_t a0, a1, sum;
} intact_conv_failing_pair;

/** Lists failing pairs by output channel, then tap, then channel: number `first` and on, at most `count`;
 * `*written` tells how many. Thread-safe; each call passes over the packed weights.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
INTACT_API intact_status intact_conv_failing_pairs(const intact_conv* conv, int32_t pairing, int64_t first,
                                                   int64_t count, intact_conv_failing_pair* pairs,
                                                   int64_t* written);

/** Writes the plan to `path`, as intact_gemm_save() does, and its geometry with it. Errors likewise.
 */
INTACT_API intact_status intact_conv_save(const intact_conv* conv, const char* path);

/** The same to memory of the caller's: see intact_gemm_save_memory(). */
INTACT_API intact_status intact_conv_save_memory(const intact_conv* conv, void* data, size_t* size);

/** Makes a plan from a file that intact_conv_save() wrote: see intact_gemm_load(). The weights are packed
 * anew for the ISA at hand; nothing is kept of the file. */
INTACT_API intact_status intact_conv_load(const char* path, int32_t max_isa, intact_conv** conv);

/** The same from memory, of any alignment, which is not needed afterwards. */
INTACT_API intact_status intact_conv_load_memory(const void* data, size_t size, int32_t max_isa,
                                                 intact_conv** conv);

/** NULL is allowed. No run of the plan may be under way. */
INTACT_API void intact_conv_destroy(intact_conv* conv);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_TESTS_ABI_INTACT_1_H_ */
