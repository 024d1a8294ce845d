#include "kernels/plans/engine_maker.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/engines/amx_engine.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/narrow_engine.h"
#include "kernels/engines/panel_engine.h"
#include "kernels/engines/planar_engine.h"
#include "kernels/engines/portable_engine.h"
#include "kernels/engines/unpacked_engine.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/cut_panels.h"

namespace intact::kernels {
namespace {

// Widened weights take twice the memory of panels. If the depth is not small, schedules are faster for most
// weights. Measured on Zen 5 with AVX-512 and uniform weights, which have long schedules: 1.1 to 1.2 times as fast
// as schedules from 8 rows on, if L2 holds the panels. With AVX2 0.94 to 1.06 times.
constexpr int64_t kMostWideQuads = 64;

}  // namespace

ScheduleSpec EngineMaker::VectorSpec(core::Isa isa) const {
  const int amax = data_.problem.AdmissibleRange().high;
  return ScheduledVectors::SpecFor(data_.weights, jit::VectorBytes(isa) / kQuad, amax);
}

bool EngineMaker::HasSchedule() const {
  return UsesSchedule(isa_, data_.problem.mode) && !data_.problem.has_runtime_b;
}

bool EngineMaker::CanRun(const KernelBlock& block) const {
  if (!Computes(block, isa_, data_.problem.mode)) return false;
  if (block.packing == Packing::kCutPanels) {
    return data_.problem.has_runtime_b && data_.weights.width == kPanelColumns &&
           data_.weights.quads() >= kWindowQuads;
  }
  if (block.packing == Packing::kWidePanels) {
    const bool is_shallow = data_.weights.quads() <= kMostWideQuads;
    const bool is_near =
        jit::VectorBytes(block.isa) == kPanelQuadBytes && data_.weights.bytes() <= Caches().StreamedWeights();
    return !data_.problem.has_runtime_b && (is_shallow || is_near);
  }
  if (block.packing != Packing::kStrips) return true;
  return !data_.problem.has_runtime_b && data_.taps().vector_step == 0 &&
         data_.weights.quads() <= kMaxVectorQuads;
}

Result<EngineMaker::Needed> EngineMaker::NeededEngines(const ScheduledEngine* scheduled, const Engine* narrow,
                                                       UsualRows usual, bool is_like_another) const {
  struct Candidate {
    KernelBlock block;
    BlockCost cost;
    BlockCost::TileRows known = {};
  };
  std::vector<Candidate> candidates;
  const std::shared_ptr<const LazyScheduleOf<ScheduledVectors>> vectors = vectors_.lock();
  // Before it is built, the engine only knows the size of its packed rows.
  const auto is_wasteful = [&](int64_t m) {
    return IsWasteful(data_, m, ActivationPanelBytes(RoundUp(m, scheduled->tile().rows), data_.k));
  };
  const auto narrow_cost = [&](int64_t m) {
    const bool can_run = narrow != nullptr && !IsWasteful(data_, m, narrow->ScratchBytes(m));
    return can_run ? narrow->Cost(m) : std::numeric_limits<double>::infinity();
  };
  // Whether a block of this least cost may be the best for the expected rows. If not, `usual` needs no block of
  // its layout, and no estimate, which is slow.
  const auto may_be_best = [&](const BlockCost& least) {
    if (usual.named == 0) return true;
    const double cost = least.Of(usual.named);
    if (narrow_cost(usual.named) < cost) return false;
    const auto is_cheaper = [&](const Candidate& other) { return other.cost.Of(usual.named) < cost; };
    if (std::ranges::any_of(candidates, is_cheaper)) return false;
    return scheduled == nullptr || is_wasteful(usual.named) || scheduled->Cost(usual.named) >= cost;
  };
  for (const KernelBlock& block : kKernels) {
    if (!CanRun(block)) continue;
    ScheduleStatistics statistics;
    if (block.packing == Packing::kStrips) {
      if (vectors != nullptr) {
        statistics = vectors->estimate();
      } else if (is_like_another) {
        continue;
      } else {
        const ScheduleStatistics least = LeastSchedule(data_.weights, VectorSpec(block.isa));
        if (least.items != 0 && !may_be_best(BlockCost(block, data_, least))) continue;
        const auto estimate = data_.linear->schedules().Estimate(data_.weights, VectorSpec(block.isa));
        if (!estimate) return NoMemoryForSchedule();
        statistics = *estimate;
      }
    }
    candidates.push_back({block, BlockCost(block, data_, statistics)});
  }
  // The best for `m` rows, and its cost.
  struct Best {
    std::vector<Candidate>::iterator found;  // the end: the scheduled engine
    double cost;
  };
  const auto best = [&](int64_t m) {
    const auto cost = [&](Candidate& candidate) {
      // One more layout takes as much memory as the weights.
      const bool is_wasted =
          usual.named == 0 && m < usual.least && candidate.block.packing == Packing::kStrips;
      return is_wasted ? std::numeric_limits<double>::infinity() : candidate.cost.Of(m, &candidate.known);
    };
    auto found = candidates.end();
    double least = 0;
    for (auto candidate = candidates.begin(); candidate != candidates.end(); ++candidate) {
      const double its_cost = cost(*candidate);
      if (found != candidates.end() && its_cost >= least) continue;
      found = candidate;
      least = its_cost;
    }
    const bool has = found != candidates.end();
    if (scheduled != nullptr && (!has || !is_wasteful(m))) {
      const double its_cost = scheduled->Cost(m);
      if (!has || its_cost < least) return Best{candidates.end(), its_cost};
    }
    return Best{found, least};
  };
  // One layout for all rows.
  if (usual.named != 0 && UsesSchedule(isa_, data_.problem.mode)) {
    const auto [found, cost] = best(usual.named);
    if (narrow_cost(usual.named) < cost) return Needed{{}, false, true};
    if (found == candidates.end()) return Needed{{}, true, false};
    const bool is_scheduled = found->block.packing == Packing::kStrips;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return (candidate.block.packing == Packing::kStrips) != is_scheduled;
    });
    scheduled = nullptr;
  }
  Needed needed;
  const auto add = [&](int64_t m) {
    const auto [found, cost] = best(m);
    if (narrow_cost(m) < cost) {
      needed.narrow = true;
    } else if (found == candidates.end()) {
      needed.scheduled = true;
    } else if (std::ranges::find(needed.blocks, found->block) == needed.blocks.end()) {
      needed.blocks.push_back(found->block);
    }
  };
  // To generate the kernels that are best for more rows than expected would take most of the time to create a
  // small plan.
  const int64_t most = std::min(usual.most, kLargeM);
  const auto add_best = [&] {
    for (int64_t m = 1; m < most; m = m < 4 * 16 ? m + 1 : 2 * m) add(m);
    add(most);
  };
  add_best();
  // For a runtime B that cannot be cut.
  const auto is_cut = [](const Candidate& candidate) {
    return candidate.block.packing == Packing::kCutPanels;
  };
  if (std::erase_if(candidates, is_cut) != 0) add_best();
  return needed;
}

