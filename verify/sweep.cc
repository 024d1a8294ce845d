#include "verify/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verify/minimise.h"
#include "verify/random.h"

namespace intact::verify {
namespace {

// Around the register blocks of every ISA: rows below, at and above 3, 4, 6, 8 and 16; columns around 16, 24,
// 32, 48 and 64; depths around quads, cache lines and AMX's 64.
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 47, 48, 49, 64, 65};
constexpr int64_t kColumns[] = {1,  2,  15, 16, 17, 23, 24, 25, 31, 32,
                                33, 47, 48, 49, 63, 64, 65, 95, 97, 128};
constexpr int64_t kDepths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 130, 259, 576};

// Around the row blocks of exact kernels before VNNI (24, 32 and 64 rows in lanes of 8 and 16) and around
// their windows of depth, which stay in a first-level cache of 32 KiB (384, 768, 1024) or 48 KiB (576, 1152,
// 1536).
constexpr int64_t kBlockRows[] = {1,  7,  8,  9,  15, 16, 17, 23, 24, 25, 31,
                                  32, 33, 48, 63, 64, 65, 71, 72, 73, 81};
constexpr int64_t kBlockColumns[] = {1, 17, 31, 40, 64, 15, 33, 16, 50, 2};
constexpr int64_t kWindowDepths[] = {383, 768, 1025, 577, 384, 1152, 770, 1537, 388, 1024, 1149, 2305, 3073};
constexpr int32_t kDeclared[] = {255, 127, 200, 128, 127, 64, 255, 1, 254};
constexpr intact_range_check kRangeChecks[] = {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED};

// Cycles through values, so that each is met without their full product. Lists of coprime lengths meet in
// every pair after a while.
template <class T>
class Cycle {
 public:
  explicit Cycle(std::span<const T> values) : values_(values) {}
  T Next() { return values_[next_++ % values_.size()]; }

 private:
  std::span<const T> values_;
  size_t next_ = 0;
};

constexpr int32_t kU8ZeroPoints[] = {0, 3, 128, 255, 127};
constexpr int32_t kS8ZeroPoints[] = {0, -5, 127, -128, 1};
constexpr int64_t kEpilogueRows[] = {1, 4, 9, 14, 5, 8, 3};
constexpr int64_t kEpilogueColumns[] = {17, 48, 31, 65, 16, 7, 50, 24, 1, 33, 64};
constexpr int64_t kEpilogueDepths[] = {64, 5, 67, 16, 130, 3, 33, 128, 9, 2, 66, 31, 7};

// Types and zero points of weights: seven of 17 are plain s8, which most kernels are made for; 17 is coprime
// to the lengths of all other lists.
struct WeightKind {
  intact_type type;
  int32_t zb;
  ZeroPointKind kind = ZeroPointKind::kTensor;
};
constexpr WeightKind kWeightKinds[] = {
    {INTACT_S8, 0},
    {INTACT_U8, 128},
    {INTACT_S8, 0},
    {INTACT_U8, 0},
    {INTACT_S8, 0},
    {INTACT_S8, 7},
    {INTACT_U8, 131, ZeroPointKind::kChannel},
    {INTACT_S8, 0},
    {INTACT_S8, -128, ZeroPointKind::kChannel},
    {INTACT_U8, 255},
    {INTACT_S8, 0},
    {INTACT_S8, -128},
    {INTACT_U8, 3},
    {INTACT_S8, 0},
    {INTACT_U8, 0, ZeroPointKind::kChannel},
    {INTACT_S8, 127},
    {INTACT_S8, 0},
};

// Builds the problems that every ISA and mode gets.
class ProblemList {
 public:
  explicit ProblemList(uint64_t seed) : seed_(seed) {}

  std::vector<Problem> Build() {
    AddShapes();
    AddEpilogues();
    AddZeroPoints();
    AddTypes();
    AddStridesAndThreads();
    AddLarge();
    AddWindows();
    AddDeclaredRanges();
    AddLowerBounds();
    AddWideAndFlat();
    AddResiduals();
    return std::move(problems_);
  }

 private:
  void Add(Problem problem) {
    problem.seed = seed_;
    problems_.push_back(problem);
  }

  Problem Shape(int64_t m, int64_t n, int64_t k) {
    Problem problem;
    problem.m = m;
    problem.n = n;
    problem.k = k;
    return problem;
  }

