// Weights, the access to A, and the engines that compute from them on one ISA. A GEMM has one UnitPlan. A
// convolution has one UnitPlan for each unit of its weights (conv_layout.h).
//
//   Create     constants that depend on the access ─► engines
//   RunShare   a thread's share of a run, or a chunk of it ─► chunks of prepared rows ─► Engine::RunRange()
//
// The caller of a run decides once which engine runs it (engines().For(m)), and passes the engine on.
#ifndef INTACT_KERNELS_PLANS_UNIT_PLAN_H_
#define INTACT_KERNELS_PLANS_UNIT_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/plans/engine_set.h"
#include "kernels/plans/row_preparer.h"
#include "kernels/problem/access.h"
#include "kernels/weights/linear_weights.h"

namespace intact::kernels {

class UnitPlan {
 public:
  /// `like`: null, or a plan of these weights for other extents of a convolution's input. The new plan shares
  /// the schedules of `like`.
  static Result<std::unique_ptr<UnitPlan>> Create(std::shared_ptr<const LinearWeights> weights, Access access,
                                                  core::Isa isa, UsualRows usual = {},
                                                  const UnitPlan* like = nullptr);

  const KernelData& data() const { return data_; }
  const LinearWeights& weights() const { return *data_.linear; }
  core::Isa isa() const { return isa_; }
  const EngineSet& engines() const { return engines_; }
  EngineSet* mutable_engines() { return &engines_; }
  const RowPreparer& rows() const { return rows_; }
  /// The kernel for large M, or for UsualRows::named if given.
  const std::string& kernel_name() const { return kernel_name_; }

  /// Scratch for one thread's share of a run of `m` rows.
  int64_t ShareBytes(const Engine& engine, int64_t m, bool transposed = false) const;
  void RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  /// Generates the kernels for RunShare() of `rows` rows: see Engine::PrepareRows().
  Error PrepareRows(const Engine& engine, int64_t rows, bool transposed, bool or_fewer) const;
  /// The kernel calls of RunShare(): see Engine::Bind().
  std::unique_ptr<BoundCalls> Bind(const Engine& engine, const RunBuffers& buffers, const Range& range,
                                   uint8_t* scratch) const;
  /// RunShare() of a plan with runtime B. `shared`: null, or the packed columns of `b`.
  void RunShare(const Engine& engine, const RuntimeB& b, RunBuffers buffers, const Range& range,
                uint8_t* scratch, const uint8_t* shared) const;
  /// Bytes of all packed columns of a runtime B; 0 if shares on `engine` cannot share them.
  int64_t SharedBytes(const Engine& engine) const {
    const bool can_share = data_.problem.has_runtime_b && engine.runtime_form() == RuntimeForm::kPanels;
    return can_share ? RoundUp(RuntimeWeightBytes(weights(), RuntimeForm::kPanels, data_.n), 64) : 0;
  }

  /// Memory of the weights, in all their layouts.
  int64_t packed_bytes() const;
  /// Frees the canonical panels if no engine reads them. Not thread-safe. Call it only if no other plan reads
  /// these weights.
  void DropUnreadPanels();
  ScheduleStatistics schedule_statistics() const;

 private:
  /// Columns of a runtime B that a share of `rows` rows prepares at a time. Each chunk of columns prepares
  /// the rows of A again, so a chunk has at least kColumnsPerRow columns for each row.
  int64_t RuntimeColumns(const Engine& engine, int64_t rows) const {
    constexpr int64_t kColumnsPerRow = 4;
    if (engine.runtime_form() == RuntimeForm::kUnpacked) return data_.n;
    return std::min(data_.n, engines_.ChunkColumns(kColumnsPerRow * rows));
  }
  UnitPlan(std::shared_ptr<const LinearWeights> weights, Access access, core::Isa isa)
      : plan_data_(PlanDataOf(std::move(weights), std::move(access), isa)),
        data_(KernelDataOf(plan_data_)),
        engines_(plan_data_, isa),
        rows_(plan_data_),
        isa_(isa) {}

  PlanData plan_data_;
  const KernelData& data_;  // of plan_data_
  EngineSet engines_;
  RowPreparer rows_;
  std::string kernel_name_;
  core::Isa isa_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_UNIT_PLAN_H_