Result<Engines> EngineMaker::MakeUsual(UsualRows usual, const EngineMaker* like) {
  if (like != nullptr) {
    sums_ = like->sums_;
    vectors_ = like->vectors_;
    wide_ = like->wide_;
  }
  most_rows_ = usual.most;
  Engines engines;
  if (core::IsCompiled(isa_)) {
    engines.push_back(std::make_unique<PortableEngine>(data_));
    return engines;
  }
  std::unique_ptr<ScheduledEngine> scheduled;
  // Few rows leave most lanes empty. To estimate their schedule would take longer than to pack the weights.
  const bool fills_lanes = usual.most > jit::VectorBytes(isa_) / kQuad / 4;
  if (HasSchedule() && fills_lanes && (like == nullptr || sums_ != nullptr)) {
    ASSIGN_OR_RETURN(scheduled, PlanScheduled());
  }
  std::unique_ptr<NarrowEngine> narrow;
  if (NarrowEngine::CanRun(data_, VectorIsa(isa_))) {
    narrow = std::make_unique<NarrowEngine>(data_, VectorIsa(isa_));
  }
  ASSIGN_OR_RETURN(const Needed needed, NeededEngines(scheduled.get(), narrow.get(), usual, like != nullptr));
  sums_ = nullptr;
  if (needed.scheduled) {
    RETURN_IF_ERROR(scheduled->Build());
    sums_ = &scheduled->sums();
    engines.push_back(std::move(scheduled));
  }
  for (const KernelBlock& block : needed.blocks) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> panels, MakePanels(block));
    engines.push_back(std::move(panels));
  }
  if (UsesTiles(isa_)) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> tiles, AmxEngine::Create(data_));
    engines.push_back(std::move(tiles));
  }
  if (needed.narrow) {
    RETURN_IF_ERROR(narrow->Build());
    engines.push_back(std::move(narrow));
  }
  if (UnpackedEngine::CanRun(data_, isa_)) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> unpacked, UnpackedEngine::Create(data_, isa_));
    engines.push_back(std::move(unpacked));
  }
  return engines;
}

