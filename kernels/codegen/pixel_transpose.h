// Transposes pixels into the quads of a planar band (planar_band.h): eight pixels × sixteen bytes at a time
// become four quads × eight pixels.
//
//   pixel 0: c0 … c15   pixel 4: …          quad 0: pixels 0 1 2 3 | 4 5 6 7, four bytes each
//   pixel 1: …          pixel 5: …    ─►    quad 1: …
//   pixel 2: …          pixel 6: …          quad 2: …
//   pixel 3: …          pixel 7: …          quad 3: …
//
// Each group begins with a new quad: if a group's channels do not fill its last quad, a shuffle inserts
// zeros.
//
// One kernel serves all ISAs: wider shuffles would not be faster.
#ifndef INTACT_KERNELS_CODEGEN_PIXEL_TRANSPOSE_H_
#define INTACT_KERNELS_CODEGEN_PIXEL_TRANSPOSE_H_

#include <array>
#include <cstdint>

#include "core/result.h"
#include "jit/function.h"

namespace intact::kernels {

/// Sixteen bytes of a pixel that become four quads.
struct alignas(32) QuadSource {
  static constexpr int kBytes = 16;
  std::array<uint8_t, kBytes> shuffle;  // for VPSHUFB: index of a byte from `offset` on, or 0x80 for a zero
  int64_t offset = 0;                   // within the pixel
};

struct PixelTransposeArgs {
  static constexpr int64_t kPixels = 8;
  const uint8_t* const* pixels = nullptr;  // a multiple of kPixels, at least one
  const uint8_t* const* pixels_end = nullptr;
  const QuadSource* sources = nullptr;  // at least one
  const QuadSource* sources_end = nullptr;
  uint8_t* to = nullptr;  // the first pixel's first quad; the kernel advances it
  int64_t quad_bytes = 0;
  alignas(32) std::array<uint8_t, 32> largest = {};  // largest bytes so far, one per lane

  uint8_t Largest() const;
};

using PixelTransposeFunction = jit::Function<void(PixelTransposeArgs*)>;

/// `shifts_to_u8`: inverts the top bit of each byte, see ActivationShift(). `shuffles`: whether any source
/// needs a shuffle.
Result<PixelTransposeFunction> GetPixelTranspose(bool shifts_to_u8, bool shuffles);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_PIXEL_TRANSPOSE_H_
