// Dynamic quantization, and zero points and scales of rows: every available ISA equals the reference byte for
// byte, however threads and parts share a run.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/contract/gemm.h"
#include "reference/contract/quantize.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"

namespace intact::tests {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

struct Shape {
  int64_t m, n, k;
};

struct Case {
  intact_quantization quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
  intact_type source = INTACT_F32;  // with dynamic quantization
  intact_type a = INTACT_U8, b = INTACT_S8, c = INTACT_F32;
  Shape shape = {1, 1, 1};
  bool has_bias = false, has_b_zero_points = false, has_residual = false;
  intact_mode mode = INTACT_EXACT;
};

bool IsDynamic(const Case& test) {
  return test.quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS ||
         test.quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
}

// A case with its tensors, for the library and for the reference.
class Problem {
 public:
  Problem(const Case& test, unsigned seed) : test_(test), random_(seed) {
    const auto [m, n, k] = test.shape;
    gemm_.m = m;
    gemm_.n = n;
    gemm_.k = k;
    gemm_.a_type = test.a;
    gemm_.b_type = test.b;
    gemm_.c_type = test.c;
    gemm_.mode = test.mode;
    gemm_.a_quantization = test.quantization;
    if (IsDynamic(test)) {
      MakeNumbers();
    } else {
      MakeRows();
    }
    gemm_.b.resize(static_cast<size_t>(n * k));
    for (int8_t& weight : gemm_.b) weight = static_cast<int8_t>(random_());
    std::uniform_real_distribution<float> scale(0.001f, 0.1f);
    for (int64_t i = 0; i < n; ++i) {
      if (test.c != INTACT_S32) gemm_.scales.push_back(scale(random_));
      if (test.has_bias) gemm_.bias_f32.push_back(scale(random_) - 0.05f);
      if (test.has_b_zero_points) {
        gemm_.b_zero_points.push_back(test.b == INTACT_U8 ? static_cast<int>(random_() % 256)
                                                          : static_cast<int>(random_() % 256) - 128);
      }
    }
    if (test.has_residual) MakeResidual();
  }

  intact_linear_desc Linear() const { return core::DescOf(gemm_); }
  intact_gemm_args Args(std::vector<uint8_t>* c) const {
    c->assign(static_cast<size_t>(gemm_.m * gemm_.n * core::BytesOf(test_.c)), 0xAB);
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = gemm_.m;
    args.a = IsDynamic(test_) ? source_.data() : gemm_.a.data();
    args.c = c->data();
    if (test_.has_residual) args.residual = gemm_.residual.data();
    if (test_.quantization == INTACT_QUANTIZATION_ROWS) {
      args.a_zero_points = gemm_.a_zero_points.data();
      if (test_.c != INTACT_S32) args.a_scales = gemm_.a_scales.data();
    }
    return args;
  }
  const reference::Gemm& gemm() const { return gemm_; }