  void SetTypes(intact_type a, intact_type c, Problem* problem) {
    problem->a_type = a;
    problem->c_type = c;
    problem->za = (a == INTACT_U8 ? u8_za_ : s8_za_).Next();
    const WeightKind weights = weight_kinds_.Next();
    problem->b_type = weights.type;
    problem->zb = weights.zb;
    problem->zb_kind = weights.kind;
    if (c == INTACT_U8) problem->zc = u8_zc_.Next();
    if (c == INTACT_S8) problem->zc = s8_zc_.Next();
    problem->scale = c == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
  }

  // s32 outputs, in which no wrong accumulator can hide: each pair of rows, columns and depths.
  void AddShapes() {
    Cycle<int64_t> rows(kRows), columns(kColumns), depths(kDepths);
    const auto add = [this](int64_t m, int64_t n, int64_t k) {
      Problem problem = Shape(m, n, k);
      SetTypes(shape_types_.Next(), INTACT_S32, &problem);
      problem.fill = fills_.Next();
      Add(problem);
    };
    for (const int64_t m : kRows) {
      for (const int64_t n : kColumns) add(m, n, depths.Next());
      for (const int64_t k : kDepths) add(m, columns.Next(), k);
    }
    for (const int64_t n : kColumns) {
      for (const int64_t k : kDepths) add(rows.Next(), n, k);
    }
  }

  void AddEpilogues() {
    for (const Fill fill : AllFills()) {
      for (const intact_type a : {INTACT_U8, INTACT_S8}) {
        for (const intact_type c : {INTACT_S32, INTACT_F32, INTACT_U8, INTACT_S8}) AddEpilogues(fill, a, c);
      }
    }
  }

  void AddEpilogues(Fill fill, intact_type a, intact_type c) {
    for (const BiasKind bias : {BiasKind::kNone, BiasKind::kS32, BiasKind::kF32}) {
      for (const ScaleKind scale : {ScaleKind::kNone, ScaleKind::kTensor, ScaleKind::kChannel}) {
        for (const auto activation :
             {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP}) {
          Problem problem = Shape(epilogue_rows_.Next(), epilogue_columns_.Next(), epilogue_depths_.Next());
          SetTypes(a, c, &problem);
          problem.fill = fill;
          problem.bias = bias;
          problem.scale = scale;
          problem.activation = activation;
          if (!problem.Check()) Add(problem);  // an s32 output takes few of these
        }
      }
    }
  }

