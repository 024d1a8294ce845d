// The convolution behind intact.h. Its weights have one layout (conv_layout.h). The layout is that of a simpler
// convolution with the same outputs (conv_simplified.h). A transposed convolution has a layout for each phase (conv_transposed.h). Each size
// that runs has plans (conv_plan.h).
//
//   Create:   phases ─► a layout for each; plans, if all extents are known
//   Prepare:  extents and batch ─► plans and their decisions; the latest sizes' plans are kept
//   Tune:     time all variants of layouts and kernels for an input's extents (conv_tuning.cc)
//   Run:      cut each plan for the threads ─► each thread computes a share of each plan
//
// If runs pass or compute A's zero point and scale, a run first makes the data that all its shares read: the
// quantized input if quantization is dynamic, a pixel of padding, and each plan's constants of columns
// (per_run_column_constants.h). Everything else is as for a static plan.
#ifndef INTACT_KERNELS_PLANS_CONVOLUTION_H_
#define INTACT_KERNELS_PLANS_CONVOLUTION_H_

#include <intact/intact.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/plans/bound_run.h"
#include "kernels/plans/conv_layout.h"
#include "kernels/plans/conv_plan.h"
#include "kernels/plans/conv_transposed.h"
#include "kernels/plans/tuning.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/problem/output_grid.h"
#include "kernels/runtime/threads.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {

class Convolution {
 public:
  /// `saved`: schedules of a file. They and the file's panels must stay in memory until LeaveImage().
  static Result<std::unique_ptr<Convolution>> Create(LinearProblem problem, const ConvGeometry& geometry,
                                                     ConvWeights* weights, core::Isa isa,
                                                     std::span<const SavedSchedule> saved = {});
  /// Afterwards, the plan needs nothing of the image that it was loaded from. OUT_OF_MEMORY.
  Error LeaveImage();

  /// Fills `info`, which the caller has set to zeros.
  Error Prepare(const intact_conv_args& args, intact_run_info* info) const;
  Error Run(const intact_conv_args& args) const;
  Error RunPart(const intact_conv_args& args, int32_t part, int32_t parts) const;
  /// A run of `args`. Copies `args`. The plan outlives the run. Errors: those of Run().
  Result<std::unique_ptr<BoundRun>> Bind(const intact_conv_args& args) const;

  const LinearProblem& problem() const { return problem_; }
  const ConvGeometry& geometry() const { return geometry_; }
  core::Isa isa() const { return isa_; }
  /// Earlier names stay valid, at the same address.
  const std::string& kernel_name() const { return kernel_names_.back(); }
  int64_t packed_bytes() const;

  /// `input`: extents as in a run's arguments; null: the descriptor's. Times every way to compute an input
  /// of these extents. Later runs with these extents use the fastest way. All ways give the same bytes. Not
  /// thread-safe.
  Result<Tuned> Tune(const int64_t* input, TuningBudget budget);
  /// The ways to compute an input of these extents that Tune() would time.
  Result<std::vector<TunedChoices::ConvChoice>> ListCandidates(const int64_t* input) const;
  /// What Tune() chose, and for which extents.
  TunedChoices tuned() const;
  /// Applies choices that were measured on a CPU of this kind. Skips choices whose variant or kernel no
  /// longer exists or does not fit in memory.
  void Restore(const TunedChoices& tuned);

  /// For tests: makes the cost model choose for any number of rows as for `m`. See EngineSet::RunAllAs().
  void RunAllAs(int64_t m);
  /// Covers all output channels, for the pairs of an intact_pairing. Each call reads all packed weights.
  Result<Certificate> MakeCertificate(int32_t pairing) const;
  /// Failing pairs ordered by output channel, tap and channel: from number `first` on, at most `count`. Their
  /// `k` is tap·PairPitch(geometry(), pairing) + channel of the group.
  Result<std::vector<FailingPair>> ListFailingPairs(int32_t pairing, int64_t first, int64_t count) const;
  static int64_t PairPitch(const ConvGeometry& geometry, int32_t pairing) {
    return RoundUp(geometry.group_inputs(), pairing == INTACT_PAIRING_WITHIN_TAP ? 2 : 1);
  }
  /// The least and the greatest accumulator of activations within the activation range.
  std::pair<int64_t, int64_t> AccumulatorBounds() const;
  ScheduleStatistics schedule_statistics() const;
  /// Calls visit(phase, layout) for each layout that a file keeps the schedules of.
  template <class Visit>
  void ForEachLayout(const Visit& visit) const {
    std::vector<const ConvLayout*> visited;
    const auto visit_once = [&](size_t phase, const ConvLayout& layout) {
      if (std::ranges::find(visited, &layout) != visited.end()) return;
      visited.push_back(&layout);
      visit(static_cast<int64_t>(phase), layout);
    };
    for (size_t phase = 0; phase < layouts_.size(); ++phase) visit_once(phase, *layouts_[phase]);
    for (const Choice& choice : tuned_) visit_once(choice.phase, *choice.layout);
  }
  /// A function that copies an output channel's weights, as kernels see them: each tap's channels begin at a
  /// multiple of `pitch`. The function refers to this object.
  using CopyColumn = std::function<void(int64_t column, int8_t* to)>;
  Result<CopyColumn> ColumnsAt(int64_t pitch) const;

