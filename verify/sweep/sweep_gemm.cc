#include <algorithm>
#include <array>
#include <utility>

#include "core/types.h"
#include "support/random.h"
#include "verify/problem/random_problem.h"
#include "verify/sweep/sweep_problems.h"

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
constexpr int32_t kRangeMaxima[] = {255, 127, 200, 128, 127, 64, 255, 1, 254};
constexpr intact_range_check kRangeChecks[] = {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED};

constexpr int64_t kEpilogueRows[] = {1, 4, 9, 14, 5, 8, 3};
constexpr int64_t kEpilogueColumns[] = {17, 48, 31, 65, 16, 7, 50, 24, 1, 33, 64};
constexpr int64_t kEpilogueDepths[] = {64, 5, 67, 16, 130, 3, 33, 128, 9, 2, 66, 31, 7};

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
    AddActivationRanges();
    AddLowerBounds();
    AddWideAndFlat();
    AddResiduals();
    AddDynamic();
    AddRowsAndBatches();
    AddLargeBatches();
    AddTransposed();
    AddFixedPoint();
    AddWrapping();
    AddPruned();
    AddEmpty();
    AddDrawn();
    return std::move(problems_);
  }

 private:
  void Add(Problem problem) {
    problem.seed = seed_;
    // None of this makes a difference. The divisors are coprime to each other and to the lists' lengths.
    problem.own_scratch = problems_.size() % 2 == 1;
    problem.saved = problems_.size() % 11 == 5 && !problem.runtime_b;
    constexpr std::array<int64_t, 7> kUsual = {0, 0, 1, 0, 8, 0, 128};
    problem.usual_m = kUsual[problems_.size() % kUsual.size()];
    problems_.push_back(problem);
  }

  Problem Shape(int64_t m, int64_t n, int64_t k) {
    Problem problem;
    problem.m = m;
    problem.n = n;
    problem.k = k;
    return problem;
  }

  // s32 outputs, in which no wrong accumulator can hide: each pair of rows, columns and depths.
  void AddShapes() {
    Cycle<int64_t> rows(kRows), columns(kColumns), depths(kDepths);
    const auto add = [this](int64_t m, int64_t n, int64_t k) {
      Problem problem = Shape(m, n, k);
      types_.Set(shape_types_.Next(), INTACT_S32, &problem);
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
          types_.Set(a, c, &problem);
          problem.fill = fill;
          problem.bias = bias;
          problem.scale = scale;
          problem.activation = activation;
          const bool is_bare = bias == BiasKind::kNone && activation == INTACT_ACTIVATION_NONE;
          if (c == INTACT_F32 && scale == ScaleKind::kChannel && is_bare) problem.scale = ScaleKind::kTiny;
          if (!problem.Check()) Add(problem);  // an s32 output takes few of these
        }
      }
    }
  }

  void AddZeroPoints() {
    for (const Fill fill : AllFills()) {
      for (size_t i = 0; i < kZeroPointCount; ++i) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          Problem problem = Shape(5, 33, 66);
          types_.Set(a, INTACT_S32, &problem);
          problem.fill = fill;
          problem.wmax = 128;
          Add(problem);
        }
      }
    }
  }

  // Each type of activations with each type of weights, every kind of zero point, few rows and many.
  void AddTypes() {
    for (const Fill fill : AllFills()) {
      for (const intact_type a : {INTACT_U8, INTACT_S8}) {
        for (size_t i = 0; i < kWeightKindCount; ++i) {
          Problem problem = Shape(i % 2 == 0 ? 5 : 37, epilogue_columns_.Next(), epilogue_depths_.Next());
          types_.Set(a, c_types_.Next(), &problem);
          problem.fill = fill;
          problem.wmax = 128;
          Add(problem);
        }
      }
    }
    // More rows than a kernel sums up at a time.
    for (const auto& [b, zb] : {std::pair{INTACT_U8, 0}, {INTACT_S8, 9}}) {
      Problem problem = Shape(9300, 17, 9);
      types_.Set(INTACT_S8, INTACT_S32, &problem);
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
          types_.Set(shape_types_.Next(), c_types_.Next(), &problem);
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
        types_.Set(INTACT_U8, c, &problem);
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
    Cycle<int32_t> range_maxima(kRangeMaxima);
    for (const Fill fill : {Fill::kBound, Fill::kUniform, Fill::kStudent, Fill::kGauss, Fill::kBait}) {
      for (const int64_t m : kBlockRows) {
        Problem problem = Shape(m, columns.Next(), depths.Next());
        types_.Set(shape_types_.Next(), INTACT_S32, &problem);
        problem.fill = fill;
        problem.wmax = fill == Fill::kBound ? 128 : 127;
        SetActivationRange(range_maxima.Next(), checks_.Next(), &problem);
        Add(problem);
      }
    }
    // More panels than a chunk has, and more rows than a block has; some with strays.
    for (Problem problem : {Shape(34, 530, 130), Shape(100, 17, 16500), Shape(1200, 20, 1030)}) {
      for (const Fill fill : {Fill::kStray, Fill::kBound}) {
        problem.fill = fill;
        problem.threads = 2;
        SetActivationRange(127, INTACT_RANGE_CHECKED, &problem);
        Add(problem);
      }
    }
  }

  void AddActivationRanges() {
    for (const Fill fill : AllFills()) {
      for (const int32_t range_max : kRangeMaxima) {
        Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
        types_.Set(shape_types_.Next(), c_types_.Next(), &problem);
        problem.fill = fill;
        const bool must_be_checked = fill == Fill::kStray;
        SetActivationRange(range_max, must_be_checked ? INTACT_RANGE_CHECKED : checks_.Next(), &problem);
        Add(problem);
      }
    }
  }

  // Activation ranges that do not begin where the type does.
  void AddLowerBounds() {
    for (const Fill fill : AllFills()) {
      for (const auto& [low, high] : {std::pair{64, 255}, {1, 127}, {100, 200}, {127, 128}, {250, 251}}) {
        Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
        types_.Set(shape_types_.Next(), c_types_.Next(), &problem);
        problem.fill = fill;
        problem.range_min = low;
        SetActivationRange(high, fill == Fill::kStray ? INTACT_RANGE_CHECKED : checks_.Next(), &problem);
        Add(problem);
      }
    }
  }

  // C beyond a second-level cache as in AddLarge(), but with few rows, for kernels that need no 16 rows to
  // fill their lanes. Every second n leaves a tile of one vector at the edge.
  void AddWideAndFlat() {
    constexpr int64_t kElements = 3 << 18;  // 3 MiB of 4 bytes
    for (int64_t m = 1; m <= 8; ++m) {
      for (const intact_type c : {INTACT_S32, INTACT_F32}) {
        const int64_t edge = c == INTACT_S32 ? 16 : 0;
        Problem problem = Shape(m, kElements / m / 96 * 96 + 96 + edge, 5 + m % 5);
        types_.Set(shape_types_.Next(), c, &problem);
        problem.bias = m % 2 == 0 ? BiasKind::kS32 : BiasKind::kNone;
        problem.threads = static_cast<int32_t>(1 + m % 2);
        Add(problem);
      }
    }
  }

  // Drawn at random, so that a part of the sweep also has all kinds.
  void AddResiduals() {
    constexpr int kProblems = 240;
    for (uint64_t i = 0; i < kProblems; ++i) {
      support::Random random(seed_, 0, i);
      const auto draw = [&](const auto& values) {
        return values[static_cast<size_t>(random.Integer(0, std::ssize(values) - 1))];
      };
      Problem problem = Shape(rows_.Next(), columns_.Next(), depths_.Next());
      types_.Set(shape_types_.Next(), draw(kScaledTypes), &problem);
      problem.fill = fills_.Next();
      problem.bias = draw(kBiases);
      problem.scale = draw(kScales);
      problem.activation = draw(kActivations);
      problem.threads = static_cast<int32_t>(random.Integer(1, 2));
      problem.c_pad = draw(kPads);
      // Compilers differ in the order of calls within one statement. Problems must not.
      const bool in_place = random.Integer(0, 1) == 0;
      const int64_t pad = draw(kPads);
      types_.SetResidual(draw(kScaledTypes), pad, in_place, &problem);
      Add(problem);
    }
    // C beyond a second-level cache, as in AddLarge().
    for (const bool in_place : {false, true}) {
      Problem problem = Shape(600, 512, 20);
      types_.Set(INTACT_U8, INTACT_F32, &problem);
      problem.threads = 2;
      types_.SetResidual(INTACT_F32, 0, in_place, &problem);
      Add(problem);
    }
  }

  // A problem with a random epilogue, layout of items and B, and number of threads. `za` is 0, because rows
  // may have zero points of their own.
  Problem Drawn(intact_type a, intact_type c, support::Random* random) {
    const auto draw = [random](const auto& values) {
      return values[static_cast<size_t>(random->Integer(0, std::ssize(values) - 1))];
    };
    const bool is_small = random->Integer(0, 1) == 0;
    Problem problem = is_small
                          ? Shape(epilogue_rows_.Next(), epilogue_columns_.Next(), epilogue_depths_.Next())
                          : Shape(rows_.Next(), columns_.Next(), depths_.Next());
    types_.Set(a, c, &problem);
    problem.za = 0;
    problem.fill = fills_.Next();
    problem.batch = draw(kBatches);
    problem.item_pointers = random->Integer(0, 2) == 0;
    problem.item_pad = problem.item_pointers ? 0 : draw(kPads);
    problem.a_by_columns = random->Integer(0, 3) == 0;
    problem.b_by_columns = random->Integer(0, 2) == 0;
    problem.b_pad = draw(kPads);
    problem.a_pad = draw(kPads);
    problem.c_pad = draw(kPads);
    problem.threads = static_cast<int32_t>(random->Integer(1, 2));
    if (c == INTACT_S32) return problem;
    problem.bias = draw(kBiases);
    problem.scale = draw(kScales);
    problem.activation = draw(kActivations);
    if (random->Integer(0, 4) == 0) {
      const int64_t pad = draw(kPads);
      types_.SetResidual(draw(kScaledTypes), pad, false, &problem);
    }
    return problem;
  }

  // Gives channels tiny scales, and removes what would hide them.
  static void MakeTiny(Problem* problem) {
    problem->scale = ScaleKind::kTiny;
    problem->bias = BiasKind::kNone;
    problem->activation = INTACT_ACTIVATION_NONE;
    problem->residual = INTACT_TYPE_NONE;
    problem->zres = 0;
    problem->res_pad = 0;
  }

  void AddDynamic() {
    uint64_t number = 0;
    for (const Numbers numbers : AllNumbers()) {
      for (const auto quantization : {INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_QUANTIZATION_DYNAMIC_TENSOR}) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          for (const intact_type c : {INTACT_F32, INTACT_BF16, INTACT_U8, INTACT_S8, INTACT_F32}) {
            support::Random random(seed_, 1, number++);
            Problem problem = Drawn(a, c, &random);
            problem.quantization = quantization;
            problem.numbers = numbers;
            problem.source = random.Integer(0, 2) == 0 ? INTACT_BF16 : INTACT_F32;
            AddInHalfFloats(problem);
          }
        }
      }
    }
  }

  // Adds a problem; if it has bfloat16, also adds it with each other half float.
  void AddInHalfFloats(Problem problem) {
    Add(problem);
    const bool is_output = problem.c_type == INTACT_BF16, is_source = problem.source == INTACT_BF16;
    if (!is_output && !is_source) return;
    for (const intact_type type : core::kSourceTypes) {
      if (!core::IsHalfFloat(type) || type == INTACT_BF16) continue;
      if (is_output) problem.c_type = type;
      if (is_source) problem.source = type;
      Add(problem);
    }
  }

  // Quantizations of rows and of items, and half float outputs.
  void AddRowsAndBatches() {
    constexpr std::array kQuantizations = {INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_STATIC,
                                           INTACT_QUANTIZATION_STATIC, INTACT_QUANTIZATION_DYNAMIC_ROWS,
                                           INTACT_QUANTIZATION_TENSOR};
    uint64_t number = 0;
    for (const intact_quantization quantization : kQuantizations) {
      for (const bool runtime_b : {false, true}) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          for (const intact_type c : {INTACT_S32, INTACT_F32, INTACT_BF16, INTACT_U8, INTACT_S8}) {
            for (int i = 0; i < 3; ++i) {
              support::Random random(seed_, 2, number++);
              Problem problem = Drawn(a, c, &random);
              problem.quantization = quantization;
              problem.row_zero_points = quantization == INTACT_QUANTIZATION_ROWS && random.Integer(0, 3) != 0;
              const bool has_one =
                  quantization == INTACT_QUANTIZATION_STATIC || quantization == INTACT_QUANTIZATION_TENSOR;
              if (has_one) problem.za = a == INTACT_S8 ? -7 : 9;
              problem.runtime_b = runtime_b;
              const bool is_real = core::IsFloat(c);
              if (quantization == INTACT_QUANTIZATION_ROWS && is_real && i == 0) MakeTiny(&problem);
              if (runtime_b) SetItemValues(&problem, &random);
              if (!problem.Check()) AddInHalfFloats(problem);  // a dynamic quantization has no s32 output
            }
          }
        }
      }
    }
  }

  // Two of three problems get zero points, and scales, for each item or for each column of each item.
  static void SetItemValues(Problem* problem, support::Random* random) {
    constexpr std::array kZeroPoints = {ZeroPointKind::kTensor, ZeroPointKind::kItem,
                                        ZeroPointKind::kItemColumn};
    constexpr std::array kItemScales = {ScaleKind::kItem, ScaleKind::kItemColumn};
    problem->zb_kind = kZeroPoints.at(static_cast<size_t>(random->Integer(0, 2)));
    const auto scales = static_cast<size_t>(random->Integer(0, 2));
    if (problem->c_type == INTACT_S32 || problem->scale == ScaleKind::kTiny || scales == 2) return;
    problem->scale = kItemScales.at(scales);
  }

  // A by columns. Sizes end at and next to the blocks that are transposed at a time; some have more rows than
  // a chunk.
  void AddTransposed() {
    uint64_t number = 0;
    for (const intact_quantization quantization :
         {INTACT_QUANTIZATION_STATIC, INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS,
          INTACT_QUANTIZATION_DYNAMIC_TENSOR}) {
      for (const int64_t m : {1, 4, 15, 16, 17, 33, 64, 65, 130}) {
        support::Random random(seed_, 5, number++);
        Problem problem = Drawn(m % 2 == 0 ? INTACT_S8 : INTACT_U8, INTACT_F32, &random);
        problem.m = m;
        problem.quantization = quantization;
        if (problem.IsDynamic()) problem.source = random.Integer(0, 2) == 0 ? INTACT_BF16 : INTACT_F32;
        problem.a_by_columns = true;
        AddInHalfFloats(problem);
      }
      Problem many = Shape(700, 40, 1000);
      types_.Set(INTACT_U8, INTACT_F32, &many);
      many.za = 0;
      many.quantization = quantization;
      many.a_by_columns = true;
      many.threads = 2;
      Add(many);
    }
  }

  // Attention's shapes, and more rows than a block has.
  void AddLargeBatches() {
    for (const bool by_columns : {true, false}) {
      Problem problem = by_columns ? Shape(128, 128, 64) : Shape(128, 64, 128);
      types_.Set(INTACT_U8, INTACT_F32, &problem);
      problem.batch = 3;
      problem.runtime_b = true;
      problem.b_by_columns = by_columns;
      problem.scale = ScaleKind::kItem;
      problem.threads = 2;
      Add(problem);
    }
    for (Problem problem : {Shape(500, 130, 300), Shape(1, 900, 4100), Shape(2300, 17, 65)}) {
      types_.Set(INTACT_U8, INTACT_F32, &problem);
      problem.za = 0;
      problem.quantization =
          problem.m == 1 ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
      problem.threads = 2;
      Add(problem);
    }
    Problem few_rows = Shape(1, 65, 130);
    few_rows.batch = 40;
    few_rows.item_pointers = true;
    few_rows.threads = 2;
    Add(few_rows);
  }

  // Ties of both signs, which the rounding rules treat differently. The zero point lets both be outputs.
  void AddFixedPoint() {
    for (const FixedKind fixed :
         {FixedKind::kAway, FixedKind::kUp, FixedKind::kAwayShift, FixedKind::kUpShift}) {
      Problem problem = Shape(16, 16, 64);
      types_.Set(INTACT_U8, INTACT_S8, &problem);
      problem.zc = 0;
      problem.fill = Fill::kTies;
      problem.scale = ScaleKind::kChannel;
      problem.fixed = fixed;
      Add(problem);
    }
  }

  // Sums beyond int32, because of the bias or of the depth: 255·127·66400 > 2³¹.
  void AddWrapping() {
    for (const intact_type c : core::kOutputTypes) {
      for (const int64_t m : {1, 5, 37}) {
        Problem problem = Shape(m, epilogue_columns_.Next(), epilogue_depths_.Next());
        types_.Set(shape_types_.Next(), c, &problem);
        problem.fill = fills_.Next();
        problem.bias = BiasKind::kS32;
        problem.scale = c == INTACT_S32 ? ScaleKind::kNone : scales_.Next();
        problem.overflow = INTACT_OVERFLOW_WRAPS;
        Add(problem);
      }
    }
    for (Problem problem : {Shape(2, 17, 66400), Shape(33, 3, 66400)}) {
      problem.fill = Fill::kExtremes;
      problem.overflow = INTACT_OVERFLOW_WRAPS;
      Add(problem);
    }
  }

  void AddPruned() {
    for (const intact_type c : core::kOutputTypes) {
      if (c == INTACT_S32) continue;
      for (const BiasKind bias : kBiases) {
        Problem problem = Shape(epilogue_rows_.Next(), epilogue_columns_.Next(), epilogue_depths_.Next());
        types_.Set(shape_types_.Next(), c, &problem);
        problem.fill = fills_.Next();
        problem.bias = bias;
        problem.scale = ScaleKind::kPruned;
        Add(problem);
      }
    }
  }

  void AddEmpty() {
    for (const intact_type c : {INTACT_S32, INTACT_U8}) {
      for (const bool has_rows : {false, true}) {
        Problem problem = Shape(has_rows ? 3 : 0, 17, 64);
        if (c == INTACT_U8) types_.Set(shape_types_.Next(), c, &problem);
        problem.batch = has_rows ? 0 : c == INTACT_U8 ? 2 : 1;
        problem.runtime_b = problem.batch == 2;
        problem.c_pad = 3;
        Add(problem);
      }
    }
  }

  // Every field drawn: combinations that the lists above do not have.
  void AddDrawn() {
    for (uint64_t i = 0; i < 300; ++i) {
      support::Random random(seed_, 3, i);
      Add(DrawGemm({}, INTACT_EXACT, &random));
    }
  }

  static constexpr intact_type kActivationTypes[] = {INTACT_U8, INTACT_S8, INTACT_U8};
  static constexpr intact_type kScaledTypes[] = {INTACT_U8, INTACT_S8, INTACT_F32};
  static constexpr BiasKind kBiases[] = {BiasKind::kNone, BiasKind::kS32, BiasKind::kF32};
  static constexpr ScaleKind kScales[] = {ScaleKind::kTensor, ScaleKind::kChannel};
  static constexpr intact_activation kActivations[] = {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU,
                                                       INTACT_ACTIVATION_CLAMP};
  static constexpr int64_t kPads[] = {0, 3, 16};
  static constexpr int64_t kBatches[] = {1, 1, 2, 3, 5};
  static constexpr intact_type kOutputTypes[] = {INTACT_S32, INTACT_U8, INTACT_F32, INTACT_S8};

  uint64_t seed_;
  std::vector<Problem> problems_;
  TypeCycle types_;
  Cycle<int64_t> epilogue_rows_{kEpilogueRows}, epilogue_columns_{kEpilogueColumns};
  Cycle<int64_t> epilogue_depths_{kEpilogueDepths};
  Cycle<int64_t> rows_{kRows}, columns_{kColumns}, depths_{kDepths};
  Cycle<intact_type> shape_types_{kActivationTypes}, c_types_{kOutputTypes};
  Cycle<Fill> fills_{AllFills()};
  Cycle<intact_range_check> checks_{kRangeChecks};
  Cycle<ScaleKind> scales_{kScales};
};

}  // namespace

std::vector<Problem> GemmProblems(uint64_t seed) { return ProblemList(seed).Build(); }

}  // namespace intact::verify
