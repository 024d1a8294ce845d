// The pack file: a plan on disk. Written on one machine, it loads on any other, whatever their ISAs: weights
// lie in the canonical layout, which VNNI and AMX run in place; what an ISA needs besides (a schedule) is
// derived when it is loaded.
//
//   offset        contents, little-endian
//   0             PackHeader, version 3
//   then, each aligned to 64 bytes and padded with zeros to 64:
//                 weights     ⌈n/16⌉ panels of ⌈k/64⌉·1024 bytes (pack.h)
//                 scales      f32[⌈n/16⌉·16]   unless c_type is s32
//                 bias_f32    f32[⌈n/16⌉·16]   if has_bias_f32
//                 bias_s32    s32[⌈n/16⌉·16]   if has_bias_s32
//                 zero points s32[⌈n/16⌉·16]   if has_b_zero_points: of the weights
//                 panels      PanelCertificate[⌈n/16⌉]
//
// The checksum covers every byte after itself, header included: for each 8-byte word w, h = rotl(h ^ w,
// 29)·p, from h = 0x9e3779b97f4a7c15 on, with p = 0xff51afd7ed558ccd. A step is a bijection of h and of w, so
// any change confined to one word is found for certain, any other with probability 1 − 2⁻⁶⁴.
#ifndef INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
#define INTACT_KERNELS_WEIGHTS_PACK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/engines/engine.h"

namespace intact::kernels {

/// The image of a pack file. Throws std::bad_alloc.
std::vector<uint8_t> WritePackImage(const GemmData& data);

/// Checks everything, then fills `data`, whose weights stay in the image. `initial` and the accumulators'
/// bounds are left to the plan, which derives them from the weights.
Error ReadPackImage(const void* image, size_t size, GemmData* data);

/// Writes `image` to `path` through a temporary file beside it, so that it appears whole or not at all.
Error WriteFile(const std::string& path, const std::vector<uint8_t>& image);

struct MappedFile {
  std::shared_ptr<const void> data;
  size_t size = 0;
};
Result<MappedFile> MapFile(const std::string& path);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
