// The constants of the cost models, one table for each CPU that was measured. Plans that have not been tuned
// (intact_…_tune) choose engines, register blocks and layouts by these constants. The bytes of C never depend
// on the constants.
//
//   `intact_bench fit FILE`  measures this CPU and writes its table (cost_tables/*.inc)
//   `intact_bench tune`      lists choices that are wrong on this CPU
//   `intact info`                  says which table this CPU uses
//
// Costs are compared within a plan only, so their unit depends on the plan's ISA. The unit is a *product*:
// the time of the ISA's own sequence for a vector of columns and a k-quad of a row. This sequence is vpdpbusd
// with VNNI, and the maddubs sequence without VNNI.
#ifndef INTACT_KERNELS_ENGINES_COST_TABLE_H_
#define INTACT_KERNELS_ENGINES_COST_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/isas.h"
#include "core/result.h"
#include "jit/isa.h"
#include "kernels/codegen/kernel_costs.h"

namespace intact::kernels {

/// A runtime B that is not packed (unpacked_engine.h), in half cycles.
struct UnpackedCosts {
  double quad = 0;     // a quad of 16 columns and UnpackedProduct::kRowsAtOnce rows of A
  double row = 0;      // a quad of 16 columns and one row
  double outputs = 0;  // a row of 16 outputs
};

/// A runtime B, in half cycles.
struct RuntimeCosts {
  // Packing a quad of 16 columns: contiguous rows of B; contiguous columns; contiguous rows, if L2 does not
  // hold B.
  double packed_rows = 0, packed_columns = 0, packed_far_rows = 0;
  // Registers are as named, or ymm for split and zmm for VNNI.
  UnpackedCosts split_rows, zmm_split_rows, split_columns, vnni_rows, ymm_vnni_rows, vnni_columns;
};

/// Tiles (amx_engine.h), in products of AVX-512-VNNI, because tiles compete with its kernels.
struct TileCosts {
  double run = 0;          // a run, which configures the tiles
  double block = 0;        // a block of up to 2×2 tiles of C
  double product = 0;      // a product of two tiles, of any number of rows
  double load = 0;         // loading a tile of B
  double load_far = 0;     // loading a tile of B, if L2 does not hold the weights
  double output = 0;       // a row of 16 4-byte outputs
  double byte_output = 0;  // a row of 16 8-bit outputs
  double staged_row = 0;   // 64 bytes of a row in addition, if k is no multiple of 64
  // In cycles: copying a tap of a row, and each 64 bytes of the tap.
  double copy = 0, copy_tile = 0;
};

/// Limits between layouts and kernels (conv_layout.h, unit_conv.h, depthwise_conv.h, scheduled_sums.h). The
/// fit does not measure them.
struct LayoutLimits {
  // With tiles: up to this number of panels, A is read in place (from L2 for each block) rather than staged.
  int64_t few_panels = 0;
  // With VNNI, a group may read a planar band if its output channels fill fewer vectors than this. Condition: the
  // group's columns do not fill whole vectors, or its weights have zero points.
  int64_t planar_vectors = 0;
  // Groups that fill a vector only together read a planar band if their output channels × strides are fewer
  // than this. Reason: each pixel that outputs read is transposed.
  int64_t planar_outputs = 0;
  // With VNNI, a single group of few outputs reads a planar band if it has at least this number of inputs.
  int64_t least_planar_inputs = 0;
  // With VNNI, a pixel of a planar band of a single group costs this number of half cycles in addition to its products:
  // it is transposed, and so are its outputs. Compared with narrow kernels only.
  int64_t planar_pixel = 0;
  // Taps may be padded to whole tiles if all padded taps together have at most few_padded_depths depths, or
  // if a padded tap is at most most_padded_growth times as deep.
  int64_t few_padded_depths = 0, most_padded_growth = 0;
  // Kernels share the pixels of adjacent taps if lines have at least least_sharing_rows rows, and the taps
  // have at most most_sharing_quads k-quads. The taps are then unrolled.
  int64_t least_sharing_rows = 0, most_sharing_quads = 0;
  // Output pixels that lie apart are computed line by line if lines have at least this number of pixels.
  // Otherwise the pixels are copied from scratch.
  int64_t least_line_rows = 0;
  // Depthwise kernels are unrolled for filters of at most this number of taps.
  int64_t most_unrolled_taps = 0;
  // A single input channel is repeated, as for a depthwise convolution, for at most this number of outputs.
  // The second limit is for taps that lie apart. Panels cannot join these taps.
  int64_t most_repeats = 0, most_apart_repeats = 0;
  // Without VNNI, a channel is repeated for at most this number of outputs × taps, unless taps lie apart.
  int64_t most_repeated_weights = 0;
  // A depthwise convolution in place calls a kernel for each column of outputs at both sides. The cost of a
  // call, and the cost of one pixel in a call, in bytes copied.
  int64_t column_call = 0, column_pixel = 0;
  // Strips of up to shallow_quads quads use groups of up to shallow_group items. In these strips,
  // mispredicted exits of the loops for each group size cost more than larger groups save.
  int64_t shallow_quads = 0, shallow_group = 0;
  // If C has fewer columns than this, schedules that fill the lanes with rows cost schedule.run and
  // schedule.edge_row in addition.
  int64_t run_columns = 0;
  // The branch predictor remembers the loop exits of this number of strips from one tile to the next. With
  // more strips, entering a strip costs new_strip times schedule.strip.
  int64_t learned_strips = 0, new_strip = 0;
  // VNNI kernels with s32 outputs multiply a tile's rows in two parts (PanelLoop::in_parts) if the tile
  // has more accumulators than this.
  int64_t most_waiting_vectors = 0;
  // Padding is skipped if skipping saves at least this time per row, in the mean of a line's rows.
  int64_t least_skipped = 0;
  // VNNI kernels of up to fetching_rows rows fetch each line of a panel at a distance of panel_ahead bytes.
  // Scheduled kernels fetch a strip into L2 at a distance of strip_ahead bytes.
  int64_t fetching_rows = 0, panel_ahead = 0, strip_ahead = 0;
  // If not 0, row kernels (row_kernel.h) multiply one row. This is the distance in bytes at which they fetch weights that L2
  // does not hold.
  int64_t row_ahead = 0;
  // In VNNI kernels with zmm registers, two rows share the last vector if it has at most this number of columns, at most
  // half of the lanes (MicrokernelSpec::pairs_rows). This pays if masked loads take no port of products.
  int64_t shared_columns = 0;
  // Rows of C share few memory banks if their distance is a multiple of 512 bytes, but not of 4096. Some kernels store
  // one line of each row at a time. They write such rows past the caches only from this number of quads on: panel
  // kernels; kernels that fill their lanes with rows.
  int64_t streaming_panel_quads = 0, streaming_row_quads = 0;
  // If L3 has room for C, lines of C are written past the caches only if the products for a line take at least
  // this time.
  double streaming_half_cycles = 0;
  // Schedules that fill the lanes with rows pack each row tap by tap. Each tap after the first costs this number of
  // products, in addition to its quads.
  double packed_tap = 0;
};

struct CostTable {
  VectorCosts ymm, zmm;
  RuntimeCosts runtime;
  TileCosts tiles;
  LayoutLimits layout;