std::vector<EngineId> EngineMaker::Possible() const {
  if (core::IsCompiled(isa_)) return {EngineId{EngineId::Kind::kPortable}};
  std::vector<EngineId> possible;
  if (HasSchedule()) possible.push_back({EngineId::Kind::kScheduled});
  for (const KernelBlock& block : kKernels) {
    if (CanRun(block)) possible.push_back({EngineId::Kind::kPanels, block});
  }
  if (UsesTiles(isa_)) possible.push_back({EngineId::Kind::kTiles});
  if (NarrowEngine::CanRun(data_, VectorIsa(isa_))) possible.push_back({EngineId::Kind::kNarrow});
  if (UnpackedEngine::CanRun(data_, isa_)) possible.push_back({EngineId::Kind::kUnpacked});
  return possible;
}

Result<std::unique_ptr<Engine>> EngineMaker::Make(const EngineId& id) {
  switch (id.kind) {
    case EngineId::Kind::kScheduled: {
      ASSIGN_OR_RETURN(std::unique_ptr<ScheduledEngine> scheduled, PlanScheduled());
      RETURN_IF_ERROR(scheduled->Build());
      return std::unique_ptr<Engine>(std::move(scheduled));
    }
    case EngineId::Kind::kPanels:
      return MakePanels(id.block);
    case EngineId::Kind::kTiles:
      return AmxEngine::Create(data_);
    case EngineId::Kind::kNarrow: {
      auto narrow = std::make_unique<NarrowEngine>(data_, VectorIsa(isa_));
      RETURN_IF_ERROR(narrow->Build());
      return std::unique_ptr<Engine>(std::move(narrow));
    }
    case EngineId::Kind::kUnpacked:
      return UnpackedEngine::Create(data_, isa_);
    case EngineId::Kind::kPortable:
    case EngineId::Kind::kPlanar:
      break;
  }
  return std::unique_ptr<Engine>(std::make_unique<PortableEngine>(data_));
}

Result<std::unique_ptr<Engine>> EngineMaker::MakePanels(const KernelBlock& block) {
  std::shared_ptr<const LazyScheduleOf<ScheduledVectors>> vectors;
  if (block.packing == Packing::kStrips) {
    vectors = vectors_.lock();
    if (vectors == nullptr) {
      ASSIGN_OR_RETURN(vectors, data_.linear->MakeSchedule<ScheduledVectors>(VectorSpec(block.isa)));
      vectors_ = vectors;
    }
  }
  std::shared_ptr<const WidePanels> wide;
  if (block.packing == Packing::kWidePanels) {
    wide = wide_.lock();
    // A plan for any extents has one tap of the whole depth.
    if (wide == nullptr || wide->tap_depth() != data_.taps().depth) {
      auto made = std::make_shared<WidePanels>();
      if (!made->Widen(data_.weights, data_.taps().depth))
        return Error{INTACT_OUT_OF_MEMORY, "no memory for widened weights"};
      wide_ = wide = std::move(made);
    }
  }
  return PanelEngine::Create(data_, block, std::move(vectors), std::move(wide), most_rows_);
}

Result<Engines> PlanarMaker::MakeUsual(UsualRows /*usual*/, const PlanarMaker* like) {
  ASSIGN_OR_RETURN(std::unique_ptr<PlanarEngine> made,
                   PlanarEngine::Create(data_, VectorIsa(isa_), like == nullptr ? nullptr : like->sums_));
  sums_ = &made->sums();
  Engines engines;
  engines.push_back(std::move(made));
  return engines;
}

Result<std::unique_ptr<Engine>> PlanarMaker::Make(const EngineId& /*id*/) {
  ASSIGN_OR_RETURN(std::unique_ptr<PlanarEngine> made, PlanarEngine::Create(data_, VectorIsa(isa_), nullptr));
  return std::unique_ptr<Engine>(std::move(made));
}

}  // namespace intact::kernels
