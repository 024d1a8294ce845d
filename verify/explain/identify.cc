#include "verify/explain/identify.h"
#include "support/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "core/types.h"
#include "reference/models/operands.h"
#include "verify/problem/element.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::CompensationTime;
using reference::DepthOrder;
using reference::Model;
using reference::Predictor;
using reference::Rounding;
using reference::Signs;
using reference::Summation;
using Bytes = std::vector<uint8_t>;
using Accumulators = std::optional<std::vector<int32_t>>;

// ----- candidates -----------------------------------------------------------------------------------------

// The kind of a GEMM, or of a convolution with `geometry`.
template <class Operation>
OperationKind KindOf(const Operation& operation, const reference::ConvGeometry* geometry) {
  OperationKind kind = {OperationKind::Shape::kGemm, operation.a_type, operation.b_type, operation.c_type};
  if (geometry == nullptr) return kind;
  const bool is_depthwise = geometry->groups > 1 && geometry->GroupInputs() == 1;
  kind.shape = is_depthwise ? OperationKind::Shape::kDepthwise : OperationKind::Shape::kConv;
  kind.transposed = geometry->IsTransposed();
  return kind;
}
std::vector<DepthOrder> OrdersOf(const OperationKind& kind) {
  switch (kind.shape) {
    case OperationKind::Shape::kGemm:
    case OperationKind::Shape::kGrouped:
      return {DepthOrder::kTaps};
    case OperationKind::Shape::kConv:
      return {DepthOrder::kTaps, DepthOrder::kFlattened, DepthOrder::kChannels};
    case OperationKind::Shape::kDepthwise:
      return {DepthOrder::kFlattened};
  }
  return {};
}

// Pairs that are widened at once.
void AddPairings(DepthOrder order, std::vector<Model>* models) {
  for (const Signs signs : {Signs::kUnsignedActivations, Signs::kUnsignedWeights}) {
    for (const int32_t distance : {1, 2, 4, 8, 16, 32, reference::kHalfDepth}) {
      models->push_back({.sum = Summation::kInt16, .order = order, .distance = distance, .signs = signs});
    }
  }
}

// Models of oneDNN. Its GEMMs before VNNI cut depths within a range that depends on the ISA (SSE4.1, AVX2,
// AVX-512). Convolutions that it lowers to a GEMM pair the flattened depth. Its direct convolutions do not
// multiply padding. With AVX-512 and one input channel its convolutions pair taps of the kernel's rows or columns.
void AddOneDnns(const OperationKind& kind, std::vector<Model>* models) {
  constexpr std::array kCuts = {reference::Cut{257, 511}, reference::Cut{257, 767},
                                reference::Cut{385, 1535}};
  const bool is_gemm = kind.shape == OperationKind::Shape::kGemm;
  const DepthOrder row = is_gemm ? DepthOrder::kTaps : DepthOrder::kFlattened;
  for (const reference::Cut& cut : kCuts) {
    models->push_back({.sum = Summation::kInt16, .order = row, .cut = cut});
    if (!is_gemm)
      models->push_back({.sum = Summation::kInt16, .order = row, .cut = cut, .skips_padding = true});
  }
  if (is_gemm) return;
  if (kind.shape == OperationKind::Shape::kConv)
    models->push_back({.sum = Summation::kInt16, .skips_padding = true});
  models->push_back({.sum = Summation::kInt16, .order = row, .skips_padding = true});
  for (const DepthOrder order : {DepthOrder::kRows, DepthOrder::kColumns}) {
    models->push_back({.sum = Summation::kInt16, .order = order});
    models->push_back({.sum = Summation::kInt16, .order = order, .skips_padding = true});
  }
}

// Sums in int16. FBGEMM's 16-bit accumulation adds adjacent pairs, or the pairs of quads in two lanes, over a
// block of depths. intgemm has one sum per vector lane, with moved signs, and widens them at the end.
// BitNet's kernels have one sum per vector lane, with unsigned weights, and their sums wrap.
void AddInt16Sums(DepthOrder order, Signs signs, std::vector<Model>* models) {
  for (const int32_t lanes : {1, 2, 8, 16, 32}) {
    if (signs == Signs::kUnsignedWeights && lanes < 8) continue;
    for (const int32_t spill : {2, 4, 8, 16, 32, 64, 128, reference::kWholeDepth}) {
      for (const bool wraps : {false, true}) {
        models->push_back({.sum = Summation::kInt16,
                           .order = order,
                           .signs = signs,
                           .spill = spill,
                           .lanes = lanes,
                           .wraps = wraps});
      }
    }
  }
}

