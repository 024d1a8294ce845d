// Emits the requantization of the contract (include/intact/intact.h) for one row of int32 accumulators: the
// only place where kernels turn accumulators into outputs, so the bytes are the same on every ISA.
//
//   s32   y
//   f32   f = min(max(float(y)·scale [+ bias], lo), hi)
//   8-bit rne(f) + zero_point, stored as bytes
//
// For 8-bit outputs lo and hi are the activation's bounds clamped to [type_min − zp, type_max − zp]. The
// type's bounds are integers and rounding is monotonic, so clamping to them before rounding equals clamping
// after it; and the conversion can never leave int32.
#ifndef INTACT_KERNELS_EPILOGUE_H_
#define INTACT_KERNELS_EPILOGUE_H_

#include <intact/intact.h>

#include <cstdint>
#include <string>
#include <vector>

#include "jit/emitters/emitter.h"

namespace intact::kernels {

/// What the emitted code depends on.
struct EpilogueSpec {
  intact_type c_type = INTACT_S32;
  bool has_bias = false;  // float32 bias
  // Non-temporal stores: C is larger than L2, so that each of its lines would be read only to be overwritten.
  // Needs vectors of a whole cache line, aligned to it, and a store fence before others may read.
  bool streams = false;
  std::string Name() const;  // "s32", "u8_bias", "s32_streamed"
};

/// What the emitted code reads, for the columns of one tile. The arrays cover the tile's whole vectors.
struct EpilogueArgs {
  const float* scales = nullptr;
  const float* bias = nullptr;
  float lo = 0.0f, hi = 0.0f;
  int32_t zero_point = 0;
};

/// Bytes of an output element.
int ElementBytes(intact_type type);

class Epilogue {
 public:
  Epilogue(const EpilogueSpec& spec, jit::Emitter& emitter) : spec_(spec), emitter_(emitter) {}

  /// Takes registers and loads the bounds. `args` points to an EpilogueArgs at `offset`.
  void Prepare(const jit::Gp& args, int offset);
  /// Requantizes accumulators of one row, adjacent vectors of columns, and stores them at `c`. Destroys them.
  void StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Gp& c);

 private:
  void Requantize(const jit::Vec& accumulator, int vector);

  EpilogueSpec spec_;
  jit::Emitter& emitter_;
  jit::Gp scales_, bias_;
  jit::Vec lo_, hi_, zero_point_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_EPILOGUE_H_
