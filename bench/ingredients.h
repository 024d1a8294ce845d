// What separates a kernel from the instruction peak (peaks.h). A probe is a loop over blocks of the size that
// a kernel computes. Each probe has one ingredient of a kernel more than the probe before it, so the first
// step that is much slower names the bottleneck on this CPU.
//
//   peak/vpdpbusd/zmm                    registers only
//   peak/vpdpbusd/zmm/b_l1               + B is loaded from L1
//   peak/vpdpbusd/zmm/b_l1/a             + A is broadcast from L1; with AMX, its tiles are loaded
//   peak/vpdpbusd/zmm/b_l2/a             B is in L2
//   peak/vpdpbusd/zmm/b_l2/a/c           + C is stored after kProbeDepth depths, in whole lines
//   peak/vpdpbusd/zmm/b_l2/a/c_crossing  each vector of C crosses two lines
//   peak/vpdpbusd/zmm/kernel             the library's kernel, with the operands of b_l2/a/c
#ifndef INTACT_BENCH_INGREDIENTS_H_
#define INTACT_BENCH_INGREDIENTS_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "bench/peaks.h"
#include "jit/assembler.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/aligned_buffer.h"

namespace intact::bench {

inline constexpr int kProbeDepth = 512;

struct Ingredients {
  std::string name;  // "b_l1", "b_l1/a", …
  bool b_from_l2 = false;
  bool has_a = false;
  bool stores_c = false;  // else only once, after all blocks
  bool crosses_lines = false;
  bool is_kernel = false;  // the library's kernel instead of a loop of its own
};

/// The probes in the order above.
const std::vector<Ingredients>& AllIngredients();

/// Whether `peak` has probes: peaks of u8×s8 that the kernels of an ISA are compared with.
bool HasProbes(const Peak& peak);

/// A probe with its operands.
class IngredientProbe {
 public:
  /// `peak` must have probes.
  static Result<IngredientProbe> Create(const Peak& peak, const Ingredients& ingredients);

  /// Computes all blocks, `passes` times. If blocks are stored, each has a place in C; else C holds the sums
  /// of all blocks.
  void Run(int passes = 1);
  /// The number of elements of C that differ from sums of plain loops. All differ before the first Run().
  int64_t WrongSums() const;
  /// The number of elements of C.
  int64_t CountSums() const { return block_.mr * c_columns(); }
  /// GOPS: the fastest of several short runs.
  double MeasureGops();

 private:
  /// Addresses for one call.
  struct Args {
    const uint8_t* a;
    const int8_t* b;
    int32_t* c;
    int64_t blocks;
  };

  IngredientProbe(const Peak& peak, const Ingredients& ingredients);
  Error MakeOperands();
  Result<jit::Code> GenerateVectorLoop() const;
  Result<jit::Code> GenerateTileLoop() const;
  Error MakeVectorKernel();
  Error MakeTileKernel();
  /// Emits `body` for each block.
  void EmitBlocks(jit::Assembler& session, const jit::RegisterFile& registers, const jit::Gp& b,
                  const jit::Gp& c, const std::function<void()>& body) const;

  bool has_tiles() const { return kernels::UsesTiles(peak_.isa); }
  int columns() const { return panels_ * kernels::kPanelColumns; }
  int64_t b_block_bytes() const { return ingredients_.b_from_l2 ? int64_t{kProbeDepth} * columns() : 0; }
  int64_t c_columns() const { return (ingredients_.stores_c ? blocks_ : 1) * columns(); }
  int64_t c_stride() const { return c_columns() + kernels::kPanelColumns; }  // in elements
  size_t first_sum() const { return ingredients_.crosses_lines ? 1 : 0; }    // the offset of C in c_

  Peak peak_;
  Ingredients ingredients_;
  kernels::KernelBlock block_;  // its rows and, without tiles, its vectors
  int panels_ = 0;              // of a block
  int64_t blocks_ = 0;
  kernels::AlignedBuffer<uint8_t> a_;
  kernels::AlignedBuffer<int8_t> b_;  // panels
  kernels::AlignedBuffer<int32_t> c_;
  kernels::TileFunctions tile_functions_;
  std::function<void(Args*)> run_;
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_INGREDIENTS_H_