// Intervals that no known library has. But code that miscounts pairs or quads widens one too late.
std::vector<int32_t> OddIntervals() {
  std::vector<int32_t> intervals;
  const auto add = [&intervals](int32_t first, int32_t last) {
    for (int32_t spill = first; spill <= last; ++spill) {
      if (!std::has_single_bit(static_cast<uint32_t>(spill))) intervals.push_back(spill);
    }
  };
  add(2, 33);
  for (const int32_t near : {48, 64, 96, 128}) add(near - 1, near + 1);
  return intervals;
}

// Products added in int16 without pairs, by scalar code or by VPMULLW and VPADDW. Two products of s8 numbers
// stay within int16, except 2·(−128)².
void AddInt16Products(bool are_signed, std::vector<Model>* models) {
  for (const int32_t lanes : {1, 8, 16, 32}) {
    for (const int32_t spill : {2, 4, 8, 16, 32, 64, 128, 256, reference::kWholeDepth}) {
      if (are_signed && spill == 2) continue;
      models->push_back({.sum = Summation::kProducts16, .spill = spill, .lanes = lanes});
    }
  }
}

// Sums of 16 to 256 depths that are added in float32: ggml's Q8_0 in scalar code. With AVX2 it has a lane for
// each quad of 32 depths, and its K-quants convert sums of 256 depths.
void AddFloatSums(std::vector<Model>* models) {
  struct Form {
    int32_t quads, lanes;
  };
  for (const auto& [quads, lanes] :
       {Form{4, 1}, Form{8, 1}, Form{16, 1}, Form{32, 1}, Form{64, 1}, Form{1, 8}, Form{8, 8}, Form{1, 16}}) {
    models->push_back({.sum = Summation::kFloat32, .spill = quads, .lanes = lanes});
  }
}

void AddOddInt16Sums(DepthOrder order, std::vector<Model>* models) {
  for (const int32_t spill : OddIntervals()) {
    models->push_back({.sum = Summation::kInt16, .order = order, .spill = spill});
  }
}

// How unusual a model is.
int HowStrange(const Model& model) {
  if (model == Model::kExact) return 0;
  if (model.sum != Summation::kInt16) {
    int strangeness = model.WrapsInt16() ? 5 : model.sum == Summation::kFloat32 ? 3 : 2;
    strangeness += model.signs == Signs::kUnsignedActivations ? 0 : 2;
    strangeness += model.lanes == 1 ? 0 : 1;
    return strangeness + (model.compensation == CompensationTime::kLast ? 0 : 1);
  }
  int strangeness = 1;
  strangeness += model.order == DepthOrder::kTaps ? 0 : model.order == DepthOrder::kFlattened ? 1 : 2;
  strangeness += model.distance == 1 ? 0 : 2;
  strangeness += model.signs == Signs::kUnsignedActivations ? 0 : 2;
  strangeness += model.spill == 1 ? 0 : 2;
  strangeness += IsOddInterval(model.spill) ? 1 : 0;
  strangeness += model.lanes == 1 ? 0 : 1;
  strangeness += model.cut.IsNone() ? 0 : 1;
  strangeness += model.skips_padding ? 1 : 0;
  return strangeness + (model.wraps ? 1 : 0);
}

// Whether the models add the same numbers: the same pairs, or the contract's products.
bool AddTheSame(const Model& x, const Model& y) {
  const bool have_same_sums = x.sum == y.sum || (x.AddsProducts() && y.AddsProducts());
  return have_same_sums && x.order == y.order && x.distance == y.distance && x.signs == y.signs &&
         x.cut == y.cut && x.skips_padding == y.skips_padding;
}

// ----- evidence -------------------------------------------------------------------------------------------

int32_t Wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// A set of candidate roundings; bit i stands for the i-th.
using Mask = uint32_t;
constexpr size_t kMaxRoundings = reference::kAllRoundings.size();
static_assert(kMaxRoundings < std::numeric_limits<Mask>::digits);

