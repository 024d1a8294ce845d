// A kernel engine computes rectangles of C from one plan's weights with one family of kernels. A plan has several
// engines, each best for a range of M. EngineSet chooses among the engines. Engines do not depend on each
// other.
#ifndef INTACT_KERNELS_ENGINES_ENGINE_H_
#define INTACT_KERNELS_ENGINES_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/problem/access.h"
#include "kernels/problem/output_map.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/blocking.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/per_run_column_constants.h"
#include "kernels/weights/runtime_weights.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// One run's buffers, with defaults filled in.
struct RunBuffers {
  InputRows a;  // A; if a run quantizes or transposes A, the caller's rows until the plan has done so
  /// Replaces Taps::offsets if not empty. Condition: Engine::LeavesOutPadding().
  std::span<const int64_t> taps;
  OutputMap output;
  /// MayStream(): whether kernels may store C past the caches, see EpilogueVariant::streams.
  bool may_stream = false;
  bool l3_holds_c = false;  // whether L3 has room for C; read only if may_stream
  /// Values of the rows of A from `row_values_begin` on; null if EpilogueSpec has no row values.
  const uint8_t* row_values = nullptr;
  int64_t row_values_begin = 0;
  /// The caller's zero points and scales: one for each row with INTACT_QUANTIZATION_ROWS, one for all rows
  /// with TENSOR. Zero points may be null.
  const int32_t* given_zero_points = nullptr;
  const float* given_scales = nullptr;
  /// The quantization of all rows, with INTACT_QUANTIZATION_DYNAMIC_TENSOR.
  RowQuantization tensor;
  /// A runtime B; null if the plan has the weights.
  const RuntimeWeights* weights = nullptr;
  /// The run's own constants of columns; null if the plan has them. For a convolution: an array with an entry
  /// for each unit.
  const PerRunColumnConstants* columns = nullptr;

  const RowMap& rows() const { return std::get<RowMap>(a); }
  const PlanarRows& planar() const { return std::get<PlanarRows>(a); }
  bool IsTransposed() const { return std::holds_alternative<RowMap>(a) && rows().IsTransposed(); }
};

/// KernelData::compensation for tiles that skip padding and run the taps of one range.
struct SkippingCompensation {
  TapRange taps;
  // [3][padded columns]: for most rows; for rows that skip Taps::head; for rows that skip Taps::tail
  AlignedBuffer<int32_t> columns;
  AlignedBuffer<uint32_t> paddings;  // [3][padded columns]: Σ b of the skipped depths; empty unless runs have
                                     // zero points
};

/// Weights and the data that kernels need with them, on one ISA. Immutable; engines keep references to it.
struct KernelData {
  /// `folds_zero_points`: the engine subtracts zero points of weights from the weights.
  KernelData(std::shared_ptr<const LinearWeights> given, core::Isa isa, bool folds_zero_points);
  KernelData(const KernelData&) = delete;
  KernelData& operator=(const KernelData&) = delete;

  std::shared_ptr<const LinearWeights> linear;
  const LinearProblem& problem;
  const PackedWeights& weights;
  const AlignedBuffer<int32_t>& compensation;
  int64_t n, k;
  EpilogueSpec epilogue;
  EpilogueConstants constants;                              // bounds and residual, for the plan's ISA
  std::vector<SkippingCompensation> skipping_compensation;  // all taps first, then each range of line_taps

