#include "kernels/plans/convolution.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

Error Convolution::CheckBatch(const ConvGeometry& sized, int64_t batch) {
  const int64_t most = std::numeric_limits<int32_t>::max() / (sized.output[kDepth] * sized.plane_pixels());
  if (batch >= 1 && batch <= most) return {};
  return Unexpected("batch", batch, "1 to " + std::to_string(most));
}

Result<std::unique_ptr<Convolution>> Convolution::Create(LinearProblem problem, const ConvGeometry& geometry,
                                                         const WeightView& weights, core::Isa isa) {
  std::unique_ptr<Convolution> made(new Convolution(std::move(problem), geometry, isa));
  RETURN_IF_ERROR(made->MakeLayouts(weights));
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Plans> plans, made->MakePlans(sized));
  made->NameKernel(*plans);
  if (!geometry.IsOpen()) made->Fix(plans);
  return made;
}

void Convolution::Fix(std::shared_ptr<const Plans> plans) {
  PreparedPointer prepared = Decide(plans, 1);  // may throw: before panels go that those until now may read
  // No other plan reads them: each has a layout of its own.
  for (const auto& plan : plans->plans) plan->mutable_kernels()->DropUnreadPanels();
  fixed_ = std::move(prepared);
}

void Convolution::NameKernel(const Plans& plans) {
  const std::string* name = nullptr;
  int64_t most = -1;
  for (const auto& plan : plans.plans) {
    const ConvGeometry& own = plan->geometry();
    const int64_t products = own.plane_pixels() * own.output[kDepth] * own.taps();
    if (products > most) name = &plan->kernel_name();
    most = std::max(most, products);
  }
  if (name == nullptr) name = &bare_plan_->kernel_name();
  if (kernel_names_.empty() || kernel_names_.back() != *name) kernel_names_.push_back(*name);
}

// ----- layouts ---------------------------------------------------------------------------------------------

Error Convolution::MakeLayouts(const WeightView& weights) {
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry_));
  if (geometry_.is_transposed) {
    if (ConvLayout::PairsCrossTaps(problem_, geometry_)) {
      return Unsupported("pairing is " + std::to_string(problem_.pairing) +
                         " in a transposed convolution with " + std::to_string(geometry_.group_inputs()) +
                         " input channels per group; expected 0, or an even number of channels");
    }
    return MakePhases(sized, weights);
  }
  ASSIGN_OR_RETURN(auto layout, ConvLayout::Create(problem_, weights, sized, isa_,
                                                   ConvLayout::ModelForm(problem_, sized, isa_)));
  layouts_.push_back(std::move(layout));
  return {};
}

Error Convolution::MakePhases(const ConvGeometry& sized, const WeightView& weights) {
  const std::vector<ConvPhase> phases = PhasesOf(sized);
  const PaddingExcess excess(geometry_, problem_, weights);
  for (const ConvPhase& phase : phases) {
    const std::vector<int8_t> own = WeightsOf(phase.taps, geometry_, weights);
    const int64_t k = phase.geometry.taps() * geometry_.group_inputs();
    LinearProblem problem = problem_;
    problem.clamp_excess = excess.WithoutTaps(phase.taps);
    PadColumns(&problem.clamp_excess);
    ASSIGN_OR_RETURN(auto layout, ConvLayout::Create(problem, {own.data(), k, problem_.n, 1, k, weights.flip},
                                                     phase.geometry, isa_,
                                                     ConvLayout::ModelForm(problem, phase.geometry, isa_)));
    layouts_.push_back(std::move(layout));
    layout_taps_.push_back(phase.taps);
  }
  KeepUnreadTaps(weights);
  if (!geometry_.IsOpen() && !BarePixels::Has(sized, phases)) return {};
  ASSIGN_OR_RETURN(bare_plan_, MakeBarePlan(problem_, excess.WithoutTaps({}), isa_));
  return {};
}

void Convolution::KeepUnreadTaps(const WeightView& weights) {
  std::vector<bool> is_read(static_cast<size_t>(geometry_.taps()));
  for (const std::vector<int64_t>& taps : layout_taps_) {
    for (const int64_t tap : taps) is_read[static_cast<size_t>(tap)] = true;
  }
  for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
    if (!is_read[static_cast<size_t>(tap)]) unread_taps_.push_back(tap);
  }
  unread_weights_ = WeightsOf(unread_taps_, geometry_, weights);
  for (int8_t& weight : unread_weights_) weight = static_cast<int8_t>(weight ^ weights.flip);
}