 private:
  // Numbers of all sizes; rows of equal values, of zeros, of denormals, with an outlier, with NaNs or
  // infinities.
  void MakeNumbers() {
    std::vector<float> x;
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < gemm_.m; ++row) {
      const float size = std::ldexp(1.0f, static_cast<int>(random_() % 20) - 10);
      const float shift = static_cast<float>(random_() % 3) * size;
      for (int64_t k = 0; k < gemm_.k; ++k) x.push_back(normal(random_) * size + shift);
      const auto at = [&, begin = x.size() - static_cast<size_t>(gemm_.k)](size_t k) -> float& {
        return x[begin + k % static_cast<size_t>(gemm_.k)];
      };
      const bool may_be_none = test_.quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
      for (size_t k = 0; row % 9 == 3 && k < static_cast<size_t>(gemm_.k); ++k) at(k) = -0.75f;
      for (size_t k = 0; row % 9 == 4 && k < static_cast<size_t>(gemm_.k); ++k)
        at(k) = k % 2 == 0 ? 0.0f : -0.0f;
      for (size_t k = 0; row % 9 == 5 && k < static_cast<size_t>(gemm_.k); ++k) at(k) *= 1e-41f;
      if (row % 9 == 6) at(random_()) = std::min(1e9f, static_cast<float>(core::LargestOf(test_.source)));
      if (row % 9 == 7 && may_be_none) at(random_()) = std::numeric_limits<float>::quiet_NaN();
      if (row % 9 == 8 && may_be_none) at(random_()) = -std::numeric_limits<float>::infinity();
    }
    const auto bytes = static_cast<size_t>(core::BytesOf(test_.source));
    source_.resize(x.size() * bytes);
    for (size_t i = 0; i < x.size(); ++i) {
      core::Encode(test_.source, reference::RoundToFloat(x[i], test_.source), &source_[i * bytes]);
      x[i] = static_cast<float>(core::Decode(test_.source, &source_[i * bytes]));
    }
    gemm_.a_source_type = test_.source;
    gemm_.a_source = source_;
    reference::QuantizeActivations(&gemm_);
  }
  void MakeRows() {
    gemm_.a.resize(static_cast<size_t>(gemm_.m * gemm_.k));
    for (uint8_t& a : gemm_.a) a = static_cast<uint8_t>(random_());
    for (int64_t row = 0; row < gemm_.m; ++row) {
      gemm_.a_zero_points.push_back(static_cast<int>(random_() % 256) - (test_.a == INTACT_S8 ? 128 : 0));
      if (test_.c != INTACT_S32) gemm_.a_scales.push_back(std::ldexp(1.1f, -static_cast<int>(random_() % 8)));
    }
  }
  void MakeResidual() {
    gemm_.post_ops.Add(core::AddResidual{INTACT_S8, 0.5f});
    gemm_.residual.resize(static_cast<size_t>(gemm_.m * gemm_.n));
    for (uint8_t& r : gemm_.residual) r = static_cast<uint8_t>(random_());
  }

  Case test_;
  std::minstd_rand random_;
  reference::Gemm gemm_;
  std::vector<uint8_t> source_;
};

Plan Create(const Problem& problem, intact_isa isa) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = problem.gemm().n;
  desc.k = problem.gemm().k;
  intact_linear_desc linear = problem.Linear();
  linear.max_isa = isa;
  intact_gemm* gemm = nullptr;
  EXPECT_EQ(intact_gemm_create(&desc, &linear, problem.gemm().b.data(), &gemm), INTACT_OK)
      << intact_last_error();
  return Plan(gemm);
}

// The expected output of a plan: in saturating mode pairs saturate on ISAs without VNNI.
std::vector<uint8_t> Expected(const Case& test, const Problem& problem, intact_isa isa) {
  const bool saturates =
      test.mode == INTACT_SATURATING && (isa == INTACT_ISA_AVX2 || isa == INTACT_ISA_AVX512);
  const auto model = saturates ? reference::Model::kMaddubs : reference::Model::kExact;
  return reference::Outputs(problem.gemm(), reference::Accumulators(problem.gemm(), model));
}

