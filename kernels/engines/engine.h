// An engine computes rectangles of C from one plan's weights with one family of kernels. A plan has one for
// each range of M that wants another way: GemmPlan chooses, engines do not know of each other.
#ifndef INTACT_KERNELS_ENGINES_ENGINE_H_
#define INTACT_KERNELS_ENGINES_ENGINE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/blocking.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/problem/rows.h"
#include "kernels/weights/certificate.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// One run's buffers, with defaults filled in.
struct RunBuffers {
  RowMap a;
  PlanarRows planar;  // instead of it, where Taps::planar says so
  uint8_t* c = nullptr;
  int64_t c_stride_bytes = 0;
  /// C is larger than L2 and its rows are aligned to cache lines, see EpilogueSpec::streams.
  bool may_stream = false;
  /// Σ_k of row `row_sums_begin` of A, as kernels see it, and of those that follow; null where
  /// EpilogueSpec::has_b_zero_points is false.
  const int32_t* row_sums = nullptr;
  int64_t row_sums_begin = 0;
  const uint8_t* residual = nullptr;  // null where EpilogueSpec::residual is none; may be `c`
  int64_t residual_stride_bytes = 0;
};

/// What messages call the columns of a plan.
struct Naming {
  const char* column = "column";
  const char* weights = "b";
  int64_t first_column = 0;
  int64_t depth = 0;  // 0: k
};

/// GemmData::initial where padding is not computed, for tiles that run the taps of one range.
struct SkippingInitial {
  TapRange taps;
  // [3][padded columns]: for most rows; for those that skip Taps::head; for those that skip Taps::tail
  AlignedBuffer<int32_t> columns;
};

/// What a plan knows, whatever computes it. Immutable once the plan is made.
struct GemmData {
  EpilogueConstants constants;  // bounds and residual, for the plan's ISA
  int64_t n = 0, k = 0;
  Taps taps;  // k is their depths' sum
  Naming naming;
  intact_type a_type = INTACT_U8;
  intact_type b_type = INTACT_S8;
  intact_mode mode = INTACT_EXACT;
  int32_t a_zero_point = 0;
  OutputBounds bounds;
  ResidualScale residual;
  EpilogueSpec epilogue;
  ActivationRange range;  // declared, as kernels see activations
  bool is_range_checked = true;
  PackedWeights weights;
  Certificate certificate;
  std::vector<int64_t> clamp_excess;  // of GemmProblem; empty if there is none
  // Per column, padded to whole panels.
  AlignedBuffer<int32_t> initial;                 // bias_s32 − za·Σ_k (b − zb), as kernels see them
  std::vector<SkippingInitial> skipping_initial;  // for all taps, then each range of taps.line_taps
  AlignedBuffer<int32_t> bias_s32;                // empty if there is none
  AlignedBuffer<int32_t> b_zero_points;           // zb as kernels see weights; empty if all are 0
  AlignedBuffer<float> scales, bias;

  /// s8 activations are shifted by +128: 0x80 flips their top bit.
  uint8_t a_flip() const { return ActivationFlip(a_type); }
  int shift() const { return a_flip(); }
  int32_t b_zero_point(size_t column) const { return b_zero_points.size() == 0 ? 0 : b_zero_points[column]; }
  int element_bytes() const { return ElementBytes(epilogue.c_type); }
  int residual_bytes() const { return ElementBytes(epilogue.residual); }  // of an element
  /// For the tile of C that begins at (row, column).
  EpilogueArgs EpilogueAt(const RunBuffers& buffers, int64_t row, int64_t column) const {
    EpilogueArgs args;
    args.constants = &constants;
    if (scales.size() != 0) args.scales = scales.data() + column;
    if (bias.size() != 0) args.bias = bias.data() + column;
    if (b_zero_points.size() != 0) args.b_zero_points = b_zero_points.data() + column;
    if (buffers.row_sums != nullptr) args.row_sums = buffers.row_sums + (row - buffers.row_sums_begin);
    if (buffers.residual != nullptr) {
      args.residual = buffers.residual + row * buffers.residual_stride_bytes + column * residual_bytes();
      args.residual_stride_bytes = buffers.residual_stride_bytes;
    }
    return args;
  }
};

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Granularity of rows and columns at which C is cut among threads.
  virtual int mr() const = 0;
  virtual int nr() const = 0;
  /// Name of the main kernel.
  virtual std::string KernelName() const = 0;
  /// Memory of this engine's own copy of the weights.
  virtual int64_t packed_bytes() const { return 0; }
  /// Predicted time for `m` rows, in times that the ISA's own sequence (vpdpbusd, or the triple before it)
  /// takes for a row: engines of one plan are compared by it.
  virtual double Cost(int64_t m) const = 0;
  /// Those of `m` rows that fill its vectors: the others may be cheaper on another engine.
  virtual int64_t WholeRows(int64_t m) const { return m; }
  /// Scratch that RunRange() needs for a range of `rows` rows.
  virtual int64_t ScratchBytes(int64_t rows) const = 0;
  /// Computes `range` of C. `scratch` is aligned to 64 bytes.
  virtual void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept = 0;
};

/// GemmData::initial without the shift of s8 activations, for kernels that multiply those as they are. Leaves
/// `initial` empty where there is no shift.
Error UnshiftInitial(const GemmData& data, AlignedBuffer<int32_t>* initial);

/// Whether non-temporal stores pay for `rows` rows of C, `row_bytes` each: RunBuffers::may_stream.
bool MayStream(const RunBuffers& buffers, int64_t rows, int64_t row_bytes);

/// The residual of a tile whose last vector is partial: copies `columns` of `rows` to scratch, in rows of
/// `padded_columns`, and points `args` there.
void CopyResidual(const GemmData& data, int64_t rows, int64_t columns, int64_t padded_columns,
                  uint8_t* scratch, EpilogueArgs* args) noexcept;

/// Copies `rows` rows of `row_bytes`.
void CopyTile(const uint8_t* from, int64_t from_stride_bytes, int64_t rows, int64_t row_bytes, uint8_t* to,
              int64_t to_stride_bytes) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_ENGINE_H_