  void AddZeroPoints() {
    for (const Fill fill : AllFills()) {
      for (size_t i = 0; i < std::size(kU8ZeroPoints); ++i) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          Problem problem = Shape(5, 33, 66);
          SetTypes(a, INTACT_S32, &problem);
          problem.fill = fill;
          problem.wmax = 128;
          Add(problem);
        }
      }
    }
  }

  // The four combinations of activations and weights, with every kind of zero point, of few rows and of many.
  void AddTypes() {
    for (const Fill fill : AllFills()) {
      for (const intact_type a : {INTACT_U8, INTACT_S8}) {
        for (size_t i = 0; i < std::size(kWeightKinds); ++i) {
          Problem problem = Shape(i % 2 == 0 ? 5 : 37, epilogue_columns_.Next(), epilogue_depths_.Next());
          SetTypes(a, c_types_.Next(), &problem);
          problem.fill = fill;
          problem.wmax = 128;
          Add(problem);
        }
      }
    }
    // More rows than are summed up at a time.
    for (const auto& [b, zb] : {std::pair{INTACT_U8, 0}, {INTACT_S8, 9}}) {
      Problem problem = Shape(9300, 17, 9);
      SetTypes(INTACT_S8, INTACT_S32, &problem);
      problem.b_type = b;
      problem.zb = zb;
      problem.zb_kind = ZeroPointKind::kTensor;
      problem.threads = 2;
      Add(problem);
    }
  }

  void AddStridesAndThreads() {
    for (const int32_t threads : {1, 2, 3, 0}) {
      for (const int64_t a_pad : {0, 1, 64}) {
        for (const int64_t c_pad : {0, 1, 16}) {
          Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
          SetTypes(shape_types_.Next(), c_types_.Next(), &problem);
          problem.threads = threads;
          problem.a_pad = a_pad;
          problem.c_pad = c_pad;
          problem.fill = fills_.Next();
          Add(problem);
        }
      }
    }
  }

  void AddLarge() {
    for (const Fill fill : {Fill::kUniform, Fill::kBait, Fill::kLaplace}) {
      for (Problem problem :
           {Shape(200, 150, 300), Shape(3, 1000, 64), Shape(500, 17, 65), Shape(2, 40, 4100)}) {
        problem.fill = fill;
        problem.threads = 2;
        Add(problem);
      }
    }
    // C beyond a second-level cache, with rows of whole cache lines: kernels may store past the caches.
    for (const intact_type c : {INTACT_S32, INTACT_F32, INTACT_U8}) {
      for (Problem problem : {Shape(600, 512, 20), Shape(2100, 496, 5), Shape(9000, 80, 9)}) {
        SetTypes(INTACT_U8, c, &problem);
        problem.c_pad = problem.n == 496 ? 16 : 0;
        problem.threads = static_cast<int32_t>(1 + problems_.size() % 2);
        Add(problem);
      }
    }
    // The sum of products leaves int32, the accumulator does not: 255·127·70000 > 2³¹ > 127·127·70000.
    Problem wrapping = Shape(2, 2, 70000);
    wrapping.za = 128;
    wrapping.fill = Fill::kExtremes;
    Add(wrapping);
  }

  // Sums that reach their bounds, in deep problems.
  void AddWindows() {
    Cycle<int64_t> columns(kBlockColumns), depths(kWindowDepths);
    Cycle<int32_t> declared(kDeclared);
    for (const Fill fill : {Fill::kBound, Fill::kUniform, Fill::kStudent, Fill::kGauss, Fill::kBait}) {
      for (const int64_t m : kBlockRows) {
        Problem problem = Shape(m, columns.Next(), depths.Next());
        SetTypes(shape_types_.Next(), INTACT_S32, &problem);
        problem.fill = fill;
        problem.wmax = fill == Fill::kBound ? 128 : 127;
        Declare(declared.Next(), checks_.Next(), &problem);
        Add(problem);
      }
    }
    // More panels than a chunk of them, and more rows than a block of them, with strays in some.
    for (Problem problem : {Shape(34, 530, 130), Shape(100, 17, 16500), Shape(1200, 20, 1030)}) {
      for (const Fill fill : {Fill::kStray, Fill::kBound}) {
        problem.fill = fill;
        problem.threads = 2;
        Declare(127, INTACT_RANGE_CHECKED, &problem);
        Add(problem);
      }
    }
  }

  void AddDeclaredRanges() {
    for (const Fill fill : AllFills()) {
      for (const int32_t declared : kDeclared) {
        Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
        SetTypes(shape_types_.Next(), c_types_.Next(), &problem);
        problem.fill = fill;
        const bool must_be_checked = fill == Fill::kStray;
        Declare(declared, must_be_checked ? INTACT_RANGE_CHECKED : checks_.Next(), &problem);
        Add(problem);
      }
    }
  }

  // Declared ranges that do not begin where the type does.
  void AddLowerBounds() {
    for (const Fill fill : AllFills()) {
      for (const auto& [low, high] : {std::pair{64, 255}, {1, 127}, {100, 200}, {127, 128}, {250, 251}}) {
        Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
        SetTypes(shape_types_.Next(), c_types_.Next(), &problem);
        problem.fill = fill;
        problem.declared_min = low;
        Declare(high, fill == Fill::kStray ? INTACT_RANGE_CHECKED : checks_.Next(), &problem);
        Add(problem);
      }
    }
  }

  // C beyond a second-level cache as in AddLarge(), but of few rows: the kernels that have no 16 rows to fill
  // their lanes with. Every second n leaves a tile of one vector at the edge.
  void AddWideAndFlat() {
    constexpr int64_t kElements = 3 << 18;  // 3 MiB of 4 bytes
    for (int64_t m = 1; m <= 8; ++m) {
      for (const intact_type c : {INTACT_S32, INTACT_F32}) {
        const int64_t edge = c == INTACT_S32 ? 16 : 0;
        Problem problem = Shape(m, kElements / m / 96 * 96 + 96 + edge, 5 + m % 5);
        SetTypes(shape_types_.Next(), c, &problem);
        problem.bias = m % 2 == 0 ? BiasKind::kS32 : BiasKind::kNone;
        problem.threads = static_cast<int32_t>(1 + m % 2);
        Add(problem);
      }
    }
  }

  // Drawn, so that a share of them has all kinds too.
  void AddResiduals() {
    constexpr int kProblems = 240;
    for (uint64_t i = 0; i < kProblems; ++i) {
      Random random(seed_, 0, i);
      const auto draw = [&](const auto& values) {
        return values[static_cast<size_t>(random.Integer(0, std::ssize(values) - 1))];
      };
      Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
      SetTypes(shape_types_.Next(), draw(kScaledTypes), &problem);
      problem.fill = fills_.Next();
      problem.bias = draw(kBiases);
      problem.scale = draw(kScales);
      problem.activation = draw(kActivations);
      problem.threads = static_cast<int32_t>(random.Integer(1, 2));
      problem.c_pad = draw(kPads);
      SetResidual(draw(kScaledTypes), draw(kPads), random.Integer(0, 1) == 0, &problem);
      Add(problem);
    }
    // C beyond a second-level cache, as in AddLarge().
    for (const bool in_place : {false, true}) {
      Problem problem = Shape(600, 512, 20);
      SetTypes(INTACT_U8, INTACT_F32, &problem);
      problem.threads = 2;
      SetResidual(INTACT_F32, 0, in_place, &problem);
      Add(problem);
    }
  }

  void SetResidual(intact_type type, int64_t pad, bool in_place, Problem* problem) {
    problem->residual = type;
    if (type != INTACT_F32) problem->zres = (type == INTACT_U8 ? u8_zc_ : s8_zc_).Next();
    problem->in_place = in_place && reference::ElementSize(type) == reference::ElementSize(problem->c_type);
    problem->res_pad = problem->in_place ? 0 : pad;
  }

  static void Declare(int32_t declared, intact_range_check check, Problem* problem) {
    problem->declared = declared;
    problem->range_check = check;
    const int32_t lowest = problem->a_type == INTACT_S8 ? -128 : 0;
    problem->za = std::clamp(problem->za, lowest + problem->declared_min, lowest + declared);
  }

  static constexpr intact_type kActivationTypes[] = {INTACT_U8, INTACT_S8, INTACT_U8};
  static constexpr intact_type kScaledTypes[] = {INTACT_U8, INTACT_S8, INTACT_F32};
  static constexpr BiasKind kBiases[] = {BiasKind::kNone, BiasKind::kS32, BiasKind::kF32};
  static constexpr ScaleKind kScales[] = {ScaleKind::kTensor, ScaleKind::kChannel};
  static constexpr intact_activation kActivations[] = {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU,
                                                       INTACT_ACTIVATION_CLAMP};
  static constexpr int64_t kPads[] = {0, 3, 16};
  static constexpr intact_type kOutputTypes[] = {INTACT_S32, INTACT_U8, INTACT_F32, INTACT_S8};

  uint64_t seed_;
  std::vector<Problem> problems_;
  Cycle<int32_t> u8_za_{kU8ZeroPoints}, s8_za_{kS8ZeroPoints};
  Cycle<int32_t> u8_zc_{kU8ZeroPoints}, s8_zc_{kS8ZeroPoints};
  Cycle<int64_t> epilogue_rows_{kEpilogueRows}, epilogue_columns_{kEpilogueColumns};
  Cycle<int64_t> epilogue_depths_{kEpilogueDepths};
  Cycle<int64_t> rows_{kRows}, columns_{kColumns}, depths_{kDepths};
  Cycle<intact_type> shape_types_{kActivationTypes}, c_types_{kOutputTypes};
  Cycle<WeightKind> weight_kinds_{kWeightKinds};
  Cycle<Fill> fills_{AllFills()};
  Cycle<intact_range_check> checks_{kRangeChecks};
};

