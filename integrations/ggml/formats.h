// ggml's types of weights, as the weights of include/intact/grouped.h.
#ifndef INTACT_INTEGRATIONS_GGML_FORMATS_H_
#define INTACT_INTEGRATIONS_GGML_FORMATS_H_

#include <ggml.h>
#include <intact/grouped.h>

#include <cstddef>
#include <cstdint>

namespace intact::ggml {

/// Where the parts of a block go.
struct BlockParts {
  uint8_t* codes;   // `depths` bytes; with 4 bits half of that, the even depth in the low nibble
  uint8_t* scales;  // an element of scale_type for each group
  float* minimums;  // of each group, if the format has minimums
};

/// A type of ggml. A block holds `depths` weights of a column. A weight is scale·code + minimum of its group. Without
/// minimums, codes of 4 bits have the zero point 8.
struct Format {
  ggml_type type;
  int64_t depths, bytes;  // of a block
  int64_t group;          // depths that share a scale
  int32_t b_type;         // INTACT_S8 or INTACT_U4
  intact_type scale_type;
  bool has_minimums;
  void (*unpack)(const uint8_t* block, const BlockParts& to);

  int64_t code_bytes() const { return b_type == INTACT_U4 ? depths / 2 : depths; }
  int64_t scale_bytes() const { return depths / group * (scale_type == INTACT_F32 ? 4 : 2); }
};

/// The format of `type`; null if intact does not multiply this type.
const Format* FormatOf(ggml_type type);

/// Creates a plan of `experts` matrices of n columns of k depths, which lie one after the other at `blocks` as ggml stores
/// them. Rows of A are f32, and quantized to s8 for each group. Errors: those of intact_grouped_create(); `*plan` is then null.
intact_status MakePlan(const Format& format, int64_t experts, int64_t n, int64_t k, const void* blocks,
                       intact_grouped** plan);

}  // namespace intact::ggml

#endif  // INTACT_INTEGRATIONS_GGML_FORMATS_H_
