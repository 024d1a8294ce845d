// The constants of the cost models of vector kernels. cost_table.h has their values for each CPU, and says what
// a *product* is, their unit.
#ifndef INTACT_KERNELS_CODEGEN_KERNEL_COSTS_H_
#define INTACT_KERNELS_CODEGEN_KERNEL_COSTS_H_

namespace intact::kernels {

/// A register block of panels whose products need no more than the ISA's own sequence (block_cost.h).
struct VnniCosts {
  double tile = 0;       // a tile: the epilogue, and the code before the products
  double in_flight = 0;  // minimum time of a quad: the latency
  double vector_from_l2 = 0;
  double vector_passing = 0;  // a vector of 64 bytes, if products hide its load
  double output = 0;          // a row of a vector of 4-byte outputs
  double byte_output = 0;     // a row of a vector of 8-bit outputs
};

/// A register block of panels that is exact without VNNI.
struct PanelCosts {
  double product = 0;   // a product of the variant
  double vector = 0;    // a vector of weights, which a tile's rows share: to widen it and to load it
  double tile = 0;      // a tile
  double output = 0;    // a row of a vector of 8-bit outputs; products hide the cost of 4-byte outputs
  double row = 0;       // if A is staged: each tap of a row
  double row_quad = 0;  // if A is staged: each quad of a row
};

/// A register block of strips.
struct ScheduledPanelCosts {
  double item_row = 0;   // a row of an item
  double group_row = 0;  // a row of a group
  double item = 0;       // an item, without its rows
  // In half cycles: the least time of 64 bytes of items, if L2 does not hold the items.
  double far_line = 0;
  double tile = 0;
  double call = 0;         // a call of a kernel: the first tile's loop exits are mispredicted
  double output = 0;       // a row of a vector of 4-byte outputs
  double byte_output = 0;  // a row of a vector of 8-bit outputs
};

/// A row of a vector, in a schedule whose rows fill the lanes (scheduled_engine.h).
struct StripCosts {
  double item = 0, group = 0;
};

/// Schedules whose rows fill the lanes.
struct ScheduleCosts {
  StripCosts columns, column;                          // strips of several columns, and of one column
  StripCosts planar_columns, planar_column;            // from a planar band
  StripCosts planar_vnni_columns, planar_vnni_column;  // with VNNI, an item is a quad, without a group
  double packed_quad = 0;                              // packing a quad of a row
  double output = 0, byte_output = 0;                  // a vector of outputs of a row
  double strip = 0;  // entering a strip: the first loop exits of a strip are mispredicted
  // Half a vector of rows on a kernel for pairs of columns, relative to a vector of a full block.
  double paired_share = 0;
  // The share of the time that grows with the loads per product, if a block has fewer vectors than usual.
  double load_share = 0;
  double far_line = 0;  // 64 bytes of a schedule, if L2 does not hold the schedule
  // With fewer columns than layout.run_columns, a run costs `run`: it packs rows and turns outputs even for one
  // output. Each row costs `edge_row`: scratch holds its outputs before C does.
  double run = 0, edge_row = 0;
};

/// Columns that a vector holds (narrow_engine.h), in half cycles.
struct NarrowCosts {
  double run = 0;   // a run
  double call = 0;  // a further call of a kernel: for a line of taps, or for rows behind the whole tiles
  double copied_row = 0;                 // a row that is copied because there are fewer than a tile has
  double row = 0;                        // a row, with its outputs
  double step = 0;                       // a step of a row
  double whole_row = 0, whole_step = 0;  // as above, if the columns fill the vector: no sums are added up
};

/// Kernels of one register width.
struct VectorCosts {
  double half_cycles_maddubs = 0, half_cycles_vnni = 0;  // a product of 16 columns
  VnniCosts vnni;
  PanelCosts wide, in_place, split, cut;
  double panel_call = 0;  // a call of a kernel of these four variants
  double far_line = 0;    // in half cycles: 64 bytes of a panel's weights, if L2 does not hold the weights
  ScheduledPanelCosts scheduled_panels;
  ScheduleCosts schedule;
  NarrowCosts narrow_vnni, narrow_wide;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_KERNEL_COSTS_H_
