// The contract (include/intact/intact.h) for the output, without the values of columns: the type, the
// residual that is added, the activation's bounds. epilogue.h emits the code for the output.
#ifndef INTACT_KERNELS_PROBLEM_REQUANTIZATION_H_
#define INTACT_KERNELS_PROBLEM_REQUANTIZATION_H_

#include <intact/intact.h>

#include <cstdint>

namespace intact::kernels {

/// The activation's bounds and the output's zero point. Bounds of 8-bit outputs lie within the type's range
/// minus the zero point.
struct OutputBounds {
  float lo = 0.0f, hi = 0.0f;
  int32_t zero_point = 0;
};

/// A residual r stands for (r − zero_point)·scale.
struct ResidualScale {
  float scale = 0.0f;
  int32_t zero_point = 0;
};

struct Requantization {
  intact_type c_type = INTACT_S32;
  OutputBounds bounds;
  intact_type residual_type = INTACT_TYPE_NONE;
  ResidualScale residual;

  bool has_residual() const { return residual_type != INTACT_TYPE_NONE; }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_REQUANTIZATION_H_