 private:
  /// The plans of an input of known extents.
  struct Plans {
    ConvGeometry geometry;
    std::vector<std::unique_ptr<ConvPlan>> plans;  // may be empty for a transposed convolution
    std::unique_ptr<BarePixels> bare;              // null: each pixel has a tap
  };
  /// Plans, and the decisions for all their runs of one batch size.
  struct Prepared {
    std::shared_ptr<const Plans> plans;
    int64_t batch = 0;
    double multiply_adds = 0;
    std::vector<ConvRun> runs;     // [plan of `plans`]
    const Engine* bare = nullptr;  // the engine for bare pixels
    int64_t bytes = 0;             // scratch of a part, aligned to 64 bytes
    // Scratch that all shares read, aligned to 64 bytes; 0 for a static plan. This scratch begins with a
    // pixel of padding. The offsets below locate each plan's column constants, the bare pixels' column
    // constants and the quantized input.
    int64_t shared_bytes = 0;
    std::vector<int64_t> columns_at;
    int64_t bare_columns_at = 0, quantized_at = 0;
    mutable std::atomic<bool> has_schedules = false;  // all that the runs need are found
    /// Finds the schedules that the runs need. Thread-safe. OUT_OF_MEMORY.
    Error FindSchedules(int threads) const;
    /// All pixels of the input.
    InputPixels pixels() const {
      const Spatial& input = plans->geometry.input;
      return {0, batch * input[kDepth] * input[kHeight] * input[kWidth]};
    }
    /// Number of threads that a run is cut for if it asks for `wanted`.
    int Threads(int32_t wanted, core::Isa isa) const { return ThreadsOf(wanted, multiply_adds, isa); }
  };
  class Cuts;
  class Bound;
  /// The input and the data that all shares of a run read.
  struct RunInput {
    ConvInput input;
    const uint8_t* shared = nullptr;  // see Prepared::shared_bytes; null for a static plan
    const PerRunColumnConstants* ColumnsAt(int64_t place) const {
      return shared == nullptr ? nullptr : reinterpret_cast<const PerRunColumnConstants*>(shared + place);
    }
  };
  using PreparedPointer = std::shared_ptr<const Prepared>;
  /// A phase for an input of given extents. Ordinary convolutions have one phase (conv_simplified.h).
  struct SizedPhase {
    size_t number = 0;   // its layout's index in layouts_
    Spatial input = {};  // the caller's extents
    ConvGeometry geometry;
    OutputGrid grid;
  };
  /// What tuning chose for a phase of an input's extents.
  struct Choice {
    Spatial input = {};
    size_t phase = 0;
    std::shared_ptr<const ConvLayout> layout;
    EngineChoice engine;
    std::string kernel;  // its name, for files
  };
  /// A phase's plan as tuned, and how it was chosen.
  struct TunedPhase {
    std::unique_ptr<ConvPlan> plan;
    Choice choice;
    Tuned tuned;
  };
  class Timer;
  static constexpr size_t kMostPrepared = 64;  // as intact.h promises

  Convolution(LinearProblem problem, const ConvGeometry& geometry, core::Isa isa)
      : problem_(std::move(problem)),
        layout_problem_(IsStatic() ? problem_ : problem_.WithPerRunColumnConstants()),
        geometry_(geometry),
        isa_(isa),
        padding_(static_cast<size_t>(geometry.input_channels), static_cast<uint8_t>(problem_.a_zero_point)) {}
  bool IsStatic() const { return problem_.a_quantization == INTACT_QUANTIZATION_STATIC; }
  Error MakeLayouts(ConvWeights* weights);
  /// Of an ordinary convolution: one, see Simplified().
  std::vector<ConvPhase> PhasesOf(const ConvGeometry& sized) const;
  Error MakePhases(const std::vector<ConvPhase>& phases, ConvWeights* weights);
  void KeepUnreadTaps(ConvWeights* weights);
  Result<PairedColumns> Pairs(int32_t pairing) const;

  Result<std::vector<SizedPhase>> PhasesFor(const ConvGeometry& sized) const;
  Result<std::shared_ptr<const Plans>> MakePlans(const ConvGeometry& sized) const;
  std::shared_ptr<const Plans> Combine(const ConvGeometry& sized,
                                       std::vector<std::unique_ptr<ConvPlan>> plans) const;
  Result<std::unique_ptr<ConvPlan>> MakePlan(const SizedPhase& phase) const;
  Result<std::shared_ptr<const ConvLayout>> LayoutWithoutPlanarBand(size_t phase) const;
  /// Makes a layout from the weights of the phase's existing one.
  Result<std::shared_ptr<const ConvLayout>> MakeLayout(size_t phase,
                                                       const ConvLayout::Variant& variant) const;
  void NameKernel(const Plans& plans);