void Check(const Case& test, unsigned seed, intact_isa isa) {
  const Problem problem(test, seed);
  const Plan plan = Create(problem, isa);
  ASSERT_NE(plan, nullptr);
  const std::vector<uint8_t> expected = Expected(test, problem, isa);
  std::vector<uint8_t> c;
  for (const int threads : {1, 3}) {
    intact_gemm_args args = problem.Args(&c);
    args.threads = threads;
    ASSERT_EQ(intact_gemm_run(plan.get(), &args), INTACT_OK) << intact_last_error();
    ASSERT_EQ(c, expected) << threads << " threads";
  }
  const intact_gemm_args args = problem.Args(&c);
  for (int part = 0; part < 5; ++part) {
    ASSERT_EQ(intact_gemm_run_part(plan.get(), &args, part, 5), INTACT_OK) << intact_last_error();
  }
  ASSERT_EQ(c, expected) << "5 parts";
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::array<Shape, 8> shapes = {{{1, 1, 1},
                                        {1, 40, 67},
                                        {5, 17, 64},
                                        {9, 33, 129},
                                        {20, 48, 300},
                                        {40, 65, 96},
                                        {200, 19, 130},
                                        {700, 24, 36}}};
  std::minstd_rand random(7);
  const auto pick_of = [&](const auto& all) { return all[random() / 7 % all.size()]; };
  const auto pick = [&](auto... values) { return pick_of(std::array{values...}); };
  for (int i = 0; i < 160; ++i) {
    Case test;
    test.quantization =
        pick(INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_QUANTIZATION_DYNAMIC_TENSOR);
    test.source = pick_of(core::kSourceTypes);
    test.a = pick(INTACT_U8, INTACT_S8);
    test.b = pick(INTACT_U8, INTACT_S8);
    test.c = pick_of(core::kOutputTypes);
    if (test.c == INTACT_S32 && IsDynamic(test)) test.c = INTACT_F32;
    test.shape = shapes[static_cast<size_t>(i) % shapes.size()];
    test.has_bias = test.c != INTACT_S32 && pick(false, true);
    test.has_b_zero_points = pick(false, true);
    test.has_residual = test.c != INTACT_S32 && pick(false, true, false);
    test.mode = pick(INTACT_EXACT, INTACT_EXACT, INTACT_SATURATING);
    cases.push_back(test);
  }
  return cases;
}

class DynamicGemm : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
};

TEST_P(DynamicGemm, EqualsTheReference) {
  unsigned seed = 1;
  for (const Case& test : Cases()) {
    SCOPED_TRACE("case " + std::to_string(seed) + ": quantization " + std::to_string(test.quantization) +
                 ", types " + std::to_string(test.a) + std::to_string(test.b) + std::to_string(test.c) +
                 ", m=" + std::to_string(test.shape.m) + (test.has_residual ? " residual" : "") +
                 (test.has_b_zero_points ? " zb" : "") + (test.mode == INTACT_EXACT ? "" : " saturating"));
    Check(test, seed++, GetParam());
    if (HasFatalFailure()) return;
  }
}

// Items with other rows and bytes between them, or at addresses that pointers give; in one run and in parts.
class Scattered {
 public:
  Scattered(const intact_gemm_args& dense, int64_t items, int64_t m, const intact_gemm_info& info) : m_(m) {
    const bool is_dynamic = info.a_source_type != INTACT_TYPE_NONE;
    const int64_t a_bytes = is_dynamic ? core::BytesOf(static_cast<intact_type>(info.a_source_type)) : 1;
    a_ = Spread(static_cast<const uint8_t*>(dense.a), items, m * info.k * a_bytes, kGap * a_bytes);
    c_row_bytes_ = info.n * core::BytesOf(static_cast<intact_type>(info.c_type));
    gap_bytes_ = c_row_bytes_ / info.n * kGap;
    c_.assign(static_cast<size_t>(items * (m * c_row_bytes_ + gap_bytes_)), 0xAB);
    args_ = dense;
    args_.m = m;
    args_.batch = items;
    args_.a = a_.data();
    args_.a_batch_stride = m * info.k + kGap;
    args_.c = c_.data();
    args_.c_batch_stride = m * info.n + kGap;
    if (dense.residual == nullptr) return;
    residual_ = Spread(static_cast<const uint8_t*>(dense.residual), items, m * info.n, kGap);
    args_.residual = residual_.data();
    args_.residual_batch_stride = m * info.n + kGap;
  }
  const intact_gemm_args& args() const { return args_; }
  // Gives the items by pointers, in reverse order in memory.
  intact_gemm_args ByPointers(const intact_gemm_info& info) {
    intact_gemm_args args = args_;
    const bool is_dynamic = info.a_source_type != INTACT_TYPE_NONE;
    const int64_t a_bytes = is_dynamic ? core::BytesOf(static_cast<intact_type>(info.a_source_type)) : 1;
    a_items_.clear();
    c_items_.clear();
    for (int64_t i = 0; i < args.batch; ++i) {
      a_items_.push_back(a_.data() + i * args.a_batch_stride * a_bytes);
      c_items_.push_back(c_.data() + i * (m_ * c_row_bytes_ + gap_bytes_));
    }
    args.a = nullptr;
    args.a_batch_stride = 0;
    args.a_items = a_items_.data();
    args.c = nullptr;
    args.c_batch_stride = 0;
    args.c_items = c_items_.data();
    return args;
  }
  // The items' outputs, densely. No other bytes may be written. Clears them for the next run.
  std::vector<uint8_t> TakeOutputs() {
    std::vector<uint8_t> dense;
    const int64_t item_bytes = m_ * c_row_bytes_;
    for (auto item = c_.begin(); item != c_.end(); item += item_bytes + gap_bytes_) {
      dense.insert(dense.end(), item, item + item_bytes);
      for (auto gap = item + item_bytes; gap != item + item_bytes + gap_bytes_; ++gap) EXPECT_EQ(*gap, 0xAB);
    }
    std::fill(c_.begin(), c_.end(), uint8_t{0xAB});
    return dense;
  }

