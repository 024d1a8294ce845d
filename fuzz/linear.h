// The arithmetic of a fuzzed call: an intact_linear_desc with the arrays that it points to, and its
// equivalent for the scalar reference.
#ifndef INTACT_FUZZ_LINEAR_H_
#define INTACT_FUZZ_LINEAR_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/input.h"
#include "reference/contract/linear.h"

namespace intact::fuzz {

/// A descriptor and the column vectors that it points to. They have a value for each column.
struct Linear : core::Linear {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
};

/// The output types of calls without features.
inline constexpr std::array<int32_t, 4> kOutputTypes = {INTACT_S32, INTACT_U8, INTACT_F32, INTACT_S8};

/// Reads a descriptor, mostly a valid one, with one of `c_types`. Its pointers point into `*linear`.
void ReadLinear(Input* input, int64_t columns, std::span<const int32_t> c_types,
                intact_quantization quantization, Linear* linear);

/// A finite scale ≥ 0, mostly of a size that spreads outputs over 8 bits.
float ReadScale(Input* input);

/// Sets `*operation`, except tensors, to the meaning of `desc`, which the library accepted.
void Describe(const intact_linear_desc& desc, int64_t columns, reference::Linear* operation);

/// `count` bytes in a style that the input chooses: drawn from a seed, few values, or extremes.
std::vector<uint8_t> ReadTensor(Input* input, int64_t count);

/// Clamps activations, bytes of desc.a_type, to the activation range.
void ClampToActivationRange(const intact_linear_desc& desc, std::vector<uint8_t>* a);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_LINEAR_H_