// A problem, a target's outputs, and the contract's.
class Evidence {
 public:
  Evidence(const Oracle& oracle, std::span<const Rounding> roundings, const Bytes& actual,
           const Accumulators& accumulators)
      : oracle_(oracle),
        predictor_(oracle.predictor()),
        roundings_(roundings),
        actual_(actual),
        accumulators_(accumulators),
        exact_(oracle.Accumulators(Model::kExact)),
        expected_(oracle.Wrapped({})),
        size_(static_cast<size_t>(core::BytesOf(oracle.type()))) {}

  const Oracle& oracle() const { return oracle_; }

  const Predictor& predictor() const { return predictor_; }
  int32_t Exact(int64_t i) const { return exact_[static_cast<size_t>(i)]; }

  // The roundings with which accumulator y makes the target's output.
  Mask Matching(int64_t i, int32_t y) const {
    if (accumulators_ && (*accumulators_)[static_cast<size_t>(i)] != y) return 0;
    const Predictor::Output output = predictor_.At(i);
    const reference::Requantization q = output.OwnRequantization();
    const reference::Scales scales = output.OwnScales();
    Mask mask = 0;
    for (size_t r = 0; r < roundings_.size(); ++r) {
      std::array<uint8_t, sizeof(float)> element = {};
      reference::StoreRounded(y, q, scales, roundings_[r], element.data());
      if (IsSameElement(size_, element.data(), &actual_[At(i)])) mask |= Mask{1} << r;
    }
    return mask;
  }

  bool DiffersFromContract(int64_t i) const {
    return !IsSameElement(size_, &actual_[At(i)], &expected_[At(i)]);
  }

  // Whether accumulator y makes an output that differs from the contract's.
  bool Shows(int64_t i, int32_t y) const {
    if (y == Exact(i)) return false;
    std::array<uint8_t, sizeof(float)> element = {};
    predictor_.Store(i, y, Rounding::kContract, element.data());
    return !IsSameElement(size_, element.data(), &expected_[At(i)]);
  }

 private:
  size_t At(int64_t i) const { return static_cast<size_t>(i) * size_; }

  const Oracle& oracle_;
  const Predictor& predictor_;
  const std::span<const Rounding> roundings_;
  const Bytes& actual_;
  const Accumulators& accumulators_;
  const std::vector<int32_t>& exact_;
  const Bytes& expected_;
  const size_t size_;
};

// The accumulators of one output under models that add the same numbers.
class SharedNumbers {
 public:
  SharedNumbers(const Evidence& evidence, const Model& model, std::span<const int64_t> in_pairs, int64_t i)
      : predictor_(evidence.predictor()),
        in_pairs_(in_pairs),
        output_(i),
        exact_(evidence.Exact(i)),
        at_(predictor_.At(i)) {
    if (model.sum == Summation::kInt16) {
      pairs_ = reference::PairSumsOf(model.signs, at_.operands.Row(model, at_.m), at_.operands.Column(at_.n),
                                     in_pairs);
      magnitude_ = MagnitudeOf(pairs_.sums);
      int64_t sum = 0;
      for (const int32_t pair : pairs_.sums) sum += pair;
      if (Wrap(sum) != pairs_.meant) magnitude_ = kUnlimited;
    } else if (model.AddsProducts()) {
      products_ = at_.operands.Products(in_pairs, at_.m, at_.n);
      magnitude_ = MagnitudeOf(products_);
    } else if (model.sum == Summation::kInt32) {
      // Unsigned weights change the compensation by two products of a depth at most.
      constexpr int64_t kLargestProduct = 255 * 128;
      magnitude_ = std::ssize(in_pairs) * kLargestProduct * 3 +
                   std::abs(int64_t{at_.operands.Compensation(at_.m, at_.n)});
    }
  }

  int32_t Accumulator(const Model& model) const {
    if (model == Model::kExact || magnitude_ <= LargestExact(model)) return exact_;
    if (model.AddsProducts()) return reference::SumProducts(model, Bias(), products_);
    if (model.sum != Summation::kInt16) return predictor_.Accumulator(model, in_pairs_, output_);
    return Wrap(int64_t{exact_} - pairs_.meant + reference::SumInt16(model, pairs_.sums));
  }

