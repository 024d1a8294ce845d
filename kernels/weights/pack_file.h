// The pack file: a plan on disk. Written on one machine, it loads on any other, whatever their ISAs: weights
// lie in the canonical layout, which VNNI and AMX run in place; what an ISA needs besides (a schedule, a
// convolution's own layout) is derived when it is loaded.
//
//   offset        contents, little-endian
//   0             PackHeader, version 9: what it is of, the descriptors, the certificate
//   then, each aligned to 64 bytes and padded with zeros to 64:
//                 weights     ⌈n/16⌉ panels of ⌈k/64⌉·1024 bytes, or a narrow one and its line of zeros
//                             (pack.h); of a convolution depth k is (tap, channel of the group), and n the
//                             output channels
//                 vectors     of those that there are of zero points of the weights, bias_s32, bias_f32,
//                             scales, …, in the order of core/operation.h: 32 bits[⌈n/16⌉·16]
//                 table       lookup_table, u8[256] or s8[256], if there is one
//                 panels      failing pairs of each panel of the certificate, s64[⌈n/16⌉]
//                 choices     of a plan that was tuned: the CPU, char[64], then
//                               of a GEMM for each number of rows: it, s64, and the kernel's name, char[120]
//                               of a convolution for each input and phase: its extents, s64[3], the phase,
//                               s64, the variant of its layout (conv_layout.h), char[32], and the kernel's
//                               name, char[128]
//                             names end with zeros
//
// The checksum covers every byte after itself, header included: for each 8-byte word w, h = rotl(h ^ w,
// 29)·p, from h = 0x9e3779b97f4a7c15 on, with p = 0xff51afd7ed558ccd. A step is a bijection of h and of w, so
// any change confined to one word is found for certain, any other with probability 1 − 2⁻⁶⁴. It proves the
// bytes; a reader makes the plan from the descriptors in them as from a caller's, which proves that they make
// sense.
#ifndef INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
#define INTACT_KERNELS_WEIGHTS_PACK_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "jit/isa.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/weights/certificate.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// What measurements chose on one CPU.
struct TunedChoices {
  struct Choice {
    int64_t m = 0;
    std::string kernel;
  };
  struct ConvChoice {
    std::array<int64_t, INTACT_MAX_SPATIAL> input = {};  // missing dimensions are outermost, of extent 1
    int64_t phase = 0;                                   // of a transposed convolution, else 0
    std::string variant, kernel;
  };
  std::string cpu;                            // jit::CpuKind::ToString()
  std::vector<Choice> choices;                // of a GEMM, by rising rows
  std::vector<ConvChoice> conv_choices = {};  // of a convolution, by rising input and phase
};

/// What a pack file tells.
struct PackContents {
  std::optional<intact_conv_desc> conv;  // nothing: it is a GEMM's
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  PackedWeights weights;
  Certificate certificate;  // without columns' sums and accumulators' bounds
  int64_t usual_m = 0;      // of a GEMM
  TunedChoices tuned;
};

/// The image of a pack file. Throws std::bad_alloc.
std::vector<uint8_t> WritePackImage(const LinearProblem& problem, const std::optional<intact_conv_desc>& conv,
                                    const PackedWeights& weights, const Certificate& certificate,
                                    int64_t usual_m = 0, const TunedChoices& tuned = {});

/// Checks that the image is whole and as a writer makes it; what it holds stays in it, aligned to 64 bytes.
/// The descriptors are as written, and yet to be checked, and so is whether the certificate is that of the
/// weights.
Result<PackContents> ReadPackImage(const void* image, size_t size);

/// INVALID_ARGUMENT unless `held`, a file's, is the certificate that was `made` of its weights.
Error CheckHeldCertificate(const Certificate& held, const Certificate& made);

/// A file that is mapped as long as `data` lives.
struct MappedFile {
  std::shared_ptr<const void> data;
  size_t size = 0;
};
/// INVALID_ARGUMENT: what the message says, of `path`. OUT_OF_MEMORY: there is no room for it.
Result<MappedFile> MapFile(const std::string& path);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
