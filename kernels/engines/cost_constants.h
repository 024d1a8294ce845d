// The constants of the cost models, by which plans choose engines, register blocks and layouts where no
// stopwatch has chosen (intact_…_tune): what each means, and where it was measured. What choices they lead to
// that are wrong on a CPU is told by `intact_bench --suite tune`.
//
// Costs are compared within a plan only, so their unit is that of the plan's ISA: the time that the ISA's own
// sequence takes for a vector of columns and a k-quad of a row, vpdpbusd with VNNI and the maddubs sequence before it.
#ifndef INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_
#define INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_

#include <array>
#include <cstdint>

namespace intact::kernels::costs {

// ----- register blocks of panels (block_cost.h), in dot products -------------------------------------------

// With VNNI, two products a cycle. What a tile costs is measured, on a CPU that is not recorded; those of
// vectors are set so that the blocks win that were faster on convolutions of 7 to 56 lines there, and L2's
// rate is the one that AmxEngine assumes.
inline constexpr double kTileCost = 70;        // its epilogue, and what comes before the products
inline constexpr double kInFlight = 10;        // products of a quad that the latency takes at least
inline constexpr double kVectorFromL2 = 3.7;   // of 64 bytes: 34 B a cycle
inline constexpr double kVectorPassing = 0.3;  // what it costs beside where products hide that
inline constexpr double kVectorFromMemory =
    1.02;  // per product, where a vector of weights is read for each row

// What variants take that are exact without VNNI: a product; a vector of weights, which a tile's rows share (its
// widening, its way from the caches); a tile; a row of a vector of outputs of a byte, which those of four
// bytes do not take beside products; and where A is staged, each tap of its rows, and each quad of these.
// (The in-place variant reads A where it is if it can, and copies rows elsewhere: assumed.)
struct PanelCosts {
  double product, vector, tile, output, row, row_quad;
};
struct VariantCosts {
  PanelCosts wide, in_place, split;
};
// Fitted to 1,900 GEMMs of 1 to 3136 rows, 16 to 1024 columns and depths of 12 to 4096 on Zen 3, each variant in
// turns with the others.
inline constexpr VariantCosts kVariantsOnAmd = {
    {1.30, 0.77, 9, 2.9, 23, 0.55}, {1.40, 0.84, 11, 3.0, 20, 0.2}, {1.35, 0.3, 8, 4.9, 26, 0.5}};
// Products and vectors counted, for three vector ports of which two multiply and shift; not measured.
inline constexpr VariantCosts kVariantsElsewhere = {
    {1.33, 1.0, 9, 2.9, 23, 0.55}, {1.67, 1.0, 11, 3.0, 20, 0.2}, {1.5, 0.5, 8, 4.9, 26, 0.5}};
inline constexpr double kCall = 32;  // of their kernels

// The scheduled variant, fitted to the same GEMMs.
inline constexpr double kItemRow = 0.64;   // a row of an item
inline constexpr double kGroupRow = 0.39;  // a row of a group
inline constexpr double kItem = 1.33;      // an item beside its rows
inline constexpr double kScheduledTile = 16;
inline constexpr double kVectorStrip = 25;  // a call, whose loops end unpredicted for the first tile
inline constexpr double kVectorOutput = 0.4, kVectorByteOutput = 3.9;  // a row of a vector of outputs

// ----- schedules whose rows fill the lanes (scheduled_engine.h), in maddubs sequences ----------------------

/// A way to run a schedule: its register block, and what an item and a group cost, as shares of the time that
/// the maddubs sequence takes for a quad.
struct StripVariant {
  int columns;
  int vectors;
  double item_cost;
  double group_cost;
  int blocks = 1;  // of registers, in a tile of a planar band
};
// Strips of several columns, and of one, which suits any weights.
using Variants = std::array<StripVariant, 2>;

// What half a vector of rows takes on a kernel for pairs of columns, of the time for a vector of a full
// block; measured on Zen 3 for ymm, taken for zmm.
inline constexpr double kPairedShare = 1.05;

// Fitted to the kernel's rates with Laplace, Gaussian and uniform weights on Zen 4.
inline constexpr Variants kYmmVariants = {StripVariant{2, 3, 0.70, 0.43}, StripVariant{1, 4, 0.85, 0.43}};
inline constexpr Variants kZmmVariants = {StripVariant{2, 4, 0.69, 0.55}, StripVariant{1, 4, 0.78, 0.30}};

// From a planar band, whose vectors lie across cache lines: each load counts twice there, so that several
// columns should share it. Fitted to Laplace weights on Emerald Rapids. With VPDPBUSD there is one item a
// quad, and as many registers as accumulators need.
inline constexpr Variants kPlanarYmmVariants = {StripVariant{2, 3, 0.67, 0.33, 5},
                                                StripVariant{1, 4, 0.79, 0.39, 2}};
inline constexpr Variants kPlanarZmmVariants = {StripVariant{2, 4, 0.67, 0.33, 2},
                                                StripVariant{1, 4, 0.89, 0.45, 2}};
inline constexpr Variants kPlanarYmmVnniVariants = {StripVariant{4, 3, 1.0, 0.0, 3},
                                                    StripVariant{1, 4, 1.5, 0.0, 2}};
inline constexpr Variants kPlanarZmmVnniVariants = {StripVariant{4, 4, 1.0, 0.0},
                                                    StripVariant{1, 4, 1.5, 0.0, 2}};

// What rows cost beside items, fitted on Zen 3 to the GEMMs above: a quad to be packed; as many outputs as a
// vector of columns has; and a strip each time that the kernel comes to it, when its loops end unpredicted.
inline constexpr double kPackedQuad = 0.7;
inline constexpr double kTurnedOutputs = 4.4, kTurnedByteOutputs = 4.5;
inline constexpr double kStripTurn = 6;
// Strips of so many quads or fewer have groups of few items: the loops for each number of items end
// unpredicted, which takes longer than what groups of more items save. Measured on Zen 3 at 10 to 192 quads.
inline constexpr int64_t kShallowQuads = 64;
inline constexpr int kShallowGroup = 4;
// How much of the time grows with the loads a product takes, where a block has fewer vectors than the variant:
// measured 1.4 times the time for one vector on Zen 4, 1.75 on Zen 3, whose ymm take two loads a cycle.
inline constexpr double kLoadShare = 0.75;
inline constexpr double kZmmLoadShare = 0.4;

// ----- tiles (amx_engine.h) --------------------------------------------------------------------------------

// In dot products of AVX-512-VNNI, with whose kernels tiles compete: a run, which configures the tiles; a
// block of up to 2×2 tiles of C; a product of two tiles, and each of its rows; a tile of B to load; a row of
// 16 outputs; and where k is no multiple of 64, a row's 64 bytes to stage. Fitted on an Intel Xeon with AMX
// (CPUID family 6, model 167; 2 MiB L2) to 1,764 GEMMs of 1 to 128 rows, 16 to 3072 columns and depths of 16
// to 3072, so that the least time is lost by wrong choices: 0.5 % on geometric mean; 35 choices lose more
// than 10 %, the worst 65 % (1×16×3072).
inline constexpr double kTileRun = 2290;
inline constexpr double kTileBlock = 51;
inline constexpr double kTileProduct = 40, kTileProductRow = 0.79;
inline constexpr double kTileLoad = 17;
inline constexpr double kTileOutputRow = 6;
inline constexpr double kTileStagedRow = 8.2;

// Copying a tap of a row costs the first, and each 64 bytes of it the second; assumed too.
inline constexpr double kCopyCycles = 8;
inline constexpr double kCopyTileCycles = 3;
// What a dot product takes at least in a block of four, which wait for each other.
inline constexpr double kDotLatency = 52;
// Panels for which reading A in place, from L2 again for each block, beats staging it; assumed.
inline constexpr int64_t kFewPanels = 4;

// ----- layouts of convolutions (conv_layout.h, conv_plan.h, depthwise_conv.h) ------------------------------

// On which CPU these were found is not recorded.

// With VNNI, groups whose columns fill no whole vectors, or whose weights have zero points, come from a
// planar band if their output channels are fewer than so many vectors.
inline constexpr int64_t kPlanarVectors = 4;
// Groups that fill a vector only together do so if their output channels times the strides are fewer: each
// pixel that outputs read is transposed.
inline constexpr int64_t kPlanarOutputs = 16;
// How many depths taps that are padded for tiles may have; they may have more if that is at most so many
// times as many as without the padding.
inline constexpr int64_t kFewPaddedDepths = 4096;
inline constexpr int64_t kMostPaddedGrowth = 4;
// Kernels share the pixels of taps side by side where lines have so many rows or more, and the taps, which
// are unrolled, so many k-quads or fewer.
inline constexpr int64_t kLeastSharingRows = 4;
inline constexpr int64_t kMostSharingQuads = 32;
// Output whose pixels lie apart is run line by line where lines have so many pixels or more, and elsewhere
// copied from scratch.
inline constexpr int64_t kLeastLineRows = 12;
// Depthwise kernels are unrolled for filters of so many taps or fewer. On Zen 3 (56×56×64) unrolled ones take
// 0.82 to 0.92 of the time up to 15×15, and 1.2 to 1.4 times as long from 21×21 on, with ten times the code.
inline constexpr int64_t kMostUnrolledTaps = 225;
// A depthwise convolution reads lines in place where so many pixels of them or more lie within the input:
// fewer are not worth the calls for the columns beside them.
inline constexpr int64_t kLeastInnerPixels = 8;

}  // namespace intact::kernels::costs
#endif  // INTACT_KERNELS_ENGINES_COST_CONSTANTS_H_
