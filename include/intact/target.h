/** @file
 * intact's plug-in ABI: a shared object describes its kernels, so that "intact verify --target ./mine.so" can
 * check them as it checks the kernels of intact.
 *
 * A plug-in includes this header, links nothing, and exports one function, intact_target_open(). The
 * interface is C. share/intact/examples/target_template.c is a template, and docs/targets.md walks through
 * it:
 *
 *     cc -O2 -shared -fPIC -o mine.so mine.c && intact verify sweep --target ./mine.so
 *
 * A problem is passed to the target as descriptors and arguments of intact.h or grouped.h. A target that
 * makes no other claim is compared with the arithmetic of these headers: exact sums, layouts, strides,
 * requantization.
 *
 * A target runs in its own process. If the process dies, it is started again. All calls come from one thread.
 * A crash, an exit, a call that does not return and a write outside C are findings. The report names the
 * problem, and the run goes on. Each problem runs twice. In the first run every tensor ends right before a
 * guard page. In the second run each tensor starts right after a guard page (even problems) or is misaligned
 * (odd problems). Grouped weights run three times, once in each of these ways. No tensor is aligned on
 * purpose. The space between rows, and C before the call, have arbitrary contents. */
#ifndef INTACT_TARGET_H_
#define INTACT_TARGET_H_

#include <intact/grouped.h>
#include <intact/intact.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this ABI. Structs carry their size and grow at their end, as in intact.h. */
#define INTACT_TARGET_ABI 2

/** Bytes of a message, its terminating zero included. */
#define INTACT_TARGET_MESSAGE_BYTES 256

/** What a target can do: numbers of bits in intact_target::supports, conv_supports and grouped_supports. A
 * sweep skips each problem that needs a feature which the target lacks. The sweep reports the number of
 * skipped problems. For limits that no bit describes (a shape, a combination), the target returns
 * INTACT_UNSUPPORTED and a message. A target must support at least one type of A, one of B and one of C.
 *
 * A product with grouped weights needs GROUPED, the features of its types, and each of the following features
 * that the product uses: ROW_QUANTIZATION (a run gets A and its scales), DYNAMIC_ROWS (a run quantizes
 * numbers), DYNAMIC_F16, DYNAMIC_NAN, A_ZERO_POINT, B_ZERO_POINTS (given zero points), B_MINIMUMS,
 * SCALE_ZERO, BIAS_F32, RELU, CLAMP, STRIDES (rows of A and C), B_LAYOUTS (strides of B, of its scales and of
 * experts), BATCH, EXPERTS, THREADS, EMPTY. */
