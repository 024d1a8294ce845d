// The engines of a plan, and which of them runs how many rows: a stopwatch's choice for that number if there
// is one, else the cost model's. All give the same bytes.
#ifndef INTACT_KERNELS_PLANS_ENGINE_SET_H_
#define INTACT_KERNELS_PLANS_ENGINE_SET_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/plans/engine_maker.h"

namespace intact::kernels {

class EngineSet {
 public:
  /// `data` outlives the set.
  EngineSet(const GemmData& data, core::Isa isa) : data_(data), maker_(data, isa) {}
  /// Makes the engines for `usual` rows. Once, before all else. `like`: see EngineMaker::MakeUsual().
  Error MakeUsual(UsualRows usual, const EngineSet* like);

  /// The engine for runs of `m` rows.
  const Engine& For(int64_t m) const;
  /// The engine for `m` rows by the cost model.
  const Engine& ModelFor(int64_t m) const;
  /// For tests and measurements: from now on every M runs on the engine that runs `m` rows.
  void RunAllAs(int64_t m) { run_all_as_ = m; }

  /// Computes `range` on `engine`, and the rows that do not fill its vectors where that is cheapest.
  void Run(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  /// Scratch that Run() needs for `m` rows.
  int64_t ScratchBytes(const Engine& engine, int64_t m) const;
  /// How a run of `m` rows on `engine` is cut for `parts` threads.
  Partition Cut(const Engine& engine, int64_t m, int parts) const;
  /// The time that Run() of `rows` rows takes by the cost model, in the unit of Engine::Cost().
  double RowsCost(const Engine& engine, int64_t rows) const;
  /// What Run() of `range` takes, see Share::work.
  double Work(const Engine& engine, const Range& range) const;
  /// Sets the steps between which runs on `engine` are cut.
  void SetSteps(const Engine& engine, SharedOutput* output) const;

  /// The engines that there are.
  std::vector<const Engine*> Made() const;
  /// Makes all engines that can run the plan, for a stopwatch, and returns them. DropUnchosen() afterwards, also
  /// if that fails. Here and below: not while others use the plan.
  Result<std::vector<const Engine*>> MakeAll();
  /// The engine `id`; null if there is none.
  const Engine* Find(const EngineId& id) const;
  /// The engine `id`, made if there is none. UNSUPPORTED if it cannot run the plan.
  Result<const Engine*> FindOrMake(const EngineId& id);
  /// Has runs of `m` rows take `engine`, one of the set.
  void Choose(int64_t m, const Engine* engine);
  using Choices = std::vector<std::pair<int64_t, const Engine*>>;  // by rising rows
  const Choices& choices() const { return choices_; }
  /// Destroys all engines that neither the cost model nor Choose() wants, except `kept`.
  void DropUnchosen(const Engine* kept = nullptr);

  /// What the canonical panels can be restored from where no engine reads them; else null.
  std::shared_ptr<const PanelSource> PanelsFrom() const;
  /// Of the schedule that the scheduled engine runs, or vectors where there is none; zeros without a schedule.
  ScheduleStatistics statistics() const;
  int64_t packed_bytes() const;

 private:
  /// Rows [0, whole) are the engine's, the others `tail`'s; null: all are the engine's.
  struct Split {
    int64_t whole = 0;
    const Engine* tail = nullptr;
  };
  Split SplitOf(const Engine& engine, int64_t rows) const;
  /// The same, without a tail that cannot begin or end at the range's columns.
  Split SplitOf(const Engine& engine, const Range& range) const;
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (const auto* const engines : {&usual_, &others_}) {
      for (const auto& engine : *engines) visit(*engine);
    }
  }

  const GemmData& data_;
  EngineMaker maker_;
  EngineMaker::Engines usual_;   // at least one: what the cost model chooses from
  EngineMaker::Engines others_;  // that a stopwatch chose, or is to time
  Choices choices_;
  int64_t run_all_as_ = 0;  // 0: each M as itself
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ENGINE_SET_H_
