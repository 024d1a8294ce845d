// The arithmetic of a fuzzed call: an intact_linear_desc with what it points to, and what it means to the
// scalar reference.
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

/// A descriptor, and the column vectors that it points to, with a value for each column.
struct Linear : core::Linear {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
};

/// The types of outputs without a feature.
inline constexpr std::array<int32_t, 4> kOutputTypes = {INTACT_S32, INTACT_U8, INTACT_F32, INTACT_S8};

/// Mostly valid, with an output of one of `c_types`; its pointers are into `*linear`.
void ReadLinear(Input* input, int64_t columns, std::span<const int32_t> c_types,
                intact_quantization quantization, Linear* linear);

/// Finite, and not below 0: mostly of sizes that spread outputs over 8 bits.
float ReadScale(Input* input);

/// What `desc`, which the library accepted, means. Without tensors.
void Describe(const intact_linear_desc& desc, int64_t columns, reference::Linear* operation);

/// `count` bytes in a style that the input chooses: drawn from a seed, few values, or extremes.
std::vector<uint8_t> ReadTensor(Input* input, int64_t count);

/// Brings activations, bytes of desc.a_type, into the activation range.
void ClampToActivationRange(const intact_linear_desc& desc, std::vector<uint8_t>* a);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_LINEAR_H_
