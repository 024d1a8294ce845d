// The arithmetic of a fuzzed call: an intact_linear_desc with what it points to, and what it means to the
// scalar reference.
#ifndef INTACT_FUZZ_LINEAR_H_
#define INTACT_FUZZ_LINEAR_H_

#include <intact/intact.h>

#include <cstdint>
#include <vector>

#include "fuzz/input.h"
#include "reference/operation.h"

namespace intact::fuzz {

struct Linear {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  // One value a column.
  std::vector<int32_t> b_zero_points, bias_s32;
  std::vector<float> bias_f32, scales;
};

/// Mostly valid; its pointers are into `*linear`.
void ReadLinear(Input* input, int64_t columns, Linear* linear);

/// What `desc`, which the library accepted, means. Without tensors.
void Describe(const intact_linear_desc& desc, int64_t columns, reference::Operation* operation);

/// `count` bytes in a style that the input chooses: drawn from a seed, few values, or extremes.
std::vector<uint8_t> ReadTensor(Input* input, int64_t count);

/// Brings activations, bytes of desc.a_type, into the declared range.
void ClampToDeclared(const intact_linear_desc& desc, std::vector<uint8_t>* a);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_LINEAR_H_