 private:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  static int64_t MagnitudeOf(std::span<const int32_t> numbers) {
    int64_t magnitude = 0;
    for (const int32_t number : numbers) magnitude += std::abs(int64_t{number});
    return magnitude;
  }

  int32_t Bias() const { return at_.operands.bias[static_cast<size_t>(at_.n)]; }

  // Numbers of this magnitude or less have the exact sum, in whatever order they are added.
  int64_t LargestExact(const Model& model) const {
    constexpr int64_t kFloat32 = 1 << 24;
    switch (model.sum) {
      case Summation::kInt16:
      case Summation::kProducts16:
        return std::numeric_limits<int16_t>::max();
      case Summation::kInt32:
        return std::numeric_limits<int32_t>::max();
      case Summation::kFloat32:
        return kFloat32 - std::abs(int64_t{Bias()});
      case Summation::kExact:
      case Summation::kHalvedWeights:
        break;
    }
    return -1;
  }

  const Predictor& predictor_;
  const std::span<const int64_t> in_pairs_;
  const int64_t output_;
  const int32_t exact_;
  const Predictor::Output at_;
  reference::PairSums pairs_;
  std::vector<int32_t> products_;
  int64_t magnitude_ = kUnlimited;  // the sum of the numbers' magnitudes, or more
};

std::string PlaceOf(const Oracle& oracle, int64_t output) {
  const int64_t row = output / oracle.columns(), column = output % oracle.columns();
  const auto* gemm = std::get_if<reference::Gemm>(&oracle.operation());
  if (gemm != nullptr) return OutputPlace({}, gemm->batch == 1 ? 0 : gemm->m, row, column);
  return OutputPlace(*oracle.geometry(), row, column);
}

// ----- the search -----------------------------------------------------------------------------------------

class Search {
 public:
  Search(const Oracle& oracle, const Bytes& actual, const Accumulators& accumulators)
      : models_(CandidateModels(KindOf(oracle))),
        roundings_(CandidateRoundings(oracle.type())),
        evidence_(oracle, roundings_, actual, accumulators) {
    identity_.kind = KindOf(oracle);
    identity_.outputs = oracle.outputs();
    alive_.assign(models_.size(), (Mask{1} << roundings_.size()) - 1);
    for (size_t model = 0; model < models_.size(); ++model) {
      const auto shares = [&](const Group& group) { return AddTheSame(models_[group[0]], models_[model]); };
      const auto group = std::ranges::find_if(groups_, shares);
      (group == groups_.end() ? groups_.emplace_back() : *group).push_back(model);
    }
  }

  Identity Run() {
    for (int64_t i = 0; i < identity_.outputs; ++i) {
      identity_.differing += evidence_.DiffersFromContract(i) ? 1 : 0;
    }
    identity_.would_show_clamping = SaturationShows();
    Eliminate();
    std::vector<Arithmetic> found = Alive();
    if (found.empty()) {
      NameClosest();
      return std::move(identity_);
    }
    identity_.arithmetic = found.front();
    identity_.also.assign(found.begin() + 1, found.end());
    return std::move(identity_);
  }

 private:
  using Group = std::vector<size_t>;  // models that add the same numbers

  static constexpr size_t kMaxFinalists = 16;

  bool AnyAlive() const {
    return std::ranges::any_of(alive_, [](Mask mask) { return mask != 0; });
  }

  // The least strange first.
  std::vector<Arithmetic> Alive() const {
    std::vector<Arithmetic> found;
    for (size_t model = 0; model < models_.size(); ++model) {
      for (size_t r = 0; r < roundings_.size(); ++r) {
        if ((alive_[model] >> r & 1) != 0) found.push_back({models_[model], roundings_[r]});
      }
    }
    std::ranges::stable_sort(found, {}, [](const Arithmetic& arithmetic) { return Strangeness(arithmetic); });
    return found;
  }

