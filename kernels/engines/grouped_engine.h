// The engine of grouped weights with generated kernels: columns of B fill the lanes.
//
//   few rows    one kernel reads each panel once, and unpacks nibbles
//   more rows   each panel is read in blocks of groups, and all rows pass a block. A block stays in L1, unless
//               one group is larger. If kernels have few rows, or are of tiles, a block is expanded into scratch
//               memory first, unless one group is larger than half of L2
//   tiles       with AMX, 16 rows at a time pass a block on tile registers; kernels of vectors compute the rows that
//               remain, and a short last group
//
// A panel's f is in scratch memory until its last group is added. Then the outputs are stored.
#ifndef INTACT_KERNELS_ENGINES_GROUPED_ENGINE_H_
#define INTACT_KERNELS_ENGINES_GROUPED_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/grouped_kernel.h"
#include "kernels/codegen/grouped_minimum_kernel.h"
#include "kernels/codegen/grouped_tile_kernel.h"
#include "kernels/engines/grouped.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/blocking.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

class GroupedPanelEngine final : public GroupedEngine {
 public:
  /// `weights` are packed for `isa`, and kernels are generated for it. Errors: OUT_OF_MEMORY,
  /// CODEGEN_FAILED.
  static Result<std::unique_ptr<const GroupedEngine>> Create(const GroupedProblem& problem,
                                                             std::shared_ptr<const GroupedWeights> packed,
                                                             core::Isa isa);

  std::string KernelName(int64_t m) const override;
  int64_t column_step() const override { return weights_->columns(); }
  int64_t row_step() const override { return 1; }
  int64_t ScratchBytes(int64_t rows) const override;
  void Run(const GroupedRows& rows, int64_t expert, int64_t column_begin, int64_t column_end, uint8_t* c,
           int64_t c_stride_bytes, uint8_t* scratch) const noexcept override;

 private:
  // Consecutive groups of equal depth.
  struct Groups {
    int64_t first, count, steps;
  };
  // The kernels that read one layout.
  struct Kernels {
    std::vector<GroupedKernelFunction> of_rows;  // of 1, 2, … rows
    std::vector<std::string> names;
    int64_t most_rows() const { return static_cast<int64_t>(of_rows.size()); }
  };
  // Rows of A of one expert, with the values that kernels read.
  struct Rows {
    GroupedRows given;
    int64_t expert;
    const GroupedRowValues* values;  // [group][row]
    const float* factors;            // [group][row], of the minimums
  };
  struct Scratch {
    GroupedRowValues* values;
    float *factors, *f;
    uint8_t* outputs;   // of a panel that ends beyond C
    uint8_t* expanded;  // two blocks, in turns
    int32_t* sums;      // of two calls of tile kernels
  };
  // The parts of the scratch, in bytes. It begins with the values.
  struct Offsets {
    int64_t factors, f, outputs, expanded, sums, end;
  };
  // Kernels of tiles for one number of rows.
  struct TileKernels {
    GroupedTileKernelFunction multiplies, adds, does_both;
  };
  // If `kernels` is empty, vector kernels compute all rows.
  struct Tiles {
    TileFunctions functions;
    std::vector<TileKernels> kernels;  // [row tiles of a step − 1]
    int64_t groups = 1;                // of a step
    std::string name;
    int64_t least_rows = kTileRows;  // fewer rows are faster without tiles
    bool Exist() const { return !kernels.empty(); }
  };
  // The packed weights of the next block. The calls for a block fetch them into L2, because expansions and
  // tiles read weights faster than the hardware fetches them.
  class Ahead {
   public:
    Ahead(const uint8_t* from, int64_t bytes, int64_t calls)
        : from_(from), share_(CeilDivide(bytes, calls)) {}
    void FetchShare() noexcept {
      for (const uint8_t* const end = from_ + share_; from_ < end; from_ += 64) {
        __builtin_prefetch(from_, 0, 2);
      }
    }

