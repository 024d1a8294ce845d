#include "kernels/plans/convolution.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/plans/conv_simplified.h"
#include "kernels/plans/tensor_quantization.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

Error Convolution::CheckBatch(const ConvGeometry& sized, int64_t batch) const {
  int64_t most = std::numeric_limits<int32_t>::max() / (sized.output[kDepth] * sized.plane_pixels());
  if (problem_.IsDynamic()) {
    constexpr int64_t kMostElements = int64_t{1} << 40;  // quantized in scratch
    const auto& [depth, height, width] = sized.input;
    most = std::min(most, kMostElements / (depth * height * width * sized.input_channels));
  }
  if (batch >= 0 && batch <= most) return {};
  return Unexpected("batch", batch, "0 to " + std::to_string(most));
}

Result<std::unique_ptr<Convolution>> Convolution::Create(LinearProblem problem, const ConvGeometry& geometry,
                                                         ConvWeights* weights, core::Isa isa,
                                                         std::span<const SavedSchedule> saved) {
  std::unique_ptr<Convolution> made(new Convolution(std::move(problem), geometry, isa));
  made->saved_ = saved;
  const LinearProblem& own = made->problem_;
  if (own.IsDynamic()) {
    ASSIGN_OR_RETURN(made->quantizer_, Quantizer::Create(isa, own.a_type, own.a_source_type));
  }
  RETURN_IF_ERROR(made->MakeLayouts(weights));
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Plans> plans, made->MakePlans(sized));
  made->NameKernel(*plans);
  if (geometry.IsOpen()) return made;
  for (const auto& plan : plans->plans) RETURN_IF_ERROR(plan->PrepareImage(plan->Decide(1)));
  if (plans->bare != nullptr) RETURN_IF_ERROR(plans->bare->PrepareRows(plans->bare->EngineOf()));
  made->Fix(plans);
  return made;
}

Error Convolution::LeaveImage() {
  saved_ = {};
  Error error;
  const auto leave = [&error](const ConvLayout& layout) {
    if (error.ok()) error = layout.LeaveImage();
  };
  ForEachLayout([&](int64_t /*phase*/, const ConvLayout& layout) { leave(layout); });
  for (const auto& layout : without_planar_band_) {
    if (layout != nullptr) leave(*layout);
  }
  return error;
}

void Convolution::Fix(const std::shared_ptr<const Plans>& plans) {
  fixed_ = Decide(plans, 1);
  DropUnreadPanels();
}

void Convolution::DropUnreadPanels() const {
  if (fixed_ == nullptr) return;
  // Each plan has its own layout, so no other plan reads its panels.
  for (const auto& plan : fixed_->plans->plans) plan->mutable_kernels()->DropUnreadPanels();
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

Error Convolution::MakeLayouts(ConvWeights* weights) {
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry_));
  if (geometry_.is_transposed) {
    if (ConvLayout::PairsCrossTaps(problem_, geometry_)) {
      return Unsupported("pairing is " + std::to_string(problem_.pairing) +
                         " in a transposed convolution with " + std::to_string(geometry_.group_inputs()) +
                         " input channels per group; expected 0, or an even number of channels");
    }
  }
  return MakePhases(PhasesOf(sized), weights);
}

std::vector<ConvPhase> Convolution::PhasesOf(const ConvGeometry& sized) const {
  if (sized.is_transposed) return kernels::PhasesOf(sized);
  std::vector<ConvPhase> phases;
  phases.push_back(Simplified(sized, problem_.mode == INTACT_EXACT));
  return phases;
}