  // Calls visit(model, output, accumulator) for all `outputs` and the models with is_wanted(model). Skips a
  // model once visit() has returned false for it.
  template <class Wanted, class Visit>
  void Walk(std::span<const int64_t> outputs, const Wanted& is_wanted, const Visit& visit) const {
    for (Group group : groups_) {
      std::erase_if(group, [&](size_t model) { return !is_wanted(model); });
      if (group.empty()) continue;
      const Model& any = models_[group[0]];
      const std::vector<int64_t> in_pairs = reference::InPairs(any, evidence_.predictor().depths());
      for (const int64_t i : outputs) {
        const SharedNumbers numbers(evidence_, any, in_pairs, i);
        std::erase_if(group,
                      [&](size_t model) { return !visit(model, i, numbers.Accumulator(models_[model])); });
        if (group.empty()) break;
      }
    }
  }

  std::vector<int64_t> AllOutputs() const {
    std::vector<int64_t> outputs(static_cast<size_t>(identity_.outputs));
    std::iota(outputs.begin(), outputs.end(), int64_t{0});
    return outputs;
  }

  // All outputs, unless the problem is large. Then a sample on which some hundred candidates can be tried.
  // Half of the sample differs from the contract, if enough outputs differ; the other half is spread evenly.
  std::vector<int64_t> Sample() const {
    constexpr int64_t kProducts = 1 << 20, kFewest = 256;
    const int64_t depth = std::max<int64_t>(evidence_.predictor().operands()[0].k, 1);
    const int64_t size = std::max(kFewest, kProducts / depth);
    std::vector<int64_t> sample = AllOutputs();
    if (identity_.outputs <= size) return sample;
    const auto first_same = std::stable_partition(
        sample.begin(), sample.end(), [&](int64_t i) { return evidence_.DiffersFromContract(i); });
    const auto differing = std::min<int64_t>(size / 2, first_same - sample.begin());
    const int64_t step = (identity_.outputs + size - 1) / size;
    sample.resize(static_cast<size_t>(differing));
    for (int64_t i = 0; i < identity_.outputs; i += step) sample.push_back(i);
    return sample;
  }

  // Drops candidates that the problem refutes. For a large problem all candidates are tried on a sample. Then
  // these are tried on all outputs: familiar candidates; all candidates if few are left; the candidate that
  // is about to be named. Candidates that were not tried on all outputs are dropped.
  void Eliminate() {
    constexpr int kFamiliar = 2;
    constexpr int64_t kFew = 16;
    const std::vector<int64_t> sample = Sample();
    Eliminate(sample, [](size_t /*model*/) { return true; });
    if (std::ssize(sample) == identity_.outputs) return;
    std::vector<bool> is_tried(models_.size());
    const auto try_all = [&](const auto& is_wanted) {
      Eliminate(AllOutputs(), [&](size_t model) { return !is_tried[model] && is_wanted(model); });
      for (size_t model = 0; model < models_.size(); ++model)
        is_tried[model] = is_tried[model] || is_wanted(model);
    };
    try_all([this](size_t model) { return HowStrange(models_[model]) <= kFamiliar; });
    const auto left = std::ranges::count_if(alive_, [](Mask mask) { return mask != 0; });
    if (left <= kFew) try_all([](size_t /*model*/) { return true; });
    while (AnyAlive()) {
      const auto likeliest =
          static_cast<size_t>(std::ranges::find(models_, Alive().front().model) - models_.begin());
      if (is_tried[likeliest]) break;
      try_all([likeliest](size_t model) { return model == likeliest; });
    }
    for (size_t model = 0; model < models_.size(); ++model) {
      if (!is_tried[model]) alive_[model] = 0;
    }
  }

  template <class Wanted>
  void Eliminate(std::span<const int64_t> outputs, const Wanted& is_wanted) {
    std::vector<std::optional<Mask>> of_exact(static_cast<size_t>(identity_.outputs));
    const auto matching = [&](int64_t i, int32_t y) {
      if (y != evidence_.Exact(i)) return evidence_.Matching(i, y);
      std::optional<Mask>& mask = of_exact[static_cast<size_t>(i)];
      if (!mask) mask = evidence_.Matching(i, y);
      return *mask;
    };
    Walk(
        outputs, [&](size_t model) { return alive_[model] != 0 && is_wanted(model); },
        [&](size_t model, int64_t i, int32_t y) { return (alive_[model] &= matching(i, y)) != 0; });
  }