 private:
  static constexpr int64_t kGap = 5;  // elements
  static std::vector<uint8_t> Spread(const uint8_t* dense, int64_t items, int64_t bytes, int64_t gap_bytes) {
    std::vector<uint8_t> spread(static_cast<size_t>(items * (bytes + gap_bytes)));
    for (int64_t i = 0; i < items; ++i) {
      std::copy_n(dense + i * bytes, bytes, spread.begin() + i * (bytes + gap_bytes));
    }
    return spread;
  }

  int64_t m_, c_row_bytes_ = 0, gap_bytes_ = 0;
  std::vector<uint8_t> a_, c_, residual_;
  std::vector<const void*> a_items_;
  std::vector<void*> c_items_;
  intact_gemm_args args_ = INTACT_GEMM_ARGS_INIT;
};

TEST_P(DynamicGemm, BatchesEqualTheirRows) {
  unsigned seed = 1000;
  for (Case test : Cases()) {
    const int64_t items = std::array{2, 3, 7}.at(seed % 3);
    if (++seed % 4 != 0) continue;
    SCOPED_TRACE("case " + std::to_string(seed) + " of " + std::to_string(items) + " items");
    const int64_t m = std::min<int64_t>(test.shape.m, 40);
    test.shape.m = items * m;
    const Problem problem(test, seed);
    const Plan plan = Create(problem, GetParam());
    ASSERT_NE(plan, nullptr);
    intact_gemm_info info = INTACT_GEMM_INFO_INIT;
    ASSERT_EQ(intact_gemm_query(plan.get(), &info), INTACT_OK);
    const std::vector<uint8_t> expected = Expected(test, problem, GetParam());
    std::vector<uint8_t> c;
    intact_gemm_args dense = problem.Args(&c);
    dense.m = m;
    dense.batch = items;
    ASSERT_EQ(intact_gemm_run(plan.get(), &dense), INTACT_OK) << intact_last_error();
    ASSERT_EQ(c, expected) << "dense items";

    Scattered scattered(dense, items, m, info);
    intact_gemm_args args = scattered.args();
    for (const int threads : {1, 2}) {
      args.threads = threads;
      ASSERT_EQ(intact_gemm_run(plan.get(), &args), INTACT_OK) << intact_last_error();
      ASSERT_EQ(scattered.TakeOutputs(), expected) << threads << " threads";
    }
    const int parts = static_cast<int>(seed % 9) + 1;
    for (int part = 0; part < parts; ++part) {
      ASSERT_EQ(intact_gemm_run_part(plan.get(), &args, part, parts), INTACT_OK) << intact_last_error();
    }
    ASSERT_EQ(scattered.TakeOutputs(), expected) << parts << " parts";
    args = scattered.ByPointers(info);
    intact_run_info needed = INTACT_RUN_INFO_INIT;
    ASSERT_EQ(intact_gemm_prepare(plan.get(), &args, &needed), INTACT_OK) << intact_last_error();
    std::vector<uint8_t> scratch(needed.scratch_bytes);
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
    ASSERT_EQ(intact_gemm_run(plan.get(), &args), INTACT_OK) << intact_last_error();
    ASSERT_EQ(scattered.TakeOutputs(), expected) << "by pointers";
  }
}

