// The kernel engines of a plan. Tuning, or else the cost model, chooses one engine for each number of rows.
// All engines give the same bytes.
#ifndef INTACT_KERNELS_PLANS_ENGINE_SET_H_
#define INTACT_KERNELS_PLANS_ENGINE_SET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/plans/engine_maker.h"

namespace intact::kernels {

class EngineSet {
 public:
  /// `data` outlives the set.
  EngineSet(const PlanData& data, core::Isa isa) : data_(KernelDataOf(data)), maker_(MakerOf(data, isa)) {}
  /// Makes the engines for `usual` rows. Call it once, first. `like`: see EngineMaker::MakeUsual().
  Error MakeUsual(UsualRows usual, const EngineSet* like);

  /// The engine for runs of `m` rows.
  const Engine& For(int64_t m) const;
  /// The engine for `m` rows by the cost model. Remembers the engines for few rows: evaluating the model would
  /// take as long as a small run.
  const Engine& ModelFor(int64_t m) const;
  /// The engine for `m` rows of a runtime B whose panels are not cut.
  const Engine& ForPanels(int64_t m) const;
  /// For tests and measurements: from now on every M runs on the engine for `m` rows.
  void RunAllAs(int64_t m) { run_all_as_ = m; }

  /// Computes `range` on `engine`. Rows that do not fill its vectors may run on a cheaper engine.
  void Run(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  /// Generates the kernels for Run() of `rows` rows: see Engine::PrepareRows().
  Error PrepareRows(const Engine& engine, int64_t rows, bool or_fewer) const;
  /// Finds the schedules of `engine` and of the engines that may run its last rows: Run() needs them. Thread-safe.
  /// OUT_OF_MEMORY.
  Error FindSchedules(const Engine& engine, int threads = 1) const {
    return engine.is_ready() ? Error() : FindUnready(engine, threads);
  }
  /// Scratch that Run() needs for `m` rows.
  int64_t ScratchBytes(const Engine& engine, int64_t m) const;
  /// How a run of `m` rows on `engine` is cut for `parts` threads.
  Partition Cut(const Engine& engine, int64_t m, int parts) const;
  /// The time that Run() of `rows` rows takes by the cost model, on the scale of Engine::Cost().
  double RowsCost(const Engine& engine, int64_t rows) const;
  /// Columns of a runtime B that are packed at a time: the most whose panels stay in L2, but at least
  /// `least`.
  int64_t ChunkColumns(int64_t least) const;
  /// Sets the steps at which runs on `engine` may be cut.
  void SetSteps(const Engine& engine, SharedOutput* output) const;

  /// All engines of the set.
  std::vector<const Engine*> Made() const;
  /// For tuning: makes all engines that can run the plan, and returns them. Call DropUnchosen() afterwards,
  /// even after an error. This and the following functions are not thread-safe.
  Result<std::vector<const Engine*>> MakeAll();
  /// The engine `id`; null if the set does not have it.
  const Engine* Find(const EngineId& id) const;
  /// The engine `id`; makes it if the set does not have it. UNSUPPORTED if the engine cannot run the plan.
  Result<const Engine*> FindOrMake(const EngineId& id);
  /// Makes runs of `m` rows use `engine`, one of the set.
  void Choose(int64_t m, const Engine* engine);
  using Choices = std::vector<std::pair<int64_t, const Engine*>>;  // by rising rows
  const Choices& choices() const { return choices_; }
  /// Destroys all engines that neither the cost model nor Choose() selected, except `kept`.
  void DropUnchosen(const Engine* kept = nullptr);

  /// A source to restore the canonical panels from, if no engine reads the panels; else null.
  std::shared_ptr<const LazySchedule> PanelsFrom() const;
  /// Statistics of the first engine that runs a schedule; zeros if none does.
  ScheduleStatistics statistics() const;
  int64_t packed_bytes() const;

 private:
  /// The engine runs rows [0, whole), and `tail` runs all further rows. Null: the engine runs all rows.
  struct Split {
    int64_t whole = 0;
    const Engine* tail = nullptr;
  };
  using Maker = std::variant<EngineMaker, PlanarMaker>;
  static Maker MakerOf(const PlanData& data, core::Isa isa);
  static constexpr size_t kRemembered = 64;
  std::vector<EngineId> Possible() const {
    return std::visit([](const auto& maker) { return maker.Possible(); }, maker_);
  }
  Error FindUnready(const Engine& engine, int threads) const;
  const Engine* Cheapest(int64_t m, bool from_panels = false) const;
  template <class Memory>
  const Engine& Recall(Memory* memory, int64_t m, bool from_panels) const;
  Split SplitOf(const Engine& engine, int64_t rows) const;
  /// The split of the range's rows; no tail if the tail's engine cannot begin or end at the range's columns.
  Split SplitOf(const Engine& engine, const Range& range) const;
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (const auto* const engines : {&usual_, &others_}) {
      for (const auto& engine : *engines) visit(*engine);
    }
  }

  const KernelData& data_;
  Maker maker_;
  Engines usual_;            // at least one; the cost model chooses from these
  Engines others_;           // chosen by tuning, or candidates for it
  int64_t column_step_ = 1;  // a multiple of the tiles of all engines in usual_
  Choices choices_;
  int64_t run_all_as_ = 0;  // see RunAllAs(); 0: not set
  // [m − 1]: Cheapest(m), once it has been asked for.
  using Remembered = std::array<std::atomic<const Engine*>, kRemembered>;
  mutable Remembered remembered_ = {};
  mutable Remembered remembered_for_panels_ = {};  // [m − 1]: ForPanels(m)
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ENGINE_SET_H_
