// The constants of the cost models: what each means, and where it was measured. Plans that have not been
// tuned (intact_…_tune) choose engines, register blocks and layouts by them. `intact_bench --suite tune`
// lists choices that are wrong on this CPU.
//
// Costs are compared within a plan only, so their unit depends on the plan's ISA: the time that the ISA's own
// sequence (vpdpbusd with VNNI, the maddubs sequence without) takes for a vector of columns and a k-quad of a
// row.
#ifndef INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_
#define INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_

#include <array>
#include <cstdint>

namespace intact::kernels::costs {

// ----- register blocks of panels (block_cost.h), in dot products -------------------------------------------

// With VNNI, two products a cycle. The cost of a tile was measured on a CPU that is not recorded. The costs
// of vectors are set so that the model chooses the blocks that were faster on that CPU, for convolutions of 7
// to 56 lines. AmxEngine assumes this rate of L2 too.
inline constexpr double kTileCost = 70;        // the epilogue, and the code before the products
inline constexpr double kInFlight = 10;        // minimum time of a quad, in products: the latency
inline constexpr double kVectorFromL2 = 3.7;   // a vector of 64 bytes: 34 B per cycle
inline constexpr double kVectorPassing = 0.3;  // a vector, if products hide its load
// The cost of a product if registers are too few for a vector of weights, so that each row reads the vector
// from memory.
inline constexpr double kVectorFromMemory = 1.02;

// Variants that are exact without VNNI have costs for: a product; a vector of weights, which a tile's rows
// share (to widen it and to load it from the caches); a tile; a row of a vector of 8-bit outputs (products
// hide the cost of 4-byte outputs); and, if A is staged, each tap of a row and each quad of a row.
// (Assumed: the in-place variant copies rows only if it cannot read A in place.)
struct PanelCosts {
  double product, vector, tile, output, row, row_quad;
};
struct VariantCosts {
  PanelCosts wide, in_place, split, cut;
};
// Assumed: a few quads of each panel are cut.
inline constexpr PanelCosts kCutPanels = {1.1, 0.2, 11, 3.0, 20, 0.2};
// Fitted to 1,900 GEMMs of 1 to 3136 rows, 16 to 1024 columns and depths of 12 to 4096 on Zen 3. Variants
// were timed in turns.
inline constexpr VariantCosts kVariantsOnAmd = {
    {1.30, 0.77, 9, 2.9, 23, 0.55}, {1.40, 0.84, 11, 3.0, 20, 0.2}, {1.35, 0.3, 8, 4.9, 26, 0.5}, kCutPanels};
// Not measured. The costs of products and vectors are counted instructions, for three vector ports, two of
// them with multiplication and shifts.
inline constexpr VariantCosts kVariantsElsewhere = {
    {1.33, 1.0, 9, 2.9, 23, 0.55}, {1.67, 1.0, 11, 3.0, 20, 0.2}, {1.5, 0.5, 8, 4.9, 26, 0.5}, kCutPanels};
inline constexpr double kCall = 32;  // a call of a kernel of these variants

// A runtime B (unpacked_engine.h), in half cycles. `quad`: for a quad of 16 columns and kUnpackedRows rows of A;
// `row`: for a quad and one row; `outputs`: for a row of 16 outputs. kPacked…: for packing a quad.
// Measured on an Intel Xeon with AMX (CPUID family 6, model 167) with B of 64×64, 64×512 and 768×768.
struct UnpackedCosts {
  double quad, row, outputs;
};
inline constexpr double kPackedRows = 18, kPackedColumns = 15;  // contiguous rows of B, contiguous columns
inline constexpr double kPackedFarRows = 60;                    // rows, if L2 does not hold B
inline constexpr int kUnpackedRows = 4;
inline constexpr UnpackedCosts kSplitRows = {5.0, 8.2, 38}, kSplitColumns = {1.4, 6.5, 115};
inline constexpr UnpackedCosts kVnniRows = {5.2, 1.6, 28}, kVnniColumns = {0.3, 3.6, 62};
// Half cycles of vpdpbusd, or of the maddubs sequence, for a quad of 16 columns.
inline constexpr double kYmmMaddubs = 4, kZmmMaddubs = 3, kYmmVnni = 2, kZmmVnni = 1;

// The scheduled variant, fitted to these 1,900 GEMMs.
inline constexpr double kItemRow = 0.64;   // a row of an item
inline constexpr double kGroupRow = 0.39;  // a row of a group
inline constexpr double kItem = 1.33;      // an item, without its rows
inline constexpr double kScheduledTile = 16;
inline constexpr double kVectorStrip = 25;  // a call: the first tile's loop exits are mispredicted
inline constexpr double kVectorOutput = 0.4, kVectorByteOutput = 3.9;  // a row of a vector of outputs

// ----- schedules whose rows fill the lanes (scheduled_engine.h), in maddubs sequences ----------------------

/// A way to run a schedule: its register block, and the costs of an item and of a group, relative to the
/// maddubs sequence's time for a quad.
struct StripVariant {
  int columns;
  int vectors;
  double item_cost;
  double group_cost;
  int blocks = 1;  // register blocks in a tile of a planar band
};
// Strips of several columns, and of a single column, which suits any weights.
using Variants = std::array<StripVariant, 2>;

// Time for half a vector of rows on a kernel for pairs of columns, relative to a vector of a full block;
// measured on Zen 3 for ymm, and assumed for zmm.
inline constexpr double kPairedShare = 1.05;

// Fitted to the kernel's rates with Laplace, Gaussian and uniform weights on Zen 4.
inline constexpr Variants kYmmVariants = {StripVariant{2, 3, 0.70, 0.43}, StripVariant{1, 4, 0.85, 0.43}};
inline constexpr Variants kZmmVariants = {StripVariant{2, 4, 0.69, 0.55}, StripVariant{1, 4, 0.78, 0.30}};

// From a planar band, whose vectors straddle cache lines: each load counts twice, so several columns should
// share it. Fitted to Laplace weights on Emerald Rapids. With VPDPBUSD, a quad is one item, and registers
// suffice for all accumulators.
inline constexpr Variants kPlanarYmmVariants = {StripVariant{2, 3, 0.67, 0.33, 5},
                                                StripVariant{1, 4, 0.79, 0.39, 2}};
inline constexpr Variants kPlanarZmmVariants = {StripVariant{2, 4, 0.67, 0.33, 2},
                                                StripVariant{1, 4, 0.89, 0.45, 2}};
inline constexpr Variants kPlanarYmmVnniVariants = {StripVariant{4, 3, 1.0, 0.0, 3},
                                                    StripVariant{1, 4, 1.5, 0.0, 2}};
inline constexpr Variants kPlanarZmmVnniVariants = {StripVariant{4, 4, 1.0, 0.0},
                                                    StripVariant{1, 4, 1.5, 0.0, 2}};

// Costs in addition to items, fitted on Zen 3 to the 1,900 GEMMs: packing a quad; a vector of outputs of a
// row; and entering a strip, because the first loop exits of a strip are mispredicted.
inline constexpr double kPackedQuad = 0.7;
inline constexpr double kTurnedOutputs = 4.4, kTurnedByteOutputs = 4.5;
inline constexpr double kStripTurn = 6;
// A run of fewer columns than kFittedColumns costs more than a run of panels: it packs rows and turns outputs,
// even for one output. Measured on an Intel Xeon with AMX (CPUID family 6, model 167) with 1 to 32 rows, 1 to
// 32 columns and depths of 1 to 256.
inline constexpr double kScheduledRun = 80;
inline constexpr int64_t kFittedColumns = 16;  // the fewest columns of the 1,900 GEMMs
// Strips of up to kShallowQuads quads use groups of up to kShallowGroup items. In these strips, mispredicted
// exits of the loops for each group size cost more than larger groups save. Measured on Zen 3 at 10 to 192
// quads.
inline constexpr int64_t kShallowQuads = 64;
inline constexpr int kShallowGroup = 4;
// The share of the time that grows with the loads per product, if a block has fewer vectors than the variant.
// Measured for one-vector blocks: 1.4 times the time per vector on Zen 4, 1.75 on Zen 3, which loads two ymm
// a cycle.
inline constexpr double kLoadShare = 0.75;
inline constexpr double kZmmLoadShare = 0.4;

// ----- tiles (amx_engine.h) --------------------------------------------------------------------------------

// In dot products of AVX-512-VNNI, because tiles compete with its kernels. Costs of: a run, which configures
// the tiles; a block of up to 2×2 tiles of C; a product of two tiles, and each of its rows; loading a tile of
// B; a row of 16 outputs; and staging 64 bytes of a row, if k is no multiple of 64. Fitted on an Intel Xeon
// with AMX (CPUID family 6, model 167; 2 MiB L2) to 1,764 GEMMs of 1 to 128 rows, 16 to 3072 columns and
// depths of 16 to 3072, to minimize the time that wrong choices lose: 0.5 % on geometric mean; 35 choices
// lose more than 10 %, the worst 65 % (1×16×3072).
inline constexpr double kTileRun = 2290;
inline constexpr double kTileBlock = 51;
inline constexpr double kTileProduct = 40, kTileProductRow = 0.79;
inline constexpr double kTileLoad = 17;
// As kTileLoad, if L2 does not hold the weights. Up to three rows then choose VNNI kernels, which prefetch for
// up to two rows: measured 1.05 times as fast at 1×768×3072 on the same CPU.
inline constexpr double kTileLoadFar = 20;
inline constexpr double kTileOutputRow = 6;
inline constexpr double kTileStagedRow = 8.2;

// Copying a tap of a row costs kCopyCycles, plus kCopyTileCycles for each 64 bytes; assumed.
inline constexpr double kCopyCycles = 8;
inline constexpr double kCopyTileCycles = 3;
// Minimum time of four dot products of a block, which wait for each other.
inline constexpr double kDotLatency = 52;
// Up to this number of panels, reading A in place (from L2 for each block) is faster than staging; assumed.
inline constexpr int64_t kFewPanels = 4;

// ----- layouts of convolutions (conv_layout.h, conv_plan.h, depthwise_conv.h) ------------------------------

// It is not recorded on which CPU the following constants were found.

// With VNNI, groups whose columns do not fill whole vectors, or whose weights have zero points, read a planar
// band if their output channels fill fewer vectors than this.
inline constexpr int64_t kPlanarVectors = 4;
// Groups that fill a vector only together read a planar band if their output channels × strides are fewer
// than this, because each pixel that outputs read is transposed.
inline constexpr int64_t kPlanarOutputs = 16;
// With VNNI, a single group of few outputs reads a planar band if it has at least this number of input
// channels. Found on the Xeon with AMX that is named above, with convolutions of 1 to 256 channels to 1 to 16
// outputs, 14×14 to 112×112.
inline constexpr int64_t kLeastPlanarInputs = 8;
// Taps may be padded to whole tiles if all padded taps together have at most kFewPaddedDepths depths, or if a
// padded tap is at most kMostPaddedGrowth times as deep.
inline constexpr int64_t kFewPaddedDepths = 4096;
inline constexpr int64_t kMostPaddedGrowth = 4;
// Kernels share the pixels of adjacent taps if lines have at least kLeastSharingRows rows, and the taps,
// which are unrolled, at most kMostSharingQuads k-quads.
inline constexpr int64_t kLeastSharingRows = 4;
inline constexpr int64_t kMostSharingQuads = 32;
// Output pixels that lie apart are computed line by line if lines have at least this number of pixels; else
// they are copied from scratch.
inline constexpr int64_t kLeastLineRows = 12;
// Depthwise kernels are unrolled for filters of at most this number of taps. On Zen 3 (56×56×64), unrolled
// kernels take 0.82 to 0.92 of the time up to 15×15, and 1.2 to 1.4 times as long from 21×21 on, with ten
// times the code.
inline constexpr int64_t kMostUnrolledTaps = 225;
// A depthwise convolution reads lines in place if at least this number of pixels of a line needs no padding.
// For fewer pixels, the calls for the columns at both sides cost more than reading in place saves.
inline constexpr int64_t kLeastInnerPixels = 8;

}  // namespace intact::kernels::costs
#endif  // INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_