typedef enum intact_target_feature {
  INTACT_TARGET_A_U8 = 0,           /**< u8 activations */
  INTACT_TARGET_A_S8 = 1,           /**< s8 activations */
  INTACT_TARGET_B_S8 = 2,           /**< s8 weights */
  INTACT_TARGET_B_U8 = 3,           /**< u8 weights */
  INTACT_TARGET_C_S32 = 4,          /**< int32 outputs */
  INTACT_TARGET_C_F32 = 5,          /**< float32 outputs */
  INTACT_TARGET_C_U8 = 6,           /**< u8 outputs */
  INTACT_TARGET_C_S8 = 7,           /**< s8 outputs */
  INTACT_TARGET_C_BF16 = 8,         /**< bfloat16 outputs, of convolutions too */
  INTACT_TARGET_A_ZERO_POINT = 9,   /**< a zero point of activations other than 0 */
  INTACT_TARGET_B_ZERO_POINT = 10,  /**< a zero point of weights other than 0, one for the tensor */
  INTACT_TARGET_B_ZERO_POINTS = 11, /**< a zero point for each column, or for each item */
  INTACT_TARGET_C_ZERO_POINT = 12,  /**< a zero point of 8-bit outputs other than 0 */
  INTACT_TARGET_BIAS_S32 = 13,      /**< a bias of int32 */
  INTACT_TARGET_BIAS_F32 = 14,      /**< a bias of float32 */
  INTACT_TARGET_CHANNEL_SCALES =
      15,                   /**< a scale for each column, or for each item; one for the tensor needs no bit */
  INTACT_TARGET_RELU = 16,  /**< INTACT_ACTIVATION_RELU */
  INTACT_TARGET_CLAMP = 17, /**< INTACT_ACTIVATION_CLAMP */
  INTACT_TARGET_RESIDUAL = 18,  /**< a residual */
  INTACT_TARGET_STRIDES = 19,   /**< rows of A, C and the residual with gaps between them */
  INTACT_TARGET_B_LAYOUTS = 20, /**< B as N×K or with a stride; without this bit a GEMM's B is a dense K×N */
  INTACT_TARGET_RUNTIME_B = 21,         /**< runtime_b: B comes with the arguments */
  INTACT_TARGET_BATCH = 22,             /**< GEMMs of several items, a stride apart */
  INTACT_TARGET_ROW_QUANTIZATION = 23,  /**< INTACT_QUANTIZATION_ROWS */
  INTACT_TARGET_DYNAMIC_ROWS = 24,      /**< INTACT_QUANTIZATION_DYNAMIC_ROWS */
  INTACT_TARGET_DYNAMIC_TENSOR = 25,    /**< INTACT_QUANTIZATION_DYNAMIC_TENSOR, of convolutions too */
  INTACT_TARGET_THREADS = 26,           /**< numbers of threads other than 1 */
  INTACT_TARGET_CONV_1D = 27,           /**< convolutions of one spatial dimension */
  INTACT_TARGET_CONV_2D = 28,           /**< convolutions of two spatial dimensions */
  INTACT_TARGET_CONV_3D = 29,           /**< convolutions of three spatial dimensions */
  INTACT_TARGET_CONV_GROUPS = 30,       /**< several groups of several input channels each */
  INTACT_TARGET_CONV_DEPTHWISE = 31,    /**< several groups of one input channel each */
  INTACT_TARGET_CONV_PADDING = 32,      /**< equal padding at both ends */
  INTACT_TARGET_CONV_PADDING_ENDS = 33, /**< padding that differs between the ends */
  INTACT_TARGET_CONV_STRIDE = 34,       /**< a stride other than 1 */
  INTACT_TARGET_CONV_DILATION = 35,     /**< a dilation other than 1 */
  INTACT_TARGET_CONV_TRANSPOSED = 36,   /**< transposed convolutions */
  INTACT_TARGET_GEMM = 37,              /**< GEMMs */
  INTACT_TARGET_BATCH_POINTERS = 38,    /**< batches with a pointer for each item */
  INTACT_TARGET_RESIDUAL_IN_PLACE = 39, /**< a residual that is C itself */
  INTACT_TARGET_C_F16 = 40,             /**< float16 outputs, of convolutions too */
  INTACT_TARGET_DYNAMIC_F16 = 41,       /**< dynamic quantization of float16 numbers */
  INTACT_TARGET_DYNAMIC_NAN = 42,       /**< dynamic quantization of NaNs and infinities */
  INTACT_TARGET_FIXED_POINT = 43,       /**< an intact_fixed_point, with multipliers or without */
  INTACT_TARGET_LOOKUP_TABLE = 44,      /**< a lookup table */
  INTACT_TARGET_OVERFLOW_WRAPS = 45,    /**< INTACT_OVERFLOW_WRAPS: sums beyond int32, modulo 2^32 */
  INTACT_TARGET_SCALE_ZERO = 46,        /**< a scale of 0 */
  INTACT_TARGET_EMPTY = 47,             /**< runs of no rows, no items or no images: nothing to do */
  /** INTACT_QUANTIZATION_TENSOR */
  INTACT_TARGET_TENSOR_QUANTIZATION = 48,
  INTACT_TARGET_A_TRANSPOSED = 49, /**< a_transposed: A as K×M */
  INTACT_TARGET_ITEM_COLUMNS = 50, /**< zero points or scales of B for each column of each item */
  INTACT_TARGET_GROUPED = 51,      /**< products with grouped weights (intact/grouped.h) */
  INTACT_TARGET_B_U4 = 52,         /**< grouped weights of u4 */
  INTACT_TARGET_B_S4 = 53,         /**< grouped weights of s4 */
  INTACT_TARGET_EXPERTS = 54,      /**< grouped weights of several experts */
  INTACT_TARGET_B_MINIMUMS = 55,   /**< grouped weights with minimums */
  INTACT_TARGET_FEATURES = 56      /**< number of features */
} intact_target_feature;