Result<std::shared_ptr<const ConvLayout>> Convolution::LayoutWithoutPlanarBand(size_t phase) const {
  const std::lock_guard lock(without_planar_band_mutex_);  // not the one that prepared runs take
  without_planar_band_.resize(layouts_.size());
  std::shared_ptr<const ConvLayout>& kept = without_planar_band_[phase];
  if (kept != nullptr) return kept;
  const ConvLayout& planar = *layouts_[phase];
  auto layout = MakeLayout(phase, ConvLayout::ModelForm(planar.problem(), planar.geometry(), isa_, false));
  if (layout) kept = *layout;
  return layout;
}

Result<std::shared_ptr<const ConvLayout>> Convolution::MakeLayout(size_t phase,
                                                                  const ConvLayout::Form& form) const {
  const ConvLayout& other = *layouts_[phase];
  const ConvGeometry& geometry = other.geometry();
  const int64_t inputs = geometry.group_inputs();
  const int64_t k = geometry.taps() * inputs;
  std::vector<int8_t> weights(static_cast<size_t>(k * problem_.n));
  ASSIGN_OR_RETURN(const ConvLayout::UnitPanels panels, other.Panels());
  for (int64_t column = 0; column < problem_.n; ++column) {
    for (int64_t tap = 0; tap < geometry.taps(); ++tap) {
      other.CopyTap(panels, column, tap, &weights[static_cast<size_t>(column * k + tap * inputs)]);
    }
  }
  for (int8_t& weight : weights) weight = static_cast<int8_t>(weight ^ problem_.b_flip());
  return ConvLayout::Create(other.problem(), {weights.data(), k, problem_.n, 1, k, problem_.b_flip()},
                            geometry, isa_, form);
}

int64_t Convolution::packed_bytes() const {
  int64_t bytes = bare_plan_ == nullptr ? 0 : bare_plan_->packed_bytes();
  if (fixed_ != nullptr) {
    for (const auto& plan : fixed_->plans->plans) bytes += plan->kernels().packed_bytes();
  } else {
    for (const auto& layout : layouts_) bytes += layout->packed_bytes();
    for (const Choice& choice : tuned_) {
      if (choice.layout != layouts_[choice.phase]) bytes += choice.layout->packed_bytes();
    }
  }
  return bytes;
}

ScheduleStatistics Convolution::schedule_statistics() const {
  ScheduleStatistics all;
  if (fixed_ != nullptr) {
    for (const auto& plan : fixed_->plans->plans) all += plan->kernels().schedule_statistics();
    return all;
  }
  for (const auto& layout : layouts_) {
    for (int64_t unit = 0; unit < layout->units() && layout->model(unit) != nullptr; ++unit) {
      all += layout->model(unit)->schedule_statistics();
    }
  }
  return all;
}

void Convolution::RunAllAs(int64_t m) {
  run_all_as_ = m;
  if (bare_plan_ != nullptr) bare_plan_->mutable_engines()->RunAllAs(m);
  if (fixed_ == nullptr) return;
  for (const auto& plan : fixed_->plans->plans) plan->mutable_kernels()->RunAllAs(m);
  fixed_ = Decide(fixed_->plans, 1);
}

Result<Convolution::CopyColumn> Convolution::ColumnsAt(int64_t pitch) const {
  std::vector<ConvLayout::UnitPanels> panels;
  for (const auto& layout : layouts_) {
    ASSIGN_OR_RETURN(ConvLayout::UnitPanels own, layout->Panels());
    panels.push_back(std::move(own));
  }
  return CopyColumn([this, pitch, panels = std::move(panels)](int64_t column, int8_t* to) {
    for (size_t i = 0; i < layouts_.size(); ++i) {
      for (int64_t tap = 0; tap < layouts_[i]->geometry().taps(); ++tap) {
        const int64_t place = layout_taps_.empty() ? tap : layout_taps_[i][static_cast<size_t>(tap)];
        layouts_[i]->CopyTap(panels[i], column, tap, to + place * pitch);
      }
    }
    const int64_t inputs = geometry_.group_inputs();
    const auto unread = static_cast<int64_t>(unread_taps_.size());
    for (int64_t i = 0; i < unread; ++i) {
      std::copy_n(unread_weights_.begin() + (column * unread + i) * inputs, inputs,
                  to + unread_taps_[static_cast<size_t>(i)] * pitch);
    }
  });
}

Result<PairedColumns> Convolution::Pairs(int32_t pairing) const {
  const int64_t pitch = PairPitch(pairing);
  ASSIGN_OR_RETURN(CopyColumn columns, ColumnsAt(pitch));
  return PairedColumns{geometry_.taps() * pitch, geometry_.output_channels, std::move(columns)};
}