// The last error without the call's name, which it must begin with.
std::string MessageOf(const std::string& call) {
  const std::string message = intact_last_error();
  EXPECT_EQ(message.substr(0, call.size() + 2), call + ": ");
  return message.substr(std::min(message.size(), call.size() + 2));
}

// The error of a valid descriptor after `change`; "" if it is accepted.
template <class Change>
std::string MessageOfPlan(const Case& test, const Change& change) {
  const Problem problem(test, 1);
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = problem.gemm().n;
  desc.k = problem.gemm().k;
  intact_linear_desc linear = problem.Linear();
  change(&desc, &linear);
  intact_gemm* gemm = nullptr;
  const intact_status status = intact_gemm_create(&desc, &linear, problem.gemm().b.data(), &gemm);
  EXPECT_EQ(status == INTACT_OK, gemm != nullptr);
  const std::string message = status == INTACT_OK ? "" : MessageOf("intact_gemm_create");
  intact_gemm_destroy(gemm);
  return message;
}

Case SmallCase(intact_quantization quantization) {
  Case test;
  test.quantization = quantization;
  test.shape = {4, 16, 32};
  return test;
}

TEST(DynamicRefusals, OfDescriptorsNameTheField) {
  const Case dynamic = SmallCase(INTACT_QUANTIZATION_DYNAMIC_ROWS);
  const auto of = [&](const auto& change) {
    return MessageOfPlan(dynamic,
                         [&](intact_gemm_desc* /*desc*/, intact_linear_desc* linear) { change(linear); });
  };
  EXPECT_EQ(of([](intact_linear_desc*) {}), "");
  EXPECT_EQ(of([](auto* linear) { linear->a_quantization = 9; }),
            "a_quantization is 9; expected an intact_quantization");
  EXPECT_TRUE(of([](auto* linear) {
                linear->a_source_type = INTACT_U8;
              }).starts_with("a_source_type is 1; expected INTACT_F32"));
  EXPECT_EQ(of([](auto* linear) { linear->a_quantization = INTACT_QUANTIZATION_STATIC; }),
            "a_source_type is 4; expected INTACT_TYPE_NONE, because a_quantization is not dynamic");
  EXPECT_EQ(of([](auto* linear) { linear->a_zero_point = 3; }),
            "a_zero_point is 3; expected 0, because each run has its own (a_quantization)");
  EXPECT_EQ(of([](auto* linear) { linear->a_max = 127; }),
            "a_min is 0 and a_max is 127; expected 0 with a dynamic a_quantization");
  EXPECT_EQ(of([](auto* linear) {
              linear->c_type = INTACT_S32;
              linear->scales = nullptr;
              linear->scale_count = 0;
            }),
            "c_type is INTACT_S32 with a dynamic a_quantization; expected a type with scales");
  EXPECT_EQ(MessageOfPlan(dynamic, [](auto* desc, auto*) { desc->runtime_b = 2; }),
            "runtime_b is 2; expected 0 or 1");
  EXPECT_EQ(MessageOfPlan(dynamic, [](auto* desc, auto*) { desc->runtime_b = 1; }),
            "b is given, and runtime_b is 1; expected NULL, because each run passes B");
}

// The error of a valid run after `change`; "" if it runs.
template <class Change>
std::string MessageOfRun(const Case& test, const Change& change) {
  const Problem problem(test, 1);
  const Plan plan = Create(problem, INTACT_ISA_ANY);
  if (plan == nullptr) return "no plan";
  std::vector<uint8_t> c;
  intact_gemm_args args = problem.Args(&c);
  const std::vector<uint8_t> before = c;
  change(&args);
  if (intact_gemm_run(plan.get(), &args) == INTACT_OK) return "";
  const std::string message = MessageOf("intact_gemm_run");
  EXPECT_EQ(c, before) << "written before it was refused";
  return message;
}

