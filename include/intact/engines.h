/** @file
 * The products that inference engines add in int16 on x86-64 CPUs. Kernels without VNNI add pairs of products
 * with VPMADDUBSW. This instruction clamps each sum to int16. Engines differ in the products that form a
 * pair. The source is one table, core/engines.json. docs/peers_methods.md describes how the rows of the table
 * were measured. This header continues intact/intact.h: statuses, structs that begin with their size, and
 * errors work as described there. */
#ifndef INTACT_ENGINES_H_
#define INTACT_ENGINES_H_

#include <intact/intact.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The products that an engine adds in int16. */
typedef enum intact_engine_pairs {
  INTACT_ENGINE_PAIRS_NONE = 0,   /**< none: sums are exact */
  INTACT_ENGINE_PAIRS_DEPTHS = 1, /**< depths 2i and 2i + 1 of a matrix product */
  INTACT_ENGINE_PAIRS_HALVES = 2, /**< as DEPTHS, but pairs begin anew after ⌈K/2⌉ depths, an odd number */
  INTACT_ENGINE_PAIRS_WITHIN_TAP = 3, /**< channels 2i and 2i + 1 of a tap: INTACT_PAIRING_WITHIN_TAP */
  INTACT_ENGINE_PAIRS_FLATTENED = 4,  /**< depths 2i and 2i + 1 of the window (taps, channels of the group):
                                           INTACT_PAIRING_FLATTENED */
  INTACT_ENGINE_PAIRS_KERNEL_ROW = 5, /**< taps 2i and 2i + 1 of a row of the kernel (its last dimension), in
                                           groups of one input channel; an odd last tap is alone */
  /** Taps 2i and 2i + 1 of the kernel's last two dimensions, read column by column, in groups of one input
   * channel. Pairs cross columns; an odd last tap is alone. */
  INTACT_ENGINE_PAIRS_KERNEL_COLUMN = 6
} intact_engine_pairs;

/** An engine of the table. The strings are constant. */
typedef struct intact_engine_info {
  size_t struct_size;    /**< sizeof(intact_engine_info) */
  const char* name;      /**< for options: "onnxruntime" */
  const char* words;     /**< for people: "ONNX Runtime" */
  const char* versions;  /**< the measured versions, with commas between: "3.12.0, PyTorch 2.13.0" */
  int32_t skips_padding; /**< 1: the padding of convolutions is not multiplied, so padding is in no pair */
} intact_engine_info;

/** The initial value of a struct that a call fills. */
#define INTACT_ENGINE_INFO_INIT \
  { sizeof(intact_engine_info), 0, 0, 0, 0 }

/** A layer as an engine multiplies it on a CPU. */
typedef struct intact_engine_layer {
  size_t struct_size;  /**< sizeof(intact_engine_layer) */
  const char* engine;  /**< an engine's name */
  const char* version; /**< the engine's version; NULL: a measured one */
  const char* op; /**< ONNX's name of the operator: "MatMul", "Gemm", "Conv", "QLinearConv", …; "MatMul" and
                              "Conv" are the operators between DequantizeLinear and QuantizeLinear, and the
                              operators of other formats. Depthwise convolutions are recognized */
  int32_t a_type; /**< INTACT_U8 or INTACT_S8: the activations that the engine multiplies. An engine that
                              shifts s8 activations to u8 first multiplies INTACT_U8 */
  int32_t b_type; /**< INTACT_U8 or INTACT_S8: the weights */
  int64_t depth;  /**< products of an output: K, or taps times group_inputs; 1 or more */
  int64_t groups; /**< groups of a convolution; 1 for others */
  int64_t group_inputs;  /**< input channels of a group; of a convolution: 1 or more, dividing the depth */
  int64_t group_outputs; /**< output channels of a group; 1 or more for a convolution */
  int32_t isa;           /**< an intact_isa: the best of the CPU, AVX2 or newer. AVX2 and AVX512 are CPUs
                              without VNNI */
  /** 1: the convolution's outputs have 5 columns or more. 0: they have fewer, or the engine takes its kernels for
   * fewer columns because of dilation or padding. If the size is not known, ask for both. */
  int32_t is_wide;
} intact_engine_layer;

/** The initial value: a matrix product of u8 activations and s8 weights on a CPU with AVX2. Outputs are wide. */
#define INTACT_ENGINE_LAYER_INIT \
  { sizeof(intact_engine_layer), 0, 0, "MatMul", INTACT_U8, INTACT_S8, 1, 1, 1, 1, INTACT_ISA_AVX2, 1 }

/** What an engine does with a layer. */
typedef struct intact_engine_answer {
  size_t struct_size; /**< sizeof(intact_engine_answer) */
  int32_t pairs;      /**< an intact_engine_pairs */
  int32_t
      is_measured; /**< 1: the table was measured with this version. 0: other versions of the engine are assumed
                            to work like the measured one */
} intact_engine_answer;

/** The initial value of a struct that a call fills. */
#define INTACT_ENGINE_ANSWER_INIT \
  { sizeof(intact_engine_answer), 0, 0 }

/** How many engines the table has. Thread-safe. */
INTACT_API int32_t intact_engine_count(void);

/** Describes engine `index`, 0 … intact_engine_count() − 1. Thread-safe. Errors: INVALID_ARGUMENT. */
INTACT_API intact_status intact_engine_describe(int32_t index, intact_engine_info* info);

/** Reports the products of `layer` that its engine adds in int16. If the layer has one depth, the answer is
 * NONE. If pairs are within taps and a group has one input channel, the answer is NONE too. Thread-safe.
 * Errors: INVALID_ARGUMENT (a field is out of range, or no engine has the name); UNSUPPORTED (the table does
 * not know the operator with these types, or the CPU has no AVX2). */
INTACT_API intact_status intact_engine_ask(const intact_engine_layer* layer, intact_engine_answer* answer);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* INTACT_ENGINES_H_ */