  /// The costs of kernels on `isa`, by its registers.
  const VectorCosts& Of(core::Isa isa) const {
    return core::TraitsOf(isa).vectors.bytes == core::kZmm.bytes ? zmm : ymm;
  }
};

/// Visits the constants of one vector register: see ForEachCost(). `path` comes before their names.
template <class Costs, class Visit>
void ForEachVectorCost(const std::string& path, Costs& vector, const Visit& visit) {
  constexpr const char* kProducts = "products";
  constexpr const char* kHalfCycles = "half cycles";
  const auto panel = [&](const std::string& kernel, auto& costs) {
    visit(kernel + ".product", kProducts, costs.product);
    visit(kernel + ".vector", kProducts, costs.vector);
    visit(kernel + ".tile", kProducts, costs.tile);
    visit(kernel + ".output", kProducts, costs.output);
    visit(kernel + ".row", kProducts, costs.row);
    visit(kernel + ".row_quad", kProducts, costs.row_quad);
  };
  const auto strip = [&](const std::string& kernel, auto& costs) {
    visit(kernel + ".item", kProducts, costs.item);
    visit(kernel + ".group", kProducts, costs.group);
  };
  visit(path + ".half_cycles_maddubs", kHalfCycles, vector.half_cycles_maddubs);
  visit(path + ".half_cycles_vnni", kHalfCycles, vector.half_cycles_vnni);
  visit(path + ".vnni.tile", kProducts, vector.vnni.tile);
  visit(path + ".vnni.in_flight", kProducts, vector.vnni.in_flight);
  visit(path + ".vnni.vector_from_l2", kProducts, vector.vnni.vector_from_l2);
  visit(path + ".vnni.vector_passing", kProducts, vector.vnni.vector_passing);
  visit(path + ".vnni.output", kProducts, vector.vnni.output);
  visit(path + ".vnni.byte_output", kProducts, vector.vnni.byte_output);
  panel(path + ".wide", vector.wide);
  panel(path + ".in_place", vector.in_place);
  panel(path + ".split", vector.split);
  panel(path + ".cut", vector.cut);
  visit(path + ".panel_call", kProducts, vector.panel_call);
  visit(path + ".far_line", kHalfCycles, vector.far_line);
  auto& scheduled = vector.scheduled_panels;
  visit(path + ".scheduled_panels.item_row", kProducts, scheduled.item_row);
  visit(path + ".scheduled_panels.group_row", kProducts, scheduled.group_row);
  visit(path + ".scheduled_panels.item", kProducts, scheduled.item);
  visit(path + ".scheduled_panels.far_line", kHalfCycles, scheduled.far_line);
  visit(path + ".scheduled_panels.tile", kProducts, scheduled.tile);
  visit(path + ".scheduled_panels.call", kProducts, scheduled.call);
  visit(path + ".scheduled_panels.output", kProducts, scheduled.output);
  visit(path + ".scheduled_panels.byte_output", kProducts, scheduled.byte_output);
  auto& schedule = vector.schedule;
  strip(path + ".schedule.columns", schedule.columns);
  strip(path + ".schedule.column", schedule.column);
  strip(path + ".schedule.planar_columns", schedule.planar_columns);
  strip(path + ".schedule.planar_column", schedule.planar_column);
  strip(path + ".schedule.planar_vnni_columns", schedule.planar_vnni_columns);
  strip(path + ".schedule.planar_vnni_column", schedule.planar_vnni_column);
  visit(path + ".schedule.packed_quad", kProducts, schedule.packed_quad);
  visit(path + ".schedule.output", kProducts, schedule.output);
  visit(path + ".schedule.byte_output", kProducts, schedule.byte_output);
  visit(path + ".schedule.strip", kProducts, schedule.strip);
  visit(path + ".schedule.paired_share", "ratio", schedule.paired_share);
  visit(path + ".schedule.load_share", "ratio", schedule.load_share);
  visit(path + ".schedule.far_line", kProducts, schedule.far_line);
  visit(path + ".schedule.run", kProducts, schedule.run);
  visit(path + ".schedule.edge_row", kProducts, schedule.edge_row);
  const auto narrow = [&](const std::string& kernel, auto& costs) {
    visit(kernel + ".run", kHalfCycles, costs.run);
    visit(kernel + ".call", kHalfCycles, costs.call);
    visit(kernel + ".copied_row", kHalfCycles, costs.copied_row);
    visit(kernel + ".row", kHalfCycles, costs.row);
    visit(kernel + ".step", kHalfCycles, costs.step);
    visit(kernel + ".whole_row", kHalfCycles, costs.whole_row);
    visit(kernel + ".whole_step", kHalfCycles, costs.whole_step);
  };
  narrow(path + ".narrow_vnni", vector.narrow_vnni);
  narrow(path + ".narrow_wide", vector.narrow_wide);
}

/// Calls visit(name, unit, value) for each constant, in the table's order: "ymm.wide.product", "products",
/// and a reference to the double or int64_t.
template <class Table, class Visit>
void ForEachCost(Table& table, const Visit& visit) {
  constexpr const char* kProducts = "products";
  ForEachVectorCost("ymm", table.ymm, visit);
  ForEachVectorCost("zmm", table.zmm, visit);
  constexpr const char* kHalfCycles = "half cycles";
  visit("runtime.packed_rows", kHalfCycles, table.runtime.packed_rows);
  visit("runtime.packed_columns", kHalfCycles, table.runtime.packed_columns);
  visit("runtime.packed_far_rows", kHalfCycles, table.runtime.packed_far_rows);
  const auto unpacked = [&](const std::string& path, auto& costs) {
    visit(path + ".quad", kHalfCycles, costs.quad);
    visit(path + ".row", kHalfCycles, costs.row);
    visit(path + ".outputs", kHalfCycles, costs.outputs);
  };
  unpacked("runtime.split_rows", table.runtime.split_rows);
  unpacked("runtime.zmm_split_rows", table.runtime.zmm_split_rows);
  unpacked("runtime.split_columns", table.runtime.split_columns);
  unpacked("runtime.vnni_rows", table.runtime.vnni_rows);
  unpacked("runtime.ymm_vnni_rows", table.runtime.ymm_vnni_rows);
  unpacked("runtime.vnni_columns", table.runtime.vnni_columns);
  visit("tiles.run", kProducts, table.tiles.run);
  visit("tiles.block", kProducts, table.tiles.block);
  visit("tiles.product", kProducts, table.tiles.product);
  visit("tiles.load", kProducts, table.tiles.load);
  visit("tiles.load_far", kProducts, table.tiles.load_far);
  visit("tiles.output", kProducts, table.tiles.output);
  visit("tiles.byte_output", kProducts, table.tiles.byte_output);
  visit("tiles.staged_row", kProducts, table.tiles.staged_row);
  visit("tiles.copy", "cycles", table.tiles.copy);
  visit("tiles.copy_tile", "cycles", table.tiles.copy_tile);
  auto& layout = table.layout;
  visit("layout.few_panels", "panels", layout.few_panels);
  visit("layout.planar_vectors", "vectors", layout.planar_vectors);
  visit("layout.planar_outputs", "channels", layout.planar_outputs);
  visit("layout.least_planar_inputs", "channels", layout.least_planar_inputs);
  visit("layout.planar_pixel", "half cycles", layout.planar_pixel);
  visit("layout.few_padded_depths", "depths", layout.few_padded_depths);
  visit("layout.most_padded_growth", "times", layout.most_padded_growth);
  visit("layout.least_sharing_rows", "rows", layout.least_sharing_rows);
  visit("layout.most_sharing_quads", "quads", layout.most_sharing_quads);
  visit("layout.least_line_rows", "pixels", layout.least_line_rows);
  visit("layout.most_unrolled_taps", "taps", layout.most_unrolled_taps);
  visit("layout.most_repeats", "channels", layout.most_repeats);
  visit("layout.most_apart_repeats", "channels", layout.most_apart_repeats);
  visit("layout.most_repeated_weights", "weights", layout.most_repeated_weights);
  visit("layout.column_call", "bytes", layout.column_call);
  visit("layout.column_pixel", "bytes", layout.column_pixel);
  visit("layout.shallow_quads", "quads", layout.shallow_quads);
  visit("layout.shallow_group", "items", layout.shallow_group);
  visit("layout.run_columns", "columns", layout.run_columns);
  visit("layout.learned_strips", "strips", layout.learned_strips);
  visit("layout.new_strip", "times", layout.new_strip);
  visit("layout.most_waiting_vectors", "vectors", layout.most_waiting_vectors);
  visit("layout.least_skipped", "half cycles", layout.least_skipped);
  visit("layout.fetching_rows", "rows", layout.fetching_rows);
  visit("layout.panel_ahead", "bytes", layout.panel_ahead);
  visit("layout.strip_ahead", "bytes", layout.strip_ahead);
  visit("layout.row_ahead", "bytes", layout.row_ahead);
  visit("layout.shared_columns", "columns", layout.shared_columns);
  visit("layout.streaming_panel_quads", "quads", layout.streaming_panel_quads);
  visit("layout.streaming_row_quads", "quads", layout.streaming_row_quads);
  visit("layout.streaming_half_cycles", "half cycles", layout.streaming_half_cycles);
  visit("layout.packed_tap", kProducts, layout.packed_tap);
}

/// A table of the tree, and the CPU that it was measured on.
struct CpuCosts {
  std::string_view name;
  std::string_view vendor;  // as in jit::CpuKind
  uint32_t family, first_model, last_model;
  core::IsaSet isas;  // the ISAs of the CPU; no others were measured
  CostTable costs;

