/* intact's plug-in ABI: what a shared object tells of itself, so that `intact verify --target ./mine.so` can
 * check its kernels as it checks intact's own.
 *
 * A plug-in includes this header, links nothing, and exports one function, intact_target_open(). It is C; a
 * template is share/intact/target_template.c, and docs/targets.md walks through it:
 *
 *   cc -O2 -shared -fPIC -o mine.so mine.c && intact verify sweep --target ./mine.so
 *
 * Problems come as an intact user would state them: the descriptors and arguments of intact.h, whose contract
 * (exact arithmetic, layouts, strides, requantization) is what a target that claims nothing else is compared
 * with.
 *
 * A target runs in a process of its own, which outlives its calls and is started again when it dies. All
 * calls come from one thread. A crash, an exit, a call that does not return, a write outside C: each is told
 * as a finding, with the problem's line, and the run goes on. Each problem is run twice. In the first run
 * every tensor ends at a page that cannot be touched; in the second, of every other problem, it begins right
 * behind one, of the others it has another alignment; nothing is aligned on purpose; what lies between rows,
 * and C before the call, has arbitrary contents. */
#ifndef INTACT_TARGET_H_
#define INTACT_TARGET_H_

#include <intact/intact.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this ABI. Structs of a version never change; those of intact.h grow at their end only, and
 * tell their size. */
#define INTACT_TARGET_ABI 1

/** Bytes of a message, its terminating zero included. */
#define INTACT_TARGET_MESSAGE_BYTES 256

/** What a target can do, as bits of intact_target::supports. What it lacks is taken out of a sweep's
 * problems, and told with the number of problems that have it. What bits cannot say (this shape, that
 * combination) the target refuses itself, with INTACT_UNSUPPORTED and a message. Everything has a type: an A,
 * a B and a C bit are needed. */
typedef enum intact_target_feature {
  INTACT_TARGET_A_U8 = 0,
  INTACT_TARGET_A_S8 = 1,
  INTACT_TARGET_B_S8 = 2,
  INTACT_TARGET_B_U8 = 3,
  INTACT_TARGET_C_S32 = 4,
  INTACT_TARGET_C_F32 = 5,
  INTACT_TARGET_C_U8 = 6,
  INTACT_TARGET_C_S8 = 7,
  INTACT_TARGET_C_BF16 = 8,
  INTACT_TARGET_A_ZERO_POINT = 9,   /**< of activations, other than 0 */
  INTACT_TARGET_B_ZERO_POINT = 10,  /**< of weights, other than 0, one for all */
  INTACT_TARGET_B_ZERO_POINTS = 11, /**< one for each column, or each item */
  INTACT_TARGET_C_ZERO_POINT = 12,  /**< of an 8-bit output, other than 0 */
  INTACT_TARGET_BIAS_S32 = 13,
  INTACT_TARGET_BIAS_F32 = 14,
  INTACT_TARGET_CHANNEL_SCALES = 15, /**< a scale for each column, or each item; one for all needs no bit */
  INTACT_TARGET_RELU = 16,
  INTACT_TARGET_CLAMP = 17,
  INTACT_TARGET_RESIDUAL = 18,
  INTACT_TARGET_STRIDES = 19,          /**< of A, C and the residual, beyond their rows */
  INTACT_TARGET_B_LAYOUTS = 20,        /**< B as N×K, or with a stride; a GEMM's is else a dense K×N */
  INTACT_TARGET_B_FROM_RUN = 21,       /**< B comes with the arguments */
  INTACT_TARGET_BATCH = 22,            /**< a GEMM of several items, a stride apart */
  INTACT_TARGET_ROW_QUANTIZATION = 23, /**< INTACT_QUANTIZATION_ROWS */
  INTACT_TARGET_DYNAMIC_ROWS = 24,     /**< INTACT_QUANTIZATION_DYNAMIC_ROWS */
  INTACT_TARGET_DYNAMIC_TENSOR = 25,   /**< INTACT_QUANTIZATION_DYNAMIC_TENSOR */
  INTACT_TARGET_THREADS = 26,          /**< counts other than 1 */
  INTACT_TARGET_CONV_1D = 27,
  INTACT_TARGET_CONV_2D = 28,
  INTACT_TARGET_CONV_3D = 29,
  INTACT_TARGET_CONV_GROUPS = 30,       /**< several groups of several input channels each */
  INTACT_TARGET_CONV_DEPTHWISE = 31,    /**< several groups of one input channel each */
  INTACT_TARGET_CONV_PADDING = 32,      /**< the same at both ends */
  INTACT_TARGET_CONV_PADDING_ENDS = 33, /**< ends that differ */
  INTACT_TARGET_CONV_STRIDE = 34,
  INTACT_TARGET_CONV_DILATION = 35,
  INTACT_TARGET_CONV_TRANSPOSED = 36,
  INTACT_TARGET_GEMM = 37,
  INTACT_TARGET_BATCH_POINTERS = 38,    /**< of items that lie where a pointer for each says */
  INTACT_TARGET_RESIDUAL_IN_PLACE = 39, /**< a residual that is C itself */
  INTACT_TARGET_FEATURES = 40           /**< how many there are */
} intact_target_feature;

/** The bit of a feature in intact_target::supports. */
#define INTACT_TARGET_BIT(feature) ((uint64_t)1 << (feature))

/** A target. What it points to lives as long as the process. */
typedef struct intact_target {
  const char* name;  /**< as reports show it, its version included: "mylib 1.2, avx2" */
  uint64_t supports; /**< INTACT_TARGET_BIT() of each intact_target_feature, or'ed */
  /** What its sums and roundings are, in the words of `intact verify models`; it fails where it computes
   * anything else. NULL: "exact", which is intact.h's contract. "any": it claims nothing, and the verifier
   * finds out; it fails where some output has no model that explains it, and passes, which is told as MIXED,
   * where outputs of one problem have different ones. Where operations differ, claims are joined by "|", each
   * but the last with its operations in front, as reports name them:
   * "u8s8: triple | depthwise: any | deconvolution s8s8u8: triple | exact". */
  const char* arithmetic;
  /** Computes C of a GEMM. `b` is laid out as the descriptor's strides tell; NULL where runs give it. Called
   * again and again with the same weights or others: whether to keep anything between calls is the target's
   * affair. The pointers are valid during the call. args->scratch is NULL. linear->mode, max_isa, the
   * declared range and usual_m may be ignored. Returns INTACT_OK; INTACT_UNSUPPORTED for a problem that it
   * does not run, which is skipped; anything else is a failure. Unless OK, `message` may get a line that says
   * why. */
  intact_status (*gemm)(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                        const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]);
  /** Likewise the output of a convolution. Extents are the descriptor's. NULL: it has none. */
  intact_status (*conv)(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                        const intact_conv_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]);
} intact_target;

/** What a plug-in exports. `abi`: INTACT_TARGET_ABI of the caller. `options`: what the user wrote behind the
 * file's name, `--target ./mine.so:isa=avx2`; "" if that was nothing. Called once in a process, before all
 * else. Returns NULL, with a line in `message` that says why, where it cannot serve that. */
INTACT_API const intact_target* intact_target_open(uint32_t abi, const char* options,
                                                   char message[INTACT_TARGET_MESSAGE_BYTES]);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_TARGET_H_ */