Error Convolution::MakePhases(const std::vector<ConvPhase>& phases, ConvWeights* weights) {
  const bool is_transposed = geometry_.is_transposed;
  std::vector<PaddingExcess> excess;
  for (const int32_t zero_point : layout_problem_.PaddingZeroPoints()) {
    if (is_transposed) excess.emplace_back(geometry_, layout_problem_, weights->Dense(), zero_point);
  }
  for (const ConvPhase& phase : phases) {
    const bool is_whole = !is_transposed && std::ssize(phase.taps) == geometry_.taps();
    std::vector<int8_t> columns;
    if (!is_whole) columns = WeightsOf(phase.taps, geometry_, weights->Dense());
    const int64_t k = phase.geometry.taps() * geometry_.group_inputs();
    ConvWeights of_taps(
        {columns.data(), k, problem_.n, 1, k, is_whole ? uint8_t{0} : weights->Dense().shift});
    LinearProblem problem = layout_problem_;
    if (is_transposed) problem.clamp_excess = ExcessWithoutTaps(excess, phase.taps);
    ASSIGN_OR_RETURN(auto layout,
                     ConvLayout::Create(problem, is_whole ? weights : &of_taps, phase.geometry, isa_,
                                        ConvLayout::ModelVariant(problem, phase.geometry, isa_),
                                        std::ssize(layouts_), saved_));
    layouts_.push_back(std::move(layout));
    layout_taps_.push_back(phase.taps);
  }
  KeepUnreadTaps(weights);
  if (!is_transposed) return {};
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry_));
  if (!geometry_.IsOpen() && !BarePixels::Has(sized, phases)) return {};
  LinearProblem problem = layout_problem_;
  problem.clamp_excess = ExcessWithoutTaps(excess, {});
  ASSIGN_OR_RETURN(bare_plan_, MakeBarePlan(std::move(problem), isa_));
  return {};
}

void Convolution::KeepUnreadTaps(ConvWeights* weights) {
  std::vector<bool> is_read(static_cast<size_t>(geometry_.taps()));
  for (const std::vector<int64_t>& taps : layout_taps_) {
    for (const int64_t tap : taps) is_read[static_cast<size_t>(tap)] = true;
  }
  for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
    if (!is_read[static_cast<size_t>(tap)]) unread_taps_.push_back(tap);
  }
  if (unread_taps_.empty()) return;
  const WeightView& dense = weights->Dense();
  unread_weights_ = WeightsOf(unread_taps_, geometry_, dense);
  for (int8_t& weight : unread_weights_) weight = static_cast<int8_t>(weight ^ dense.shift);
}

Result<std::shared_ptr<const ConvLayout>> Convolution::LayoutWithoutPlanarBand(size_t phase) const {
  const std::lock_guard lock(without_planar_band_mutex_);  // not mutex_, which prepared runs lock
  without_planar_band_.resize(layouts_.size());
  std::shared_ptr<const ConvLayout>& kept = without_planar_band_[phase];
  if (kept != nullptr) return kept;
  const ConvLayout& planar = *layouts_[phase];
  auto layout = MakeLayout(phase, ConvLayout::ModelVariant(planar.problem(), planar.geometry(), isa_, false));
  if (layout) kept = *layout;
  return layout;
}

Result<std::shared_ptr<const ConvLayout>> Convolution::MakeLayout(size_t phase,
                                                                  const ConvLayout::Variant& variant) const {
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
  for (int8_t& weight : weights) weight = static_cast<int8_t>(weight ^ problem_.b_shift());
  ConvWeights columns({weights.data(), k, problem_.n, 1, k, problem_.b_shift()});
  return ConvLayout::Create(other.problem(), &columns, geometry, isa_, variant, static_cast<int64_t>(phase),
                            saved_);
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
        layouts_[i]->CopyTap(panels[i], column, tap, to + layout_taps_[i][static_cast<size_t>(tap)] * pitch);
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
  const int64_t pitch = PairPitch(geometry_, pairing);
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
  for (const ConvPhase& phase : PhasesOf(sized)) {
    const auto taps = std::find(layout_taps_.begin(), layout_taps_.end(), phase.taps);
    if (taps == layout_taps_.end()) return Error{INTACT_CODEGEN_FAILED, "a phase without a layout"};
    sized_phases.push_back(
        {static_cast<size_t>(taps - layout_taps_.begin()), sized.input, phase.geometry, phase.grid});
  }
  return sized_phases;
}