Result<Certificate> Convolution::MakeCertificate(int32_t pairing) const {
  ASSIGN_OR_RETURN(const PairedColumns pairs, Pairs(pairing));
  Result<Certificate> certificate = Certify(pairs, problem_.range);
  if (!certificate) return certificate;
  std::tie(certificate->accumulator_min, certificate->accumulator_max) = AccumulatorBounds();
  return certificate;
}

Result<std::vector<FailingPair>> Convolution::ListFailingPairs(int32_t pairing, int64_t first,
                                                               int64_t count) const {
  ASSIGN_OR_RETURN(const PairedColumns pairs, Pairs(pairing));
  return kernels::ListFailingPairs(pairs, problem_.range, first, count);
}

std::pair<int64_t, int64_t> Convolution::AccumulatorBounds() const {
  std::pair bounds = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  const auto include = [&](const LinearWeights& weights) {
    bounds.first = std::min(bounds.first, weights.certificate().accumulator_min);
    bounds.second = std::max(bounds.second, weights.certificate().accumulator_max);
  };
  if (bare_plan_ != nullptr) include(bare_plan_->weights());
  for (const auto& layout : layouts_) {
    for (int64_t unit = 0; unit < layout->units(); ++unit) include(*layout->weights(unit));
  }
  return bounds;
}

// ----- sizes -----------------------------------------------------------------------------------------------

Result<std::vector<Convolution::SizedPhase>> Convolution::PhasesFor(const ConvGeometry& sized) const {
  std::vector<SizedPhase> sized_phases;
  if (!sized.is_transposed) {
    sized_phases.push_back({0, sized, OutputGrid::All(sized.output)});
    return sized_phases;
  }
  for (const ConvPhase& phase : PhasesOf(sized)) {
    const auto taps = std::find(layout_taps_.begin(), layout_taps_.end(), phase.taps);
    if (taps == layout_taps_.end()) return Error{INTACT_CODEGEN_FAILED, "a phase without a layout"};
    sized_phases.push_back({static_cast<size_t>(taps - layout_taps_.begin()), phase.geometry, phase.grid});
  }
  return sized_phases;
}

// As tuning chose, if it did and there is memory for it.
Result<std::unique_ptr<ConvPlan>> Convolution::MakePlan(const SizedPhase& phase) const {
  for (const Choice& choice : tuned_) {
    if (choice.input != phase.geometry.input || choice.phase != phase.number) continue;
    auto plan = MakeChosenPlan(phase, choice);
    if (plan) return plan;
  }
  const std::shared_ptr<const ConvLayout>& own = layouts_[phase.number];
  auto plan = ConvPlan::Create(own, phase.geometry, phase.grid);
  if (!plan && plan.error().status == INTACT_UNSUPPORTED && own->IsPlanar()) {
    ASSIGN_OR_RETURN(std::shared_ptr<const ConvLayout> layout, LayoutWithoutPlanarBand(phase.number));
    plan = ConvPlan::Create(std::move(layout), phase.geometry, phase.grid);
  }
  if (plan) (*plan)->mutable_kernels()->RunAllAs(run_all_as_);
  return plan;
}

Result<std::shared_ptr<const Convolution::Plans>> Convolution::MakePlans(const ConvGeometry& sized) const {
  ASSIGN_OR_RETURN(const std::vector<SizedPhase> phases, PhasesFor(sized));
  std::vector<std::unique_ptr<ConvPlan>> plans;
  for (const SizedPhase& phase : phases) {
    ASSIGN_OR_RETURN(std::unique_ptr<ConvPlan> plan, MakePlan(phase));
    plans.push_back(std::move(plan));
  }
  return Combine(sized, std::move(plans));
}

std::shared_ptr<const Convolution::Plans> Convolution::Combine(
    const ConvGeometry& sized, std::vector<std::unique_ptr<ConvPlan>> plans) const {
  auto made = std::make_shared<Plans>();
  made->geometry = sized;
  made->plans = std::move(plans);
  if (sized.is_transposed && BarePixels::Has(sized, PhasesOf(sized))) {
    made->bare = std::make_unique<BarePixels>(sized, *bare_plan_);
  }
  return made;
}