TEST(DynamicRefusals, OfRunsNameTheArgument) {
  const Case dynamic = SmallCase(INTACT_QUANTIZATION_DYNAMIC_ROWS);
  const Case rows = SmallCase(INTACT_QUANTIZATION_ROWS);
  static const std::array<int32_t, 4> zero_points = {0, 1, 256, 3};
  static const std::array<float, 4> scales = {1.0f, 1.0f, 1.0f, -0.5f};
  static const std::array<const void*, 2> pointers = {&scales, nullptr};
  EXPECT_EQ(MessageOfRun(dynamic, [](auto*) {}), "");
  EXPECT_EQ(MessageOfRun(rows, [](auto*) {}), "");
  EXPECT_EQ(MessageOfRun(rows, [](auto* args) { args->a_zero_points = nullptr; }), "");
  EXPECT_EQ(MessageOfRun(rows, [](auto* args) { args->a_zero_points = zero_points.data(); }),
            "a_zero_points[2] is 256; expected 0 to 255");
  EXPECT_EQ(MessageOfRun(rows, [](auto* args) { args->a_scales = scales.data(); }),
            "a_scales[3] is -0.5; expected a finite value of at least 0");
  EXPECT_EQ(MessageOfRun(rows, [](auto* args) { args->a_scales = nullptr; }),
            "a_scales is NULL; expected a value for each row");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->a_scales = scales.data(); }),
            "a_scales are given; expected NULL, because the plan takes none");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->batch = -1; }),
            "batch is -1; expected 0 to 2147483647");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->batch = int64_t{1} << 30; }),
            "m·batch is 4294967296; expected at most 2147483647");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->c_batch_stride = -4; }),
            "c_batch_stride is -4; expected 0 to 2^40");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->a_items = pointers.data(); }),
            "a_items and a are both given; expected one of them");
  EXPECT_EQ(MessageOfRun(dynamic,
                         [](auto* args) {
                           args->a = nullptr;
                           args->batch = 2;
                           args->m = 2;
                           args->a_items = pointers.data();
                         }),
            "a_items[1] is NULL");
  // Items of one row have no stride between rows, but it must still be valid.
  const auto items_of_one_row = [](intact_gemm_args* args) {
    args->batch = 4;
    args->m = 1;
    args->c_batch_stride = 16;
  };
  EXPECT_EQ(MessageOfRun(dynamic, items_of_one_row), "");
  EXPECT_EQ(MessageOfRun(dynamic,
                         [&](auto* args) {
                           items_of_one_row(args);
                           args->c_stride = 15;
                         }),
            "c_stride is 15; expected 0 or at least 16, at most 2^40");
  EXPECT_EQ(MessageOfRun(dynamic,
                         [&](auto* args) {
                           items_of_one_row(args);
                           args->residual_batch_stride = 16;
                           args->residual_stride = 15;
                         }),
            "residual_stride is 15; expected 0 or at least 16, at most 2^40");
  EXPECT_EQ(MessageOfRun(dynamic, [](auto* args) { args->b = scales.data(); }),
            "b is given to a run; expected none: the plan's B is constant");
}

// A finite float16 in units of the smallest, 2⁻²⁴, computed with integers only; 65536 for infinity.
int64_t UnitsOf(uint32_t half) {
  const uint32_t exponent = half >> 10, fraction = half & 0x3ff;
  return exponent == 0 ? fraction : int64_t{fraction + 0x400} << (exponent - 1);
}