   private:
    const uint8_t* from_;
    int64_t share_;
  };
  // Tile products that wait to be added to f.
  struct WaitingTiles {
    const TileKernels* kernels = nullptr;  // null: nothing waits
    GroupedTileKernelArgs args;
  };

  GroupedPanelEngine() = default;
  Error MakeKernels(const GroupedKernelSpec& spec, Kernels* kernels);
  Error MakeMinimums(core::Isa isa);
  Error MakeTiles(const GroupedKernelSpec& spec);
  bool IsOfTiles(int64_t rows) const { return tiles_.Exist() && rows >= tiles_.least_rows; }
  bool IsExpanded(int64_t rows) const {
    return expanding_ && (tiles_.Exist() ? IsOfTiles(rows) : rows > whole_.most_rows());
  }
  // The groups of the block that begins at `first`.
  Groups BlockAt(int64_t first, int64_t rows) const;
  Offsets OffsetsOf(int64_t rows) const;
  int64_t PackedBytes(const Groups& groups) const {
    return groups.count * weights_->layout().GroupBytes(weights_->columns(), groups.steps);
  }
  int64_t ExpandedBytes() const { return block_groups_ * expanded_group_bytes_; }  // of a block
  void SetValues(const GroupedRows& rows, const Scratch& scratch) const noexcept;
  // Sets f of a panel to its first value: +0, or the terms of the minimums.
  void StartPanel(const Rows& rows, int64_t panel, float* f) const noexcept;
  void RunPanel(const Rows& rows, int64_t panel, const Scratch& scratch) const noexcept;
  // The two kinds of RunPanel(). With one loop for both, rows on vectors took up to 12 % longer.
  void RunOnVectors(const Rows& rows, const uint8_t* weights, const Scratch& scratch) const noexcept;
  void RunOnTiles(const Rows& rows, const uint8_t* weights, const Scratch& scratch) const noexcept;
  void Expand(const Groups& block, const uint8_t* weights, uint8_t* to) const noexcept;
  // The arguments of the kernels for the rows from `begin` on.
  GroupedKernelArgs ArgsOf(const Rows& rows, int64_t begin, const Groups& groups, const uint8_t* weights,
                           float* f) const noexcept;
  // Computes the rows from `begin` on. If `ahead` is not null, each call of a kernel fetches a share of
  // `ahead`.
  void RunBlock(const Kernels& kernels, const Rows& rows, int64_t begin, const Groups& groups,
                const uint8_t* weights, float* f, Ahead* ahead = nullptr) const noexcept;
  // Computes all rows except the last few. Returns the number of computed rows. The last products may wait.
  int64_t RunTiles(const Rows& rows, const Groups& groups, const uint8_t* weights, const Scratch& scratch,
                   const uint8_t* next_weights, WaitingTiles* waiting) const noexcept;
  // Multiplies the groups of `args`, and adds the products that wait. The products of the last step then
  // wait.
  void MultiplyTiles(const TileKernels& kernels, const GroupedKernelArgs& args, int64_t group_bytes,
                     WaitingTiles* waiting) const noexcept;
  // Adds the products that wait.
  static void AddWaiting(WaitingTiles* waiting) noexcept;
  void Store(const Rows& rows, int64_t panel, const Scratch& scratch, uint8_t* c,
             int64_t c_stride_bytes) const noexcept;

  int64_t n_ = 0, groups_ = 0, group_ = 0, last_depth_ = 0;
  int64_t expanded_group_bytes_ = 0;  // of all groups except the last
  int64_t block_groups_ = 1;          // of a block of depths
  int c_bytes_ = 4;
  std::shared_ptr<const GroupedWeights> weights_;
  GroupedConstants constants_;
  EpilogueConstants epilogue_constants_;
  AlignedBuffer<float> bias_;  // [expert][panel][column], or empty
  Kernels whole_, expanded_;   // on packed weights, and on expanded weights
  Tiles tiles_;
  std::vector<GroupedMinimumFunction> minimums_;  // of 1, 2, … rows; empty without minimums
  GroupedExpansionFunction expanding_;
  GroupedOutputFunction output_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_GROUPED_ENGINE_H_