std::string Describe(const Difference& d) {
  return fmt::format("output ({}, {}) is {} instead of {}: {}, {}", d.m, d.n, d.actual, d.expected,
                     ToString(d.cause), d.detail);
}

// Why a target that is to saturate as the triple model says did not; empty if it did.
std::string FailureOfSaturating(const Comparison& comparison) {
  if (comparison.off_triple == 0) return {};
  for (const Difference& difference : comparison.listed) {
    if (difference.cause != Cause::kInt16Saturation) return Describe(difference);
  }
  return fmt::format("{} of {} outputs are not what pairs clamped to int16 make", comparison.off_triple,
                     comparison.outputs);
}

std::string FailureOf(const Problem& problem, const Comparison& comparison) {
  const bool saturates = ExpectedModel(problem.mode, problem.isa) == reference::Model::kTriple;
  if (saturates && !(problem.isa == INTACT_ISA_ANY && comparison.Parity())) {
    return FailureOfSaturating(comparison);
  }
  return comparison.Parity() ? std::string() : Describe(comparison.listed.at(0));
}

// Gathers the outcome of each problem.
class Sweeper {
 public:
  explicit Sweeper(const Target& target) : target_(target) {}

  void Run(const Problem& problem) {
    const std::string line = problem.ToString();
    SweepCell& cell = CellOf(problem);
    const Result<Judgement> judgement = Judge(target_, problem);
    if (!judgement && judgement.error().status == INTACT_UNSUPPORTED) {
      ++cell.skipped;
      result_.skips.push_back({line, judgement.error().message});
      return;
    }
    ++cell.problems;
    if (judgement) Count(line, judgement->comparison, &cell);
    const std::string reason = judgement ? judgement->failure : judgement.error().message;
    if (reason.empty()) return;
    ++cell.failed;
    const bool minimise = result_.failures.size() < kMaxMinimised;
    result_.failures.push_back({line, reason, minimise ? Minimised(problem) : std::string()});
  }