  // Whether adjacent pairs clamped to int16 would change an output.
  bool SaturationShows() const {
    const Model adjacent = AdjacentPairs(identity_.kind);
    bool shows = false;
    Walk(
        AllOutputs(), [&](size_t model) { return models_[model] == adjacent; },
        [&](size_t /*model*/, int64_t i, int32_t y) {
          shows = evidence_.Shows(i, y);
          return !shows;
        });
    return shows;
  }

  // If no candidate reproduces all outputs: of the best candidates on a sample, names the candidate that
  // reproduces most outputs.
  void NameClosest() {
    std::vector<std::array<int64_t, kMaxRoundings>> misses(models_.size());
    Walk(
        Sample(), [](size_t /*model*/) { return true; },
        [&](size_t model, int64_t i, int32_t y) {
          const Mask mask = evidence_.Matching(i, y);
          for (size_t r = 0; r < roundings_.size(); ++r) misses[model][r] += (mask >> r & 1) != 0 ? 0 : 1;
          return true;
        });
    struct Finalist {
      size_t model, rounding;
      int64_t misses;
      int strangeness;
    };
    std::vector<Finalist> ranked;
    for (size_t model = 0; model < models_.size(); ++model) {
      for (size_t r = 0; r < roundings_.size(); ++r) {
        ranked.push_back({model, r, misses[model][r], Strangeness({models_[model], roundings_[r]})});
      }
    }
    std::ranges::stable_sort(ranked, {},
                             [](const Finalist& f) { return std::pair(f.misses, f.strangeness); });
    if (ranked.size() > kMaxFinalists) ranked.resize(kMaxFinalists);
    for (const Finalist& finalist : ranked) {
      const Arithmetic arithmetic = {models_[finalist.model], roundings_[finalist.rounding]};
      const std::vector<int64_t> missed = Missed(arithmetic.model, finalist.rounding);
      if (&finalist != ranked.data() && std::ssize(missed) >= identity_.unexplained) continue;
      identity_.arithmetic = arithmetic;
      identity_.unexplained = std::ssize(missed);
      identity_.first_place = PlaceOf(evidence_.oracle(), missed.front());
    }
  }

  // The outputs that an arithmetic does not reproduce.
  std::vector<int64_t> Missed(const Model& model, size_t rounding) const {
    const std::vector<int32_t>& y = evidence_.oracle().Accumulators(model);
    std::vector<int64_t> missed;
    for (int64_t i = 0; i < identity_.outputs; ++i) {
      const Mask mask = evidence_.Matching(i, y[static_cast<size_t>(i)]);
      if ((mask >> rounding & 1) == 0) missed.push_back(i);
    }
    return missed;
  }

  const std::vector<Model> models_;
  const std::vector<Rounding> roundings_;
  const Evidence evidence_;
  std::vector<Group> groups_;
  std::vector<Mask> alive_;  // per model: the roundings with which it reproduces all outputs
  Identity identity_;
};

}  // namespace

Identity Identify(const Oracle& oracle, const Bytes& output, const Accumulators& accumulators) {
  return Search(oracle, output, accumulators).Run();
}

bool IsOddInterval(int32_t spill) {
  return spill != reference::kWholeDepth && !std::has_single_bit(static_cast<uint32_t>(spill));
}

int Strangeness(const Arithmetic& arithmetic) {
  return HowStrange(arithmetic.model) + (arithmetic.rounding == Rounding::kContract ? 0 : 1);
}

std::pair<int, int> NamingRank(const Arithmetic& arithmetic) {
  const auto at = std::ranges::find(reference::kAllRoundings, arithmetic.rounding);
  return {Strangeness(arithmetic), static_cast<int>(at - reference::kAllRoundings.begin())};
}

// ----- candidates and words -------------------------------------------------------------------------------

OperationKind KindOf(const Oracle& oracle) {
  if (const reference::Grouped* const grouped = oracle.grouped()) {
    return {OperationKind::Shape::kGrouped, grouped->a_type, grouped->b_type, grouped->c_type};
  }
  return KindOf(oracle.linear(), oracle.geometry());
}
OperationKind KindOf(const Problem& problem) {
  if (problem.grouped) {
    return {OperationKind::Shape::kGrouped, problem.a_type, problem.WeightType(), problem.c_type};
  }
  return KindOf(problem, problem.conv ? &*problem.conv : nullptr);
}