Convolution::PreparedPointer Convolution::Decide(std::shared_ptr<const Plans> plans, int64_t batch) {
  auto prepared = std::make_shared<Prepared>();
  prepared->batch = batch;
  for (const auto& plan : plans->plans) {
    const ConvRun& run = prepared->runs.emplace_back(plan->Decide(batch));
    prepared->bytes = std::max(prepared->bytes, run.bytes);
  }
  if (plans->bare != nullptr) {
    prepared->bare = &plans->bare->EngineOf();
    prepared->bytes = std::max(prepared->bytes, plans->bare->ScratchBytes(*prepared->bare));
  }
  prepared->plans = std::move(plans);
  return prepared;
}

Result<Convolution::PreparedPointer> Convolution::Find(const intact_conv_args& args) const {
  if (fixed_ == nullptr || args.batch != 1) {
    Spatial input = geometry_.input;
    for (int i = 0; i < geometry_.dims; ++i) {
      if (args.input[i] != 0) input[geometry_.Place(i)] = args.input[i];
    }
    return FindOrMake(input, args);
  }
  for (int i = 0; i < geometry_.dims; ++i) {
    if (args.input[i] == 0 || args.input[i] == geometry_.input[geometry_.Place(i)]) continue;
    return Sized(geometry_, args.input).error();
  }
  return fixed_;
}

Result<Convolution::PreparedPointer> Convolution::FindOrMake(const Spatial& input,
                                                             const intact_conv_args& args) const {
  std::shared_ptr<const Plans> plans;
  {
    const std::lock_guard lock(mutex_);
    for (auto i = used_.begin(); i != used_.end(); ++i) {
      if ((*i)->plans->geometry.input != input) continue;
      plans = (*i)->plans;
      if ((*i)->batch != args.batch) continue;
      used_.splice(used_.begin(), used_, i);
      return used_.front();
    }
  }
  ASSIGN_OR_RETURN(const ConvGeometry sized, Sized(geometry_, args.input));
  RETURN_IF_ERROR(CheckBatch(sized, args.batch));
  if (plans == nullptr && fixed_ != nullptr) plans = fixed_->plans;
  if (plans == nullptr) {
    ASSIGN_OR_RETURN(plans, MakePlans(sized));
  }
  PreparedPointer prepared = Decide(std::move(plans), args.batch);
  PreparedPointer evicted;  // destroyed after the lock: other threads' runs do not wait for it
  const std::lock_guard lock(mutex_);
  for (auto i = used_.begin(); i != used_.end(); ++i) {  // another thread may have been faster
    if ((*i)->batch != args.batch || (*i)->plans->geometry.input != input) continue;
    used_.splice(used_.begin(), used_, i);
    return used_.front();
  }
  used_.push_front(prepared);
  if (used_.size() > kMostPrepared) {
    evicted = std::move(used_.back());
    used_.pop_back();
  }
  return prepared;
}

// ----- runs ------------------------------------------------------------------------------------------------

/// How a run of some plans is cut for a number of threads: found once, by the thread that begins it. A run takes
/// no memory, so cuts are kept for so many phases of a transposed convolution; those of more, which would be
/// very small, are found anew by each part.
class Convolution::Cuts {
 public:
  Cuts(const Prepared& prepared, int parts) : prepared_(prepared), asked_parts_(parts) {
    for (size_t i = 0; i < prepared.runs.size(); ++i) {
      const Partition cut = Find(i);
      parts_ = std::max<int64_t>(parts_, cut.parts());
      if (i < kKept) kept_[i] = cut;
    }
    const BarePixels* const bare = prepared.plans->bare.get();
    if (bare != nullptr) parts_ = std::max(parts_, std::min<int64_t>(bare->Parts(prepared.batch), parts));
  }
  const Prepared& prepared() const { return prepared_; }
  /// Parts that the run was to be cut into, and how many there are: more would be empty.
  int asked_parts() const { return asked_parts_; }
  int parts() const { return static_cast<int>(parts_); }
  /// What part `part` computes of plan `plan`.
  Range Share(size_t plan, int part) const {
    return plan < kKept ? kept_[plan].Share(part) : Find(plan).Share(part);
  }

 private:
  static constexpr size_t kKept = 16;
  Partition Find(size_t plan) const {
    return prepared_.plans->plans[plan]->Cut(prepared_.runs[plan], asked_parts_);
  }

  const Prepared& prepared_;
  int asked_parts_;
  int64_t parts_ = 1;
  std::array<Partition, kKept> kept_;
};

Error Convolution::Prepare(const intact_conv_args& args, intact_run_info* info) const {
  RETURN_IF_ERROR(CheckThreads(args.threads));
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  const ThreadCount count = CountThreads(Cuts(prepared, prepared.Threads(args.threads, isa())).parts());
  const Spatial& output = prepared.plans->geometry.output;
  std::fill(std::begin(info->output), std::end(info->output), 1);
  std::copy(output.end() - geometry_.dims, output.end(), info->output);
  info->scratch_bytes = ScratchSize(prepared.bytes * count.threads);
  info->part_scratch_bytes = ScratchSize(prepared.bytes);
  return {};
}