  uint8_t a_shift() const { return problem.a_shift(); }
  int element_bytes() const { return core::BytesOf(epilogue.c_type); }
  int residual_bytes() const { return core::BytesOf(epilogue.residual); }  // bytes of an element
  /// Bytes of a ScratchTile.
  int64_t ScratchTileBytes(int64_t rows, int64_t padded_columns) const {
    const int bytes = element_bytes() + (epilogue.has_residual() ? residual_bytes() : 0);
    return RoundUp(ScratchTile::Bytes(rows, padded_columns, bytes), 64);
  }
  /// The panels of a run. Panel p begins at panel_stride_bytes()·p.
  const int8_t* PanelsOf(const RunBuffers& buffers) const {
    return buffers.weights == nullptr ? weights.data : buffers.weights->panels;
  }
  const int32_t* CompensationOf(const RunBuffers& buffers) const {
    return buffers.columns == nullptr ? compensation.data() : buffers.columns->compensation;
  }
  /// CompensationOf() for kernels that multiply s8 activations unshifted. `own`: the result of
  /// UnshiftCompensation() for the plan.
  const int32_t* UnshiftedCompensationOf(const RunBuffers& buffers, const AlignedBuffer<int32_t>& own) const {
    if (own.size() == 0) return CompensationOf(buffers);
    return buffers.columns == nullptr ? own.data() : buffers.columns->unshifted_compensation;
  }
  /// `skipping` is an element of skipping_compensation.
  const int32_t* SkippingCompensationOf(const RunBuffers& buffers,
                                        const SkippingCompensation& skipping) const {
    if (buffers.columns == nullptr) return skipping.columns.data();
    const auto before = &skipping - skipping_compensation.data();
    return buffers.columns->skipping_compensation + before * static_cast<int64_t>(skipping.columns.size());
  }
  /// Whether each run computes its own constants of columns, from A's zero point and scale.
  bool HasPerRunColumnConstants() const { return problem.has_run_zero_point || problem.has_run_scale; }
  /// Bytes of scratch for a run's own constants of columns, a multiple of 64.
  int64_t RunColumnBytes() const;
  /// Computes a run's own constants of columns at `to`, aligned to 64 bytes.
  PerRunColumnConstants MakePerRunColumnConstants(const RowQuantization& a, uint8_t* to) const noexcept;
  /// Values of the rows of A from `row` on; null if the epilogue has no row values.
  const uint8_t* RowValuesAt(const RunBuffers& buffers, int64_t row) const {
    if (buffers.row_values == nullptr) return nullptr;
    return buffers.row_values + (row - buffers.row_values_begin) * epilogue.row_value_bytes();
  }
  /// Epilogue arguments for the tile of C that begins at (row, column).
  EpilogueArgs EpilogueAt(const RunBuffers& buffers, int64_t row, int64_t column) const {
    EpilogueArgs args;
    args.constants = &constants;
    args.factors = ColumnAt(problem.Factors(), column);
    args.addends = ColumnAt(problem.Addends(), column);
    if (!problem.b_zero_points.empty()) args.b_zero_points = problem.b_zero_points.data() + column;
    if (linear->column_sums().size() != 0) args.column_sums = linear->column_sums().data() + column;
    if (buffers.columns != nullptr) args.factors = ColumnAt(buffers.columns->factors, column);
    if (const RuntimeWeights* const given = buffers.weights; given != nullptr) {
      if (given->zero_points != nullptr) args.b_zero_points = given->zero_points + column;
      args.column_sums = given->column_sums + column;
    }
    args.row_values = RowValuesAt(buffers, row);
    args.residual = buffers.output.Residual(row, column);
    args.residual_stride_bytes = buffers.output.residual_stride_bytes;
    return args;
  }
};

/// The data of engines that read rows of A.
struct GemmData : KernelData {
  GemmData(std::shared_ptr<const LinearWeights> packed, Taps taps, core::Isa isa)
      : KernelData(std::move(packed), isa, false), taps_(std::move(taps)) {}
  /// Fills in `skipping_compensation`, before engines are made. Errors: OUT_OF_MEMORY.
  Error SetSkippingCompensation();
  const Taps& taps() const { return taps_; }

 private:
  Error AddSkippingCompensation(const TapRange& range);
  Taps taps_;
};

/// The data of the engine that reads positions of a planar band. This engine subtracts zero points of weights
/// from the weights.
struct PlanarData : KernelData {
  PlanarData(std::shared_ptr<const LinearWeights> packed, PlanarAccess access, core::Isa isa)
      : KernelData(std::move(packed), isa, true), planar_(std::move(access)) {}
  const PlanarAccess& planar() const { return planar_; }

 private:
  PlanarAccess planar_;
};

/// The data that a plan's engines share: its weights, and how to find A.
using PlanData = std::variant<GemmData, PlanarData>;
PlanData PlanDataOf(std::shared_ptr<const LinearWeights> packed, Access access, core::Isa isa);
inline const KernelData& KernelDataOf(const PlanData& data) {
  return std::visit([](const KernelData& own) -> const KernelData& { return own; }, data);
}

/// Identifies an engine of a plan. Equal engines of different plans have equal ids.
struct EngineId {
  enum class Kind : uint8_t { kPortable, kPanels, kScheduled, kPlanar, kTiles, kUnpacked, kNarrow };
  Kind kind = Kind::kPortable;
  KernelBlock block = {};  // only with kPanels
  bool operator==(const EngineId&) const = default;
};

/// How an engine cuts C.
struct EngineTile {
  int rows, columns;       // the largest tile; C is split among threads at multiples of its columns
  int column_step;         // a range costs as much as if its columns were rounded up to a multiple of this
  int row_step = 1;        // C is split among threads at multiples of this many rows
  int least_row_step = 0;  // finer step, allowed when another engine handles the tail; 0: no finer step
};

/// The most rows of a run that are bound. The calls of more rows are not worth their memory.
inline constexpr int64_t kMostBoundRows = 4096;
/// The most kernel calls of a bound run, so that it takes little memory.
inline constexpr size_t kMostBoundCalls = 256;