  /// All variants of a phase's layout. The cost model's choice is the first.
  std::vector<ConvLayout::Variant> VariantsOf(const SizedPhase& phase) const;
  Result<std::shared_ptr<const ConvLayout>> FindOrMakeLayout(size_t phase,
                                                             const ConvLayout::Variant& variant) const;
  Result<std::unique_ptr<ConvPlan>> MakePlanAs(const SizedPhase& phase,
                                               const ConvLayout::Variant& variant) const;
  static Result<std::unique_ptr<ConvPlan>> MakeChosenPlan(const SizedPhase& phase, const Choice& choice);
  Result<TunedPhase> TunePhase(const SizedPhase& phase, Timer* timer, TuningBudget budget) const;
  void RestoreSize(const std::vector<TunedChoices::ConvChoice>& held);
  Result<TunedPhase> RestorePhase(const SizedPhase& phase,
                                  const std::vector<TunedChoices::ConvChoice>& held) const;
  /// Installs `plans` for inputs of their size.
  void Adopt(std::shared_ptr<const Plans> plans, std::vector<Choice> choices);
  /// Makes all runs use `plans`. No other plans are made from then on.
  void Fix(const std::shared_ptr<const Plans>& plans);
  /// Frees the canonical panels that no engine of fixed_ reads. Not thread-safe.
  void DropUnreadPanels() const;
  /// Frees panels that plans of the same layouts have restored, once these plans are destroyed.
  struct UnreadDropper {
    const Convolution* conv;
    ~UnreadDropper() { conv->DropUnreadPanels(); }
  };
  PreparedPointer Decide(std::shared_ptr<const Plans> plans, int64_t batch) const;
  /// Generates the kernels of all parts; with `or_fewer`, of parts with fewer rows too.
  Error PrepareShares(const Cuts& cuts, bool or_fewer) const;
  void PlaceShared(Prepared* prepared) const;
  /// The kept or newly made plans and decisions for the arguments' batch and extents.
  Result<PreparedPointer> Find(const intact_conv_args& args) const;
  Result<PreparedPointer> FindOrMake(const Spatial& input, const intact_conv_args& args) const;
  Error CheckBatch(const ConvGeometry& sized, int64_t batch) const;
  Error CheckArguments(const intact_conv_args& args) const;
  Error CheckSizedArguments(const intact_conv_args& args, const ConvGeometry& sized) const;
  /// A run of a batch of 0: only checks its arguments.
  Error RunNothing(const intact_conv_args& args) const;
  /// The quantization of a run's input; if it is dynamic, `threads` threads compute it.
  RowQuantization FindQuantizationOf(const intact_conv_args& args, const Prepared& prepared,
                                     int threads) const;
  template <class Visit>
  void ForEachSpan(const intact_conv_args& args, const InputPixels& pixels, const Visit& visit) const;
  /// Fills `shared` with what a run reads there, for `pixels` of its input.
  RunInput MakeInput(const intact_conv_args& args, const Prepared& prepared, const InputPixels& pixels,
                     int threads, uint8_t* shared) const;
  void RunShare(const intact_conv_args& args, const RunInput& from, const Cuts& cuts, int part,
                uint8_t* scratch) const;

  LinearProblem problem_, layout_problem_;  // the caller's; the problem that layouts compute
  ConvGeometry geometry_;
  core::Isa isa_;
  std::span<const SavedSchedule> saved_;                    // empty after LeaveImage()
  std::vector<uint8_t> padding_;                            // a static plan's pixel of padding
  Quantizer quantizer_;                                     // for dynamic quantization
  std::vector<std::shared_ptr<const ConvLayout>> layouts_;  // [phase]
  std::vector<std::vector<int64_t>> layout_taps_;  // [layout][tap]: the tap's index in the caller's weights
  // For the certificate: taps that no output reads, and their weights as kernels see them.
  std::vector<int64_t> unread_taps_;
  std::vector<int8_t> unread_weights_;  // [output channel][tap][channel]
  std::unique_ptr<UnitPlan> bare_plan_;
  std::list<std::string> kernel_names_;  // of the plan with the most products; the current name is last
  std::vector<Choice> tuned_;            // by rising extents and phase
  int64_t run_all_as_ = 0;               // see RunAllAs()

  PreparedPointer fixed_;  // for a batch of one; null if an extent is open
  mutable std::mutex mutex_;
  mutable std::list<PreparedPointer> used_;  // the last used first
  // If an extent is open: layouts for inputs that are too large for a planar band, made for the first such
  // input.
  mutable std::mutex without_planar_band_mutex_;
  mutable std::vector<std::shared_ptr<const ConvLayout>> without_planar_band_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONVOLUTION_H_
