// Makers make the engines of a plan: the cost model's engines, or one engine for tuning.
#ifndef INTACT_KERNELS_PLANS_ENGINE_MAKER_H_
#define INTACT_KERNELS_PLANS_ENGINE_MAKER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/scheduled_engine.h"
#include "kernels/weights/lazy_schedule.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {

/// A number of rows beyond which the engine does not change. A plan's kernel name is for this number.
inline constexpr int64_t kLargeM = 1024;

/// The expected number of rows of runs, to save memory. Runs of any number of rows work.
struct UsualRows {
  int64_t least = 1;  // expected minimum rows per run; tails may be smaller
  int64_t named = 0;  // expected rows per run: the plan keeps only the weight layout best for it; 0: unknown
  int64_t most = kLargeM;  // the plan generates the kernels that are best for up to this number of rows
};

using Engines = std::vector<std::unique_ptr<Engine>>;

/// Makes engines that read rows of A.
class EngineMaker {
 public:
  /// `data` must outlive the maker.
  EngineMaker(const GemmData& data, core::Isa isa) : data_(data), isa_(isa) {}

  /// The engines that the cost model chooses for any number of rows; at least one. `like`: null, or the maker
  /// of a plan that has these weights for other extents of a convolution's input. The schedules and widened
  /// weights of `like` are shared.
  Result<Engines> MakeUsual(UsualRows usual, const EngineMaker* like);
  /// All engines that can run the plan.
  std::vector<EngineId> Possible() const;
  /// `id`: one of Possible(). Needs the canonical panels.
  Result<std::unique_ptr<Engine>> Make(const EngineId& id);

 private:
  /// The engines that runs need: the blocks of panel engines, and whether two others are needed.
  struct Needed {
    std::vector<KernelBlock> blocks;
    bool scheduled = false, narrow = false;
  };
  /// `scheduled` and `narrow` may be null, or not built yet.
  Result<Needed> NeededEngines(const ScheduledEngine* scheduled, const Engine* narrow, UsualRows usual,
                               bool is_like_another) const;
  bool HasSchedule() const;
  bool CanRun(const KernelBlock& block) const;
  Result<std::unique_ptr<ScheduledEngine>> PlanScheduled() const {
    return ScheduledEngine::Create(data_, VectorIsa(isa_), sums_);
  }
  Result<std::unique_ptr<Engine>> MakePanels(const KernelBlock& block);
  ScheduleSpec VectorSpec(core::Isa isa) const;

  const GemmData& data_;
  core::Isa isa_;
  int64_t most_rows_ = kLargeM;                                    // UsualRows::most
  const ScheduledSums* sums_ = nullptr;                            // sums of the usual scheduled engine
  std::weak_ptr<const LazyScheduleOf<ScheduledVectors>> vectors_;  // the schedule of panel engines
  std::weak_ptr<const WidePanels> wide_;                           // the weights of the wide variant
};

/// Makes the engine for a planar band. This class has the functions of EngineMaker.
class PlanarMaker {
 public:
  PlanarMaker(const PlanarData& data, core::Isa isa) : data_(data), isa_(isa) {}
  Result<Engines> MakeUsual(UsualRows usual, const PlanarMaker* like);
  std::vector<EngineId> Possible() const { return {EngineId{EngineId::Kind::kPlanar}}; }
  Result<std::unique_ptr<Engine>> Make(const EngineId& id);

 private:
  const PlanarData& data_;
  core::Isa isa_;
  const ScheduledSums* sums_ = nullptr;  // sums of the usual engine
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ENGINE_MAKER_H_