/// Kernel calls with arguments that never change. Run() is not thread-safe.
class BoundCalls {
 public:
  BoundCalls() = default;
  virtual ~BoundCalls() = default;
  BoundCalls(const BoundCalls&) = delete;
  BoundCalls& operator=(const BoundCalls&) = delete;
  virtual void Run() const noexcept = 0;
  /// The number of kernel calls.
  virtual size_t count() const = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual EngineId id() const = 0;
  virtual EngineTile tile() const = 0;
  /// Name of the main kernel. No other engine of the plan has this name.
  virtual std::string KernelName() const = 0;
  /// Name of the kernel that runs most of `m` rows.
  virtual std::string KernelNameFor(int64_t /*m*/) const { return KernelName(); }
  /// Finds the engine's schedule, if it has one, on `threads` threads: RunRange() and Bind() need it. Thread-safe.
  /// OUT_OF_MEMORY.
  virtual Error FindSchedule(int /*threads*/) const { return {}; }
  /// Whether all schedules that runs on this engine need are found: its own, and those of the engines that may run its
  /// last rows. EngineSet sets it.
  bool is_ready() const { return is_ready_.load(std::memory_order_acquire); }
  void set_ready(bool is_ready) const { is_ready_.store(is_ready, std::memory_order_release); }
  /// Bytes of this engine's own copy of the weights.
  virtual int64_t packed_bytes() const { return 0; }
  /// The engine's weights, if the canonical panels can be restored from them. Null if the panels cannot be
  /// restored, or if kernels read the panels themselves.
  virtual std::shared_ptr<const LazySchedule> panel_source() const { return nullptr; }
  /// The form in which the engine reads a runtime B.
  virtual RuntimeForm runtime_form() const { return RuntimeForm::kPanels; }
  /// Statistics of the engine's schedule; zeros if the engine runs no schedule.
  virtual ScheduleStatistics statistics() const { return {}; }
  /// Predicted time for `m` rows, to compare engines of one plan. The unit is the time that the ISA's own
  /// sequence (vpdpbusd, or the maddubs sequence) takes for a row.
  virtual double Cost(int64_t m) const = 0;
  /// How many of `m` rows fill whole vectors. The remaining rows may be cheaper on another engine. An engine
  /// without EngineTile::least_row_step returns m.
  virtual int64_t WholeRows(int64_t m) const { return m; }
  /// Whether RunRange() of rows `row_begin` to `row_end` reads none of the padding that line_taps, head and
  /// tail of the taps leave out. Generates missing kernels.
  virtual bool LeavesOutPadding(int64_t /*row_begin*/, int64_t /*row_end*/) const noexcept { return false; }
  /// Bytes of scratch that RunRange() needs for a range of `rows` rows.
  virtual int64_t ScratchBytes(int64_t rows) const = 0;
  /// Generates the kernels for ranges of `rows` rows; with `or_fewer`, of up to `rows` rows. RunRange()
  /// allocates memory for missing kernels. If memory runs out, RunRange() uses slower kernels. Thread-safe.
  /// Errors: OUT_OF_MEMORY, CODEGEN_FAILED.
  virtual Error PrepareRows(int64_t /*rows*/, bool /*or_fewer*/) const { return {}; }
  /// Computes `range` of C. `scratch` is aligned to 64 bytes.
  virtual void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept = 0;
  /// Records the kernel calls of RunRange() for these arguments. Recording may read A and write scratch. The engine must
  /// outlive the result. Null: binding would save no time.
  virtual std::unique_ptr<BoundCalls> Bind(const RunBuffers& /*buffers*/, const Range& /*range*/,
                                           uint8_t* /*scratch*/) const {
    return nullptr;
  }

 private:
  mutable std::atomic<bool> is_ready_ = false;
};

/// A run of fewer multiply-adds takes little scratch.
inline constexpr double kFewMultiplyAdds = 1000;

/// Whether an engine needs more than 10 KiB of scratch for few multiply-adds. Without such engines, few
/// multiply-adds take at most 16 KiB, 6 KiB of them for the rows of A. Condition: B is constant, and neither
/// usual_m nor tuning chose the engine.
inline bool IsWasteful(const KernelData& data, int64_t m, int64_t scratch_bytes) {
  constexpr int64_t kLittleScratch = 10 << 10;
  return scratch_bytes > kLittleScratch &&
         static_cast<double>(m) * static_cast<double>(data.n * data.k) < kFewMultiplyAdds;
}

/// KernelData::compensation without the u8 shift, for kernels that multiply s8 activations unshifted. Leaves
/// `compensation` empty if activations are not shifted.
Error UnshiftCompensation(const KernelData& data, AlignedBuffer<int32_t>* compensation);

/// Fills float outputs that have no scale with NaN (see the contract). 8-bit outputs are right already.
void FillWithNan(const OutputMap& output, const Range& range, intact_type c_type) noexcept;

/// Sets RunBuffers::may_stream, whether non-temporal stores pay for `rows` rows of `row_bytes` bytes, and
/// l3_holds_c. `operand_bytes`: A and B; 0 if most of A probably lies in L2.
void SetStreaming(int64_t rows, int64_t row_bytes, int64_t operand_bytes, RunBuffers* buffers);
/// RunBuffers::may_stream for kernels on `isa`. `least_quads`: see LayoutLimits::streaming_panel_quads; 0 for
/// kernels that store several lines of each row at a time.
bool Streams(const RunBuffers& buffers, const KernelData& data, core::Isa isa, int64_t least_quads);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_ENGINE_H_
