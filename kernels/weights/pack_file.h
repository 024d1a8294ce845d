// The pack file: a plan on disk. It loads on any machine, with any ISA. Weights have the canonical layout.
// VNNI and AMX kernels read this layout in place. What other kernels need (a schedule, a convolution's own
// layout) is made when the file is loaded. If the machine has the ISA and the caches of the saving machine, a
// schedule is restored from its order in the file.
//
//   offset        contents, little-endian
//   0             PackHeader, version 10: the kind of plan, the descriptors
//   then, each aligned to 64 bytes and padded with zeros to 64:
//                 weights     ⌈n/16⌉ panels of ⌈k/64⌉·1024 bytes, or a narrow panel and its line of zeros
//                             (pack.h); in a convolution depth k is (tap, channel of the group), and n is
//                             the number of output channels
//                 vectors     zero points of the weights, bias_s32, bias_f32, scales, …, if present, in
//                             the order of core/operation.h: 32 bits[⌈n/16⌉·16] each
//                 table       lookup_table, u8[256] or s8[256], if there is one
//                 choices     of a tuned plan: the CPU, char[64], then
//                               GEMM: for each tuned number of rows: that number, s64; the kernel's name,
//                               char[120]
//                               convolution: for each input and phase: the input's extents, s64[3]; the
//                               phase, s64; the variant of its layout (conv_layout.h), char[32]; the
//                               kernel's name, char[128]
//                             names end with zeros
//                 schedules   if the plan has schedules, one after another: a PackedSchedule (whose weights,
//                             its key, its estimate), and its order (StripScheduler::AppendOrder()), padded
//                             with zeros to 8 bytes
//
// The checksum covers every byte after itself, header included. Word i of 8 bytes, w, belongs to lane i mod 4:
// h = rotl(h ^ w, 29)·p, from h = 0x9e3779b97f4a7c15 on, with p = 0xff51afd7ed558ccd. The checksum is the
// result of such steps with the four lanes as words. A step is a bijection of h and of w. So a change within
// one word is always found. Any other random change is found with probability 1 − 2⁻⁶⁴. The checksum finds
// only damage. The descriptors are then checked like a caller's descriptors. A schedule's order is checked
// against the weights before the order is used. Estimates of schedules are not checked: they only choose
// kernels.
#ifndef INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
#define INTACT_KERNELS_WEIGHTS_PACK_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "jit/isa.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule_records.h"

namespace intact::kernels {

/// The choices of tuning on one CPU.
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
  std::vector<Choice> choices;                // of a GEMM, by ascending rows
  std::vector<ConvChoice> conv_choices = {};  // of a convolution, by ascending input and phase
};

/// The contents of a pack file.
struct PackContents {
  std::optional<intact_conv_desc> conv;  // nothing for a GEMM
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  PackedWeights weights;
  int64_t usual_m = 0;  // of a GEMM
  TunedChoices tuned;
  std::vector<SavedSchedule> schedules;
};

/// The first bytes of a file of a GEMM or a convolution, and of a file of grouped weights.
inline constexpr std::array<char, 8> kPackMagic = {'I', 'N', 'T', 'A', 'C', 'T', 'P', 'K'};
inline constexpr std::array<char, 8> kGroupedMagic = {'I', 'N', 'T', 'A', 'C', 'T', 'G', 'W'};

/// The begin of each image that a plan is saved as.
struct ImageBegin {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t checksum;  // of all bytes after it
};

/// Checks that an image is as long as its begin says, that it has the magic, version and header bytes of
/// `expected`, and that its checksum is right. `what`: the kind of the image, for messages.
Error CheckImage(const void* image, size_t size, const ImageBegin& expected, const char* what);

/// The checksum of an image of `size` bytes.
uint64_t ImageChecksum(const uint8_t* image, size_t size);

/// The image of a pack file. Throws std::bad_alloc.
std::vector<uint8_t> WritePackImage(const LinearProblem& problem, const std::optional<intact_conv_desc>& conv,
                                    const PackedWeights& weights, int64_t usual_m = 0,
                                    const TunedChoices& tuned = {},
                                    std::span<const SavedSchedule> schedules = {});
/// The size of the image. Reads neither weights nor orders of schedules, only the sizes of the orders.
size_t PackImageBytes(const LinearProblem& problem, const std::optional<intact_conv_desc>& conv,
                      const PackedWeights& weights, int64_t usual_m, const TunedChoices& tuned,
                      std::span<const SavedSchedule> schedules);

/// Checks that the image is complete and well-formed. The contents point into the image. The image must be
/// aligned to 64 bytes. The caller must still check the descriptors.
Result<PackContents> ReadPackImage(const void* image, size_t size);

/// A file that stays mapped as long as `data` lives.
struct MappedFile {
  std::shared_ptr<const void> data;
  size_t size = 0;
};
/// Errors: INVALID_ARGUMENT (the message names `path` and the reason), OUT_OF_MEMORY.
Result<MappedFile> MapFile(const std::string& path);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PACK_FILE_H_