Model AdjacentPairs(const OperationKind& kind) {
  Model adjacent = Model::kMaddubs;
  adjacent.order = OrdersOf(kind)[0];
  return adjacent;
}

std::string_view NameOf(const OperationKind& kind) {
  constexpr std::array<std::string_view, 4> kShapes = {"gemm", "conv", "depthwise", "grouped"};
  return kind.transposed ? "deconvolution" : kShapes.at(static_cast<size_t>(kind.shape));
}

std::string ToString(const OperationKind& kind) {
  return fmt::format("{} {}{}{}", NameOf(kind), ToString(kind.a_type), ToString(kind.b_type),
                     ToString(kind.c_type));
}

std::vector<Model> CandidateModels(const OperationKind& kind) {
  const std::vector<DepthOrder> orders = OrdersOf(kind);
  const bool are_signed = kind.a_type == INTACT_S8 && kind.b_type == INTACT_S8;
  std::vector<Model> models = {Model::kExact};
  for (const DepthOrder order : orders) AddPairings(order, &models);
  AddOneDnns(kind, &models);
  for (const Signs signs : {Signs::kUnsignedActivations, Signs::kUnsignedWeights}) {
    for (const CompensationTime time :
         {CompensationTime::kLast, CompensationTime::kFirst, CompensationTime::kLastClamped}) {
      models.push_back({.sum = Summation::kInt32, .order = orders[0], .signs = signs, .compensation = time});
    }
  }
  if (kind.b_type == INTACT_S8) models.push_back({.sum = Summation::kHalvedWeights});
  if (are_signed) {
    models.push_back({.sum = Summation::kInt16, .order = orders[0], .signs = Signs::kMoved});
  }
  for (const DepthOrder order : orders) {
    if (order == DepthOrder::kChannels) continue;
    AddInt16Sums(order, Signs::kUnsignedActivations, &models);
    if (are_signed) AddInt16Sums(order, Signs::kMoved, &models);
    AddOddInt16Sums(order, &models);
  }
  const DepthOrder window =
      kind.shape == OperationKind::Shape::kGemm ? DepthOrder::kTaps : DepthOrder::kFlattened;
  if (kind.b_type == INTACT_U8) AddInt16Sums(window, Signs::kUnsignedWeights, &models);
  AddInt16Products(are_signed, &models);
  AddFloatSums(&models);
  std::ranges::stable_sort(models, {}, [](const Model& model) { return HowStrange(model); });
  return models;
}

std::vector<Rounding> CandidateRoundings(intact_type c_type) {
  using R = Rounding;
  if (c_type == INTACT_S32) return {R::kContract, R::kThroughFloat};
  if (c_type == INTACT_F32) {
    return {R::kContract,   R::kFused,     R::kResidualFused, R::kDouble,
            R::kFlushed,    R::kDivision,  R::kRowFirst,      R::kColumnFirst,
            R::kFloatScale, R::kBiasFirst, R::kBiasRounded,   R::kReluByFactor};
  }
  std::vector<Rounding> roundings;
  for (const Rounding rounding : reference::kAllRoundings) {
    const bool is_of_integers =
        rounding == R::kHalfUp || rounding == R::kZeroPointFirst || rounding == R::kGemmlowp ||
        rounding == R::kGemmlowpUp || rounding == R::kFixedPoint || rounding == R::kResidualLast ||
        rounding == R::kBfloat16First || rounding == R::kFloat16First || rounding == R::kNanIsZero;
    // Integers have no −0, and values near 0 round to 0.
    const bool is_of_floats =
        rounding == R::kReluByFactor || rounding == R::kFlushed || rounding == R::kEachStep;
    const bool applies = core::IsHalfFloat(c_type) ? !is_of_integers : !is_of_floats;
    if (applies && rounding != R::kThroughFloat) roundings.push_back(rounding);
  }
  return roundings;
}