Result<std::vector<Share>> Convolution::Shares(const intact_conv_args& args) const {
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  const Cuts cuts(prepared, prepared.Threads(args.threads, isa()));
  std::vector<Share> shares(static_cast<size_t>(cuts.parts()));
  for (int part = 0; part < std::ssize(shares); ++part) {
    Share& share = shares[static_cast<size_t>(part)];
    for (size_t i = 0; i < prepared.runs.size(); ++i) {
      prepared.plans->plans[i]->AddShare(prepared.runs[i], cuts.Share(i, part), &share);
    }
    if (prepared.bare == nullptr) continue;
    prepared.plans->bare->AddShare(*prepared.bare, args.batch, part, cuts.asked_parts(), &share);
  }
  return shares;
}

Error Convolution::CheckArguments(const intact_conv_args& args) const {
  if (args.a == nullptr) return InvalidArgument("a is NULL");
  RETURN_IF_ERROR(CheckStride("a_stride", args.a_stride, geometry_.input_channels));
  return CheckOutput(problem_.output, geometry_.output_channels,
                     {args.c, args.c_stride, args.residual, args.residual_stride});
}

// What depends on the extents: those that the caller expects of the output, and that C has no byte of its inputs,
// except where the residual is C itself.
Error Convolution::CheckSizedArguments(const intact_conv_args& args, const ConvGeometry& sized) const {
  for (int i = 0; i < sized.dims; ++i) {
    const int64_t extent = sized.output[sized.Place(i)];
    if (args.output[i] == 0 || args.output[i] == extent) continue;
    return Unexpected("output[" + std::to_string(i) + "]", args.output[i],
                      std::to_string(extent) + ", which follows from the input");
  }
  const auto pixels_of = [&](const Spatial& extents) {
    return args.batch * extents[0] * extents[1] * extents[2];
  };
  const auto rows = [](const char* name, const void* data, int64_t pixels, int64_t channels, int64_t stride,
                       int bytes) {
    return MemoryRows{name, data, pixels, channels * bytes, (stride == 0 ? channels : stride) * bytes};
  };
  const int64_t outputs = pixels_of(sized.output);
  const int64_t channels = geometry_.output_channels;
  const MemoryRows c =
      rows("c", args.c, outputs, channels, args.c_stride, core::BytesOf(problem_.output.c_type));
  Error error =
      CheckApart(c, rows("a", args.a, pixels_of(sized.input), geometry_.input_channels, args.a_stride, 1));
  if (error.status != INTACT_OK || args.residual == nullptr || args.residual == args.c) return error;
  return CheckApart(c, rows("the residual", args.residual, outputs, channels, args.residual_stride,
                            core::BytesOf(problem_.output.residual_type)));
}

void Convolution::RunShare(const intact_conv_args& args, const Cuts& cuts, int part, uint8_t* scratch) const {
  const Prepared& prepared = cuts.prepared();
  const ConvInput input{static_cast<const uint8_t*>(args.a),
                        args.a_stride == 0 ? geometry_.input_channels : args.a_stride};
  const OutputMap output = OutputMap::Of(problem_.output, geometry_.output_channels, args.c, args.c_stride,
                                         args.residual, args.residual_stride);
  for (size_t i = 0; i < prepared.runs.size(); ++i) {
    prepared.plans->plans[i]->RunShare(input, output, prepared.runs[i], cuts.Share(i, part), scratch);
  }
  if (prepared.bare == nullptr) return;
  prepared.plans->bare->RunShare(*prepared.bare, output, args.batch, part, cuts.asked_parts(), scratch);
}

Error Convolution::Run(const intact_conv_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  RETURN_IF_ERROR(CheckSizedArguments(args, prepared.plans->geometry));
  const Cuts cuts(prepared, prepared.Threads(args.threads, isa()));
  ThreadCount count = CountThreads(cuts.parts());
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, prepared.bytes, &count.threads));
  RunParts(count,
           [&](int part, int thread) { RunShare(args, cuts, part, scratch + thread * prepared.bytes); });
  return {};
}

Error Convolution::RunPart(const intact_conv_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  RETURN_IF_ERROR(CheckSizedArguments(args, found->plans->geometry));
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, found->bytes, &threads));
  RunShare(args, Cuts(*found, parts), part, scratch);
  return {};
}

}  // namespace intact::kernels