  bool IsOf(const jit::CpuKind& cpu) const {
    return cpu.vendor == vendor && cpu.family == family && cpu.model >= first_model &&
           cpu.model <= last_model;
  }
};

/// The tables of the tree.
std::span<const CpuCosts> CpuTables();

/// The table of `cpu`, or else the nearest. Vector ports are alike within a vendor, so these rules apply in
/// turn: a table of the vendor; the fewest ISAs of `isas` that the table's CPU lacks; the fewest further
/// ISAs.
const CpuCosts& CostsFor(const jit::CpuKind& cpu, core::IsaSet isas);

/// The table of this process, chosen once.
const CostTable& Costs();

/// Half cycles of vpdpbusd, or of the maddubs sequence, for a quad of 16 columns. `isa` has vectors.
double HalfCycles(core::Isa isa);

/// Makes Costs() return a copy of `table` from now on. Existing plans use some of the new costs, so call this
/// function while no plan is used. For tests, and to fit a table.
void SetCosts(const CostTable& table);

/// The text of a table: a line "table.NAME = VALUE;  // UNIT" for each constant. A file of this text is
/// included by cost_table.cc.
std::string ToText(const CostTable& table);
/// The table that `text` contains. Error if a line has another form, if a constant is unknown, given twice or
/// missing, or if its value is not a number of at least 0. Lines that begin with "//" are comments.
Result<CostTable> ParseCostTable(std::string_view text);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_COST_TABLE_H_