namespace {

std::string PairsInWords(const Model& model) {
  std::string text = model.distance == 1 ? "adjacent depths"
                     : model.distance == reference::kHalfDepth
                         ? "depths K/2 apart"
                         : fmt::format("depths {} apart", model.distance);
  if (model.order == DepthOrder::kFlattened) text += " that cross taps";
  if (model.order == DepthOrder::kChannels) text += " with taps before channels";
  if (model.order == DepthOrder::kRows) text += " of a kernel row";
  if (model.order == DepthOrder::kColumns) text += " of the kernel read column by column";
  if (!model.cut.IsNone()) {
    text += fmt::format(", in each half if K is {} to {},", model.cut.from, model.cut.to);
  }
  if (model.skips_padding) text += " outside the padding";
  return text;
}

std::string_view CompensationInWords(CompensationTime time) {
  switch (time) {
    case CompensationTime::kLast:
      return ", then compensated";
    case CompensationTime::kFirst:
      return " from the compensation on";
    case CompensationTime::kLastClamped:
      return ", then compensated and clamped again";
  }
  return "";
}

std::string InWords(const Model& model) {
  std::string name = reference::ToString(model);
  switch (model.sum) {
    case Summation::kExact:
      return name;
    case Summation::kInt16:
      if (model.signs == Signs::kMoved && model.spill == 1) {  // this never clamps
        return fmt::format("weights of -128 keep their sign under a negative activation ({})", name);
      }
      return fmt::format("pairs of {} {} int16{} ({})", PairsInWords(model),
                         model.spill == 1 ? "clamped to" : "summed in", model.wraps ? ", which wraps" : "",
                         name);
    case Summation::kInt32:
      return fmt::format("sums clamped to int32{} ({})", CompensationInWords(model.compensation), name);
    case Summation::kProducts16:
      return fmt::format("products summed in int16, which wraps ({})", name);
    case Summation::kFloat32:
      return fmt::format("exact sums of {} depths added in float32{} ({})", 4 * model.spill,
                         model.lanes == 1 ? "" : fmt::format(" in {} lanes", model.lanes), name);
    case Summation::kHalvedWeights:
      return fmt::format("weights halved and rounded, sums doubled ({})", name);
  }
  return name;
}

}  // namespace

std::string InWords(const Arithmetic& arithmetic) {
  std::string text = InWords(arithmetic.model);
  if (arithmetic.rounding != Rounding::kContract) {
    text.append("; ").append(reference::ToString(arithmetic.rounding));
  }
  return text;
}

std::string OrOthers(std::span<const Rounding> others) {
  constexpr size_t kNamed = 2;
  if (others.size() > kNamed) return fmt::format(", or one of {} other roundings", others.size());
  std::string text;
  for (const Rounding other : others) text.append(", or ").append(reference::ToString(other));
  return text;
}

std::vector<Rounding> Identity::OtherRoundings() const {
  std::vector<Rounding> others;
  for (const Arithmetic& other : also) {
    const bool is_as_likely = Strangeness(other) == Strangeness(arithmetic);
    if (is_as_likely && other.model == arithmetic.model) others.push_back(other.rounding);
  }
  return others;
}

std::vector<Model> Identity::OtherModels() const {
  std::vector<Model> others;
  for (const Arithmetic& other : also) {
    if (other.rounding == arithmetic.rounding) others.push_back(other.model);
  }
  return others;
}

std::string InWords(const Identity& identity) {
  if (!identity.Found()) {
    return fmt::format(
        "no model reproduces it: {} unexplained, the first at {}: implementation error; "
        "closest: {}",
        support::PartOf(identity.unexplained, identity.outputs, "output"), identity.first_place,
        InWords(identity.arithmetic));
  }
  std::string text =
      fmt::format("{}{}: {} reproduced", InWords(identity.arithmetic), OrOthers(identity.OtherRoundings()),
                  support::AllOf(identity.outputs, "output"));
  if (identity.arithmetic == Arithmetic()) {
    return text + (identity.would_show_clamping ? "; saturation would have shown"
                                                : "; none of them could have shown saturation");
  }
  text += fmt::format(", {} of them differ from exact", identity.differing);
  const std::vector<Model> others = identity.OtherModels();
  if (others.empty()) return text;
  return text + fmt::format("; also reproduced by {}{}", reference::ToString(others.front()),
                            others.size() == 1 ? "" : fmt::format(" and {} more", others.size() - 1));
}

}  // namespace intact::verify