  SweepResult Take() { return std::move(result_); }

 private:
  SweepCell& CellOf(const Problem& problem) {
    const auto found = std::find_if(result_.cells.begin(), result_.cells.end(), [&](const SweepCell& cell) {
      return cell.isa == problem.isa && cell.mode == problem.mode;
    });
    if (found != result_.cells.end()) return *found;
    SweepCell& cell = result_.cells.emplace_back();
    cell.isa = problem.isa;
    cell.mode = problem.mode;
    return cell;
  }

  void Count(const std::string& line, const Comparison& comparison, SweepCell* cell) {
    cell->outputs += comparison.outputs;
    cell->differing += comparison.differing;
    for (size_t i = 0; i < kCauseCount; ++i) cell->by_cause[i] += comparison.by_cause[i];
    result_.digests.push_back({line, comparison.digest});
  }

  std::string Minimised(const Problem& problem) const {
    const auto fails = [this](const Problem& candidate) {
      const Result<Judgement> judgement = Judge(target_, candidate);
      return judgement ? !judgement->Passed() : judgement.error().status != INTACT_UNSUPPORTED;
    };
    return Minimise(problem, fails).ToString();
  }

  const Target& target_;
  SweepResult result_;
};

}  // namespace

bool SweepResult::Passed() const {
  return failures.empty() && !cells.empty() &&
         std::ranges::all_of(cells, [](const SweepCell& cell) { return cell.problems > 0; });
}

Result<Judgement> Judge(const Target& target, const Problem& problem) {
  Result<Comparison> comparison = Verify(target, Materialize(problem), RunOptionsOf(problem));
  if (!comparison) return comparison.error();
  std::string failure = FailureOf(problem, *comparison);
  return Judgement{std::move(*comparison), std::move(failure)};
}

std::vector<Problem> SweepProblems(std::span<const intact_isa> isas, std::span<const intact_mode> modes,
                                   Effort effort) {
  const uint64_t seeds = effort == Effort::kThorough ? 4 : 1;
  const size_t step = effort == Effort::kQuick ? 6 : 1;
  std::vector<Problem> problems;
  for (const intact_isa isa : isas) {
    for (const intact_mode mode : modes) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        const std::vector<Problem> list = ProblemList(seed).Build();
        for (size_t i = 0; i < list.size(); i += step) {
          problems.push_back(list[i]);
          problems.back().isa = isa;
          problems.back().mode = mode;
        }
      }
    }
  }
  return problems;
}

SweepResult RunSweep(std::span<const Problem> problems, const Target& target, const Progress& progress) {
  Sweeper sweeper(target);
  int64_t done = 0;
  for (const Problem& problem : problems) {
    sweeper.Run(problem);
    progress(++done, std::ssize(problems));
  }
  return sweeper.Take();
}

}  // namespace intact::verify