/** The bit of a feature in intact_target::supports. */
#define INTACT_TARGET_BIT(feature) ((uint64_t)1 << (feature))

/** A target. Everything that it points to must live as long as the process. */
typedef struct intact_target {
  /** sizeof(intact_target). Fields that a shorter struct lacks are NULL; a longer struct must end with
   * zeros. */
  size_t struct_size;
  const char* name; /**< for reports, with a version: "mylib 1.2, avx2" */
  /** INTACT_TARGET_BIT() of each intact_target_feature, or'ed. The mask is about GEMMs. It is also about
   * convolutions if conv_supports is 0, and about grouped weights if grouped_supports is 0. */
  uint64_t supports;
  /** The arithmetic that the target claims, in the words of `intact verify models`. The target fails if it
   * computes anything else. NULL: "exact", the arithmetic of intact.h. "any": no claim; the verifier finds
   * the arithmetic. A target with "any" fails if no model explains an output. It passes as MIXED if outputs
   * of one problem have different models. Grouped weights have no MIXED: one model, or the bound of float32
   * sums in any order, must explain all outputs. Claims for different operations are joined by "|". Each claim
   * except the last begins with names of operations, as in reports: "u8s8: maddubs | depthwise: any |
   * deconvolution s8s8u8: maddubs | exact". */
  const char* arithmetic;
  /** Computes C of a GEMM. `b` is laid out by the descriptor's strides; NULL with runtime_b. The function is
   * called many times, with equal or different weights. It may keep data between calls. The pointers are
   * valid during the call. args->scratch is NULL. linear->mode, pairing, max_isa, the activation range and
   * usual_m may be ignored. Returns INTACT_OK. If the target cannot run the problem, returns
   * INTACT_UNSUPPORTED; the verifier then skips the problem. Any other status is a failure. Unless it returns
   * INTACT_OK, the function may write a line to `message`. */
  intact_status (*gemm)(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                        const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]);
  /** Computes the output of a convolution, under the rules of `gemm`. The descriptor gives all extents. NULL:
   * the target has no convolutions. */
  intact_status (*conv)(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                        const intact_conv_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]);
  /** Computes C of a product with grouped weights, under the rules of `gemm`. NULL: the target has none. */
  intact_status (*grouped)(const intact_grouped_desc* desc, const void* b, const intact_grouped_args* args,
                           char message[INTACT_TARGET_MESSAGE_BYTES]);
  /** The features of convolutions, if they differ from the features of GEMMs. 0: `supports` is about
   * convolutions too. Otherwise the mask has at least one of CONV_1D, CONV_2D and CONV_3D, and bits of
   * convolutions in `supports` have no meaning. */
  uint64_t conv_supports;
  /** The features of grouped weights. 0: `supports` is about grouped weights too. Otherwise the mask has
   * GROUPED, and GROUPED in `supports` has no meaning. */
  uint64_t grouped_supports;
} intact_target;

/** The function that a plug-in exports. `abi`: INTACT_TARGET_ABI of the caller. `options`: the text after the
 * file's name, for example "isa=avx2" of `--target ./mine.so:isa=avx2`; "" if there is none. Called once in a
 * process, before all other calls. If the plug-in does not support the ABI or the options, the function
 * returns NULL and writes a line to `message`. */
INTACT_API const intact_target* intact_target_open(uint32_t abi, const char* options,
                                                   char message[INTACT_TARGET_MESSAGE_BYTES]);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_TARGET_H_ */