// The middle of each two adjacent float16s, and its neighbours. Each is a scale; its accumulator is 1 or −1.
TEST_P(DynamicGemm, RoundsToEachFloat16) {
  std::vector<float> scales;
  std::vector<int8_t> b;
  std::vector<uint16_t> expected;
  const auto add = [&](float scale, uint32_t half) {
    for (const int sign : {1, -1}) {
      scales.push_back(scale);
      b.push_back(static_cast<int8_t>(sign));
      expected.push_back(static_cast<uint16_t>(sign > 0 ? half : half | 0x8000));
    }
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const auto middle = static_cast<float>(std::ldexp(UnitsOf(half) + UnitsOf(half + 1), -25));
    add(std::nextafter(middle, 0.0f), half);
    add(middle, half % 2 == 0 ? half : half + 1);
    add(std::nextafter(middle, kInfinity), half + 1);
    if (half != 0) add(static_cast<float>(std::ldexp(UnitsOf(half), -24)), half);
  }
  add(std::numeric_limits<float>::denorm_min(), 0);
  add(std::numeric_limits<float>::max(), 0x7c00);

  GemmDesc desc = MakeGemmDesc();
  desc.n = std::ssize(b);
  desc.k = 1;
  desc.linear.c_type = INTACT_F16;
  desc.linear.max_isa = GetParam();
  desc.linear.scales = scales.data();
  desc.linear.scale_count = desc.n;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const uint8_t one = 1;
  std::vector<Float16> c(b.size());
  ASSERT_TRUE(
      gemm->Run(MatrixView<const uint8_t>(&one, 1, 1), MatrixView<Float16>(c.data(), 1, desc.n)).ok());
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_EQ(c[i].bits, expected[i]) << scales[i] << " · " << int{b[i]};
  }
}

// All bit patterns: one in each row, whose scale then gives the number; and 64 in each row, as whole vectors.
TEST_P(DynamicGemm, QuantizesEachFloat16) {
  std::vector<Float16> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) x.push_back({static_cast<uint16_t>(bits)});
  for (const intact_type a_type : {INTACT_U8, INTACT_S8}) {
    for (const int64_t k : {1, 64}) {
      GemmDesc desc = MakeGemmDesc();
      desc.n = k;
      desc.k = k;
      desc.linear.a_type = a_type;
      desc.linear.a_source_type = INTACT_F16;
      desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
      desc.linear.c_type = INTACT_F32;
      desc.linear.max_isa = GetParam();
      const float scale = 1.0f;
      desc.linear.scales = &scale;
      desc.linear.scale_count = 1;
      std::vector<int8_t> b(static_cast<size_t>(k * k));
      for (int64_t i = 0; i < k; ++i) b[static_cast<size_t>(i * k + i)] = 1;
      const Result<Gemm> gemm = Gemm::Create(desc, b.data());
      ASSERT_TRUE(gemm) << gemm.error().message;
      std::vector<float> c(x.size());
      const int64_t m = std::ssize(x) / k;
      const Error error =
          gemm->Run(MatrixView<const Float16>(x.data(), m, k), MatrixView<float>(c.data(), m, k));
      ASSERT_TRUE(error.ok()) << error.message;
      for (int64_t row = 0; row < m; ++row) {
        std::vector<float> numbers;
        for (int64_t i = row * k; i < (row + 1) * k; ++i) {
          const uint32_t magnitude = static_cast<uint32_t>(i) & 0x7fff;
          const auto number = static_cast<float>(std::ldexp(UnitsOf(magnitude), -24));
          const bool is_finite = magnitude < 0x7c00;  // all infinities and NaNs have one effect
          numbers.push_back(!is_finite   ? std::numeric_limits<float>::infinity()
                            : i < 0x8000 ? number
                                         : -number);
        }
        const auto how = reference::ChooseQuantization(a_type, numbers);
        for (size_t i = 0; i < numbers.size(); ++i) {
          const float actual = c[static_cast<size_t>(row * k) + i];
          const auto y = static_cast<float>(reference::Quantize(numbers[i], a_type, how) - how.zero_point);
          if (std::isnan(how.scale)) {
            ASSERT_EQ(std::bit_cast<uint32_t>(actual), 0x7fc00000u) << row << " " << i;
          } else {
            ASSERT_EQ(actual, y * how.scale) << row << " " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DynamicGemm, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& test) { return std::string(intact_isa_name(test.param)); });

}  // namespace
}  // namespace intact::tests