// Uses the choice of tuning, if there is one and it fits in memory.
Result<std::unique_ptr<ConvPlan>> Convolution::MakePlan(const SizedPhase& phase) const {
  for (const Choice& choice : tuned_) {
    if (choice.input != phase.input || choice.phase != phase.number) continue;
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

Convolution::PreparedPointer Convolution::Decide(std::shared_ptr<const Plans> plans, int64_t batch) const {
  auto prepared = std::make_shared<Prepared>();
  prepared->batch = batch;
  for (const auto& plan : plans->plans) {
    prepared->multiply_adds += plan->geometry().MultiplyAdds(batch);  // without taps that are dropped
    const ConvRun& run = prepared->runs.emplace_back(plan->Decide(batch));
    prepared->bytes = std::max(prepared->bytes, run.bytes);
  }
  if (plans->bare != nullptr) {
    prepared->bare = &plans->bare->EngineOf();
    prepared->bytes = std::max(prepared->bytes, plans->bare->ScratchBytes(*prepared->bare));
  }
  prepared->plans = std::move(plans);
  if (!IsStatic()) PlaceShared(prepared.get());
  return prepared;
}

Error Convolution::Prepared::FindSchedules(int threads) const {
  if (has_schedules.load(std::memory_order_acquire)) return {};
  for (size_t i = 0; i < runs.size(); ++i)
    RETURN_IF_ERROR(plans->plans[i]->kernels().FindSchedules(runs[i], threads));
  has_schedules.store(true, std::memory_order_release);
  return {};
}

void Convolution::PlaceShared(Prepared* prepared) const {
  const Plans& plans = *prepared->plans;
  int64_t& end = prepared->shared_bytes;
  end = RoundUp(geometry_.input_channels, 64);
  for (const auto& plan : plans.plans) {
    prepared->columns_at.push_back(end);
    end += plan->kernels().RunColumnBytes();
  }
  prepared->bare_columns_at = end;
  if (plans.bare != nullptr)
    end += RoundUp(sizeof(PerRunColumnConstants), 64) + plans.bare->plan().data().RunColumnBytes();
  prepared->quantized_at = end;
  if (problem_.IsDynamic()) end += RoundUp(prepared->pixels().end * geometry_.input_channels, 64);
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
  return PreparedPointer(PreparedPointer(), fixed_.get());  // counts no reference, which would take time
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

/// How a run of some plans is cut for a number of threads. The thread that begins the run finds the cuts
/// once. Runs allocate no memory, so cuts of only kKept phases of a transposed convolution are kept. Each
/// part finds the cuts of further phases, which would be very small, again.
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
  /// The requested number of parts, and the number of parts that are not empty.
  int asked_parts() const { return asked_parts_; }
  int parts() const { return static_cast<int>(parts_); }
  /// A range that contains all input pixels that part `part` reads.
  InputPixels PixelsOf(int part) const {
    InputPixels all;
    for (size_t i = 0; i < prepared_.runs.size(); ++i) {
      const InputPixels own = prepared_.plans->plans[i]->PixelsOf(Share(i, part));
      if (own.begin == own.end) continue;
      const bool is_first = all.begin == all.end;
      all = {is_first ? own.begin : std::min(all.begin, own.begin), std::max(all.end, own.end)};
    }
    return all;
  }
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
  const auto report = [&](const Spatial& output) {
    std::fill(std::begin(info->output), std::end(info->output), 1);
    std::copy(output.end() - geometry_.dims, output.end(), info->output);
  };
  if (args.batch == 0) {
    ASSIGN_OR_RETURN(const ConvGeometry sized, Sized(geometry_, args.input));
    report(sized.output);
    return {};
  }
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  const Cuts cuts(prepared, prepared.Threads(args.threads, isa()));
  const ThreadCount count = CountThreads(cuts.parts());
  RETURN_IF_ERROR(PrepareShares(cuts, true));
  report(prepared.plans->geometry.output);
  info->scratch_bytes = ScratchSize(prepared.shared_bytes + prepared.bytes * count.threads);
  info->part_scratch_bytes = ScratchSize(prepared.shared_bytes + prepared.bytes);
  return {};
}

Error Convolution::PrepareShares(const Cuts& cuts, bool or_fewer) const {
  const Prepared& prepared = cuts.prepared();
  RETURN_IF_ERROR(prepared.FindSchedules(1));
  for (size_t i = 0; i < prepared.runs.size(); ++i) {
    for (int part = 0; part < cuts.parts(); ++part) {
      RETURN_IF_ERROR(
          prepared.plans->plans[i]->PrepareShare(prepared.runs[i], cuts.Share(i, part), or_fewer));
    }
  }
  return prepared.bare == nullptr ? Error() : prepared.plans->bare->PrepareRows(*prepared.bare);
}

Error Convolution::CheckArguments(const intact_conv_args& args) const {
  const OutputArguments output = {args.c, args.c_stride, args.residual, args.residual_stride};
  RETURN_IF_ERROR(CheckStride("a_stride", args.a_stride, geometry_.input_channels));
  RETURN_IF_ERROR(CheckOutputStrides(geometry_.output_channels, output));
  if (args.batch == 0) return {};
  if (args.a == nullptr) return Refuse([] { return InvalidArgument("a is NULL"); });
  RETURN_IF_ERROR(CheckRowArguments(problem_, 1, args.a_zero_points, args.a_scales));
  return CheckOutput(problem_.output, geometry_.output_channels, output);
}

// Checks that depend on extents: the output has the extents that the caller expects, and C does not overlap
// its inputs, except that the residual may be C itself.
Error Convolution::CheckSizedArguments(const intact_conv_args& args, const ConvGeometry& sized) const {
  for (int i = 0; i < sized.dims; ++i) {
    const int64_t extent = sized.output[sized.Place(i)];
    if (args.output[i] == 0 || args.output[i] == extent) continue;
    return Refuse([=, &args] {
      return Unexpected("output[" + std::to_string(i) + "]", args.output[i],
                        std::to_string(extent) + ", which follows from the input");
    });
  }
  if (args.batch == 0) return {};
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
  RETURN_IF_ERROR(CheckApart(c, rows("a", args.a, pixels_of(sized.input), geometry_.input_channels,
                                     args.a_stride, problem_.a_bytes())));
  if (args.residual == nullptr || args.residual == args.c) return {};
  return CheckApart(c, rows("the residual", args.residual, outputs, channels, args.residual_stride,
                            core::BytesOf(problem_.output.residual_type)));
}

Error Convolution::RunNothing(const intact_conv_args& args) const {
  ASSIGN_OR_RETURN(const ConvGeometry sized, Sized(geometry_, args.input));
  return CheckSizedArguments(args, sized);
}

// Calls visit(numbers, first, count) for runs of adjacent numbers of `pixels`; `first` is the index of the
// run's first number in a dense tensor.
template <class Visit>
void Convolution::ForEachSpan(const intact_conv_args& args, const InputPixels& pixels,
                              const Visit& visit) const {
  const int64_t channels = geometry_.input_channels;
  const int64_t stride = args.a_stride == 0 ? channels : args.a_stride;
  const auto* const x = static_cast<const uint8_t*>(args.a);
  const int64_t bytes = problem_.a_bytes();
  if (stride == channels) {
    if (pixels.begin < pixels.end) {
      visit(x + pixels.begin * channels * bytes, pixels.begin * channels,
            (pixels.end - pixels.begin) * channels);
    }
    return;
  }
  for (int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    visit(x + pixel * stride * bytes, pixel * channels, channels);
  }
}

RowQuantization Convolution::FindQuantizationOf(const intact_conv_args& args, const Prepared& prepared,
                                                int threads) const {
  if (!problem_.IsDynamic()) {
    return {args.a_scales == nullptr ? 1.0f : *args.a_scales,
            args.a_zero_points == nullptr ? 0 : *args.a_zero_points};
  }
  return FindQuantization(quantizer_, prepared.pixels().end, threads, [&](int64_t begin, int64_t end) {
    NumberRange range;
    ForEachSpan(args, {begin, end}, [&](const uint8_t* x, int64_t /*first*/, int64_t count) {
      range.Add(quantizer_.Scan(x, count));
    });
    return range;
  });
}

Convolution::RunInput Convolution::MakeInput(const intact_conv_args& args, const Prepared& prepared,
                                             const InputPixels& pixels, int threads, uint8_t* shared) const {
  const int64_t channels = geometry_.input_channels;
  RunInput made;
  made.input = {static_cast<const uint8_t*>(args.a), args.a_stride == 0 ? channels : args.a_stride,
                padding_.data()};
  if (IsStatic()) return made;
  made.shared = shared;
  const RowQuantization how = FindQuantizationOf(args, prepared, threads);
  std::fill_n(shared, channels, static_cast<uint8_t>(how.zero_point));
  made.input.padding = shared;
  const Plans& plans = *prepared.plans;
  for (size_t i = 0; i < plans.plans.size(); ++i) {
    plans.plans[i]->kernels().MakePerRunColumnConstants(how, shared + prepared.columns_at[i]);
  }
  if (plans.bare != nullptr) {
    uint8_t* const at = shared + prepared.bare_columns_at;
    *reinterpret_cast<PerRunColumnConstants*>(at) = plans.bare->plan().data().MakePerRunColumnConstants(
        how, at + RoundUp(sizeof(PerRunColumnConstants), 64));
  }
  if (!problem_.IsDynamic()) return made;
  uint8_t* const quantized = shared + prepared.quantized_at;
  RunParts({threads, threads}, [&](int share, int /*thread*/) {
    const int64_t count = pixels.end - pixels.begin;
    const InputPixels own{pixels.begin + count * share / threads,
                          pixels.begin + count * (share + 1) / threads};
    ForEachSpan(args, own, [&](const uint8_t* x, int64_t first, int64_t numbers) {
      quantizer_.Quantize(x, numbers, how, quantized + first);
    });
  });
  made.input.a = quantized;
  made.input.stride = channels;
  return made;
}

void Convolution::RunShare(const intact_conv_args& args, const RunInput& from, const Cuts& cuts, int part,
                           uint8_t* scratch) const {
  const Prepared& prepared = cuts.prepared();
  const Plans& plans = *prepared.plans;
  const OutputMap output = OutputMap::Of(problem_.output, geometry_.output_channels, args.c, args.c_stride,
                                         args.residual, args.residual_stride);
  for (size_t i = 0; i < prepared.runs.size(); ++i) {
    const PerRunColumnConstants* const columns =
        IsStatic() ? nullptr : from.ColumnsAt(prepared.columns_at[i]);
    plans.plans[i]->RunShare(from.input, columns, output, prepared.runs[i], cuts.Share(i, part), scratch);
  }
  if (prepared.bare == nullptr) return;
  plans.bare->RunShare(*prepared.bare, from.input, from.ColumnsAt(prepared.bare_columns_at), output,
                       args.batch, part, cuts.asked_parts(), scratch);
}

Error Convolution::Run(const intact_conv_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (args.batch == 0) return RunNothing(args);
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  RETURN_IF_ERROR(CheckSizedArguments(args, prepared.plans->geometry));
  const Cuts cuts(prepared, prepared.Threads(args.threads, isa()));
  ThreadCount count = CountThreads(cuts.parts());
  RETURN_IF_ERROR(prepared.FindSchedules(count.threads));
  ASSIGN_OR_RETURN(uint8_t* const shared, ScratchOf(args.scratch, args.scratch_bytes, prepared.bytes,
                                                    &count.threads, prepared.shared_bytes));
  const RunInput from = MakeInput(args, prepared, prepared.pixels(), count.threads, shared);
  uint8_t* const scratch = shared + prepared.shared_bytes;
  RunParts(count, [&](int part, int thread) {
    RunShare(args, from, cuts, part, scratch + thread * prepared.bytes);
  });
  return {};
}

Error Convolution::RunPart(const intact_conv_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  if (args.batch == 0) return RunNothing(args);
  ASSIGN_OR_RETURN(const PreparedPointer found, Find(args));
  const Prepared& prepared = *found;
  RETURN_IF_ERROR(CheckSizedArguments(args, prepared.plans->geometry));
  RETURN_IF_ERROR(prepared.FindSchedules(1));
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const shared, ScratchOf(args.scratch, args.scratch_bytes, prepared.bytes,
                                                    &threads, prepared.shared_bytes));
  const Cuts cuts(prepared, parts);
  const RunInput from = MakeInput(args, prepared, cuts.PixelsOf(part), 1, shared);
  RunShare(args, from, cuts, part, shared + prepared.shared_bytes);
  return {};
}

// ----- bound runs ------------------------------------------------------------------------------------------

/// A run on one thread.
class Convolution::Bound final : public BoundRun {
 public:
  Bound(const Convolution& plan, const intact_conv_args& args, PreparedPointer prepared)
      : plan_(plan), args_(args), prepared_(std::move(prepared)), cuts_(*prepared_, 1) {}
  Error SetScratch() {
    return scratch_.Set(args_.scratch, args_.scratch_bytes, prepared_->shared_bytes + prepared_->bytes);
  }
  /// Binds the kernels' arguments too, if all calls can be repeated. Set the scratch first.
  void BindCalls() {
    if (!plan_.IsStatic() || prepared_->bare != nullptr) return;
    const RunInput from = plan_.MakeInput(args_, *prepared_, prepared_->pixels(), 1, nullptr);
    const OutputMap output = OutputMap::Of(plan_.problem_.output, plan_.geometry_.output_channels, args_.c,
                                           args_.c_stride, args_.residual, args_.residual_stride);
    for (size_t i = 0; i < prepared_->runs.size(); ++i) {
      if (!prepared_->plans->plans[i]->Bind(from.input, output, prepared_->runs[i], cuts_.Share(i, 0),
                                            scratch_.data() + prepared_->shared_bytes, &calls_)) {
        return calls_.clear();
      }
    }
  }
  Error Run() override {
    for (const auto& calls : calls_) calls->Run();
    if (!calls_.empty()) return {};
    RETURN_IF_ERROR(CheckRowArguments(plan_.problem_, 1, args_.a_zero_points, args_.a_scales));
    const RunInput from = plan_.MakeInput(args_, *prepared_, prepared_->pixels(), 1, scratch_.data());
    plan_.RunShare(args_, from, cuts_, 0, scratch_.data() + prepared_->shared_bytes);
    return {};
  }

 private:
  const Convolution& plan_;
  intact_conv_args args_;
  PreparedPointer prepared_;
  Cuts cuts_;
  std::vector<std::unique_ptr<BoundCalls>> calls_;  // of all chunks; empty: Run() finds the calls each time
  BoundScratch scratch_;
};

Result<std::unique_ptr<BoundRun>> Convolution::Bind(const intact_conv_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (args.batch == 0) {
    RETURN_IF_ERROR(RunNothing(args));
    return std::unique_ptr<BoundRun>(std::make_unique<EmptyRun>());
  }
  ASSIGN_OR_RETURN(PreparedPointer found, Find(args));
  RETURN_IF_ERROR(CheckSizedArguments(args, found->plans->geometry));
  // Parts that would run on one thread are not cut.
  const int threads = found->Threads(args.threads, isa());
  const bool is_alone = CountThreads(Cuts(*found, threads).parts()).threads == 1;
  const Cuts cuts(*found, is_alone ? 1 : threads);
  RETURN_IF_ERROR(PrepareShares(cuts, false));
  if (cuts.parts() != 1) {
    auto bound = std::make_unique<CheckedRun<Convolution, intact_conv_args>>(*this, args);
    RETURN_IF_ERROR(bound->CheckScratch(found->shared_bytes + found->bytes));
    return std::unique_ptr<BoundRun>(std::move(bound));
  }
  auto bound = std::make_unique<Bound>(*this, args, std::move(found));
  RETURN_IF_ERROR(bound->SetScratch());
  bound->BindCalls();
  return std::unique_ptr<BoundRun>(std::move(bound));
}

}  // namespace intact::kernels
