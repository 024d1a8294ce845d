// Random GEMMs and convolutions on a machine of tiny caches. Caches determine all blocking, so small problems
// have many blocks, chunks, windows and bands, and their edges. With real caches, problems that a test has
// time for would have one of each. Every ISA is compared with its scalar model, with threads and in parts.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "kernels/api/create.h"
#include "kernels/plans/convolution.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/runtime/caches.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/on_every_isa.h"
#include "verify/explain/audit.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

using kernels::CacheSizes;

// The same cases on every run, unless RC_PARAMS asks for others. A failure is reported as one case.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20240229 max_success=200", /*overwrite=*/0);

class ScopedCaches {
 public:
  explicit ScopedCaches(const CacheSizes& sizes) : machine_(kernels::Caches()) {
    kernels::SetCachesForTesting(sizes);
  }
  ~ScopedCaches() { kernels::SetCachesForTesting(machine_); }
  ScopedCaches(const ScopedCaches&) = delete;
  ScopedCaches& operator=(const ScopedCaches&) = delete;

 private:
  CacheSizes machine_;
};

// ----- random problems -------------------------------------------------------------------------------------

template <class T>
T AnyOf(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}
// Full range from the first case on: rapidcheck would begin with small numbers.
int64_t AnyOfRange(int64_t least, int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(least, most + 1));
}
bool AnyBool() { return *rc::gen::arbitrary<bool>(); }

CacheSizes AnyCaches() {
  CacheSizes sizes;
  sizes.l1d_bytes = AnyOfRange(1 << 10, 8 << 10);
  // Often larger than the others: planar bands should fit L2, and only then are divided too.
  sizes.l2_bytes = AnyBool() ? AnyOfRange(1 << 10, 8 << 10) : AnyOfRange(8 << 10, 64 << 10);
  return sizes;
}

int32_t AnyOfType(intact_type type) {
  return static_cast<int32_t>(AnyOfRange(core::LowestOf(type), core::HighestOf(type)));
}

void SetTensors(Problem* problem) {
  problem->a_type = AnyOf({INTACT_U8, INTACT_S8});
  problem->b_type = AnyOf({INTACT_S8, INTACT_S8, INTACT_U8});
  problem->c_type = AnyOf({INTACT_S32, INTACT_S32, INTACT_F32, INTACT_U8, INTACT_S8});
  problem->za = AnyOfType(problem->a_type);
  problem->zb = AnyOf({0, problem->b_type == INTACT_U8 ? 128 : 0, AnyOfType(problem->b_type)});
  problem->zb_kind = AnyOf({ZeroPointKind::kTensor, ZeroPointKind::kTensor, ZeroPointKind::kChannel});
  problem->wmax = AnyOf({127, 128, 20});
  problem->fill = *rc::gen::elementOf(std::vector<Fill>(AllFills().begin(), AllFills().end()));
  if (AnyBool()) return;
  // An activation range that ends at the zero point or above it.
  const int32_t zero = problem->za + (problem->a_type == INTACT_S8 ? 128 : 0);
  problem->range_max = static_cast<int32_t>(AnyOfRange(std::max(zero, 1), 255));
  if (problem->fill == Fill::kStray) return;
  problem->range_check = AnyOf({INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED});
}

void SetEpilogue(Problem* problem) {
  problem->a_pad = AnyOf({0, 0, 1, 9});
  problem->c_pad = AnyOf({0, 0, 1, 70});
  problem->bias = AnyOf({BiasKind::kNone, BiasKind::kS32});
  if (problem->c_type == INTACT_S32) return;
  problem->bias = AnyOf({BiasKind::kNone, BiasKind::kS32, BiasKind::kF32});
  problem->scale = AnyOf({ScaleKind::kTensor, ScaleKind::kChannel});
  problem->activation = AnyOf({INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP});
  if (problem->c_type != INTACT_F32) problem->zc = AnyOfType(problem->c_type);
  problem->residual = AnyOf({INTACT_TYPE_NONE, INTACT_TYPE_NONE, INTACT_U8, INTACT_S8, INTACT_F32});
  if (problem->residual == INTACT_TYPE_NONE) return;
  if (problem->residual != INTACT_F32) problem->zres = AnyOfType(problem->residual);
  problem->in_place = core::BytesOf(problem->residual) == core::BytesOf(problem->c_type) && AnyBool();
  if (!problem->in_place) problem->res_pad = AnyOf({0, 5});
}

// An extent around the blocks, or any extent.
int64_t AnyExtent(int64_t most) {
  constexpr std::array<int64_t, 12> kAroundBlocks = {1, 2, 7, 8, 15, 16, 17, 33, 48, 64, 65, 129};
  const int64_t extent = AnyBool() ? *rc::gen::elementOf(kAroundBlocks) : AnyOfRange(1, 150);
  return std::min(extent, most);
}

Problem AnyGemm(int64_t products) {
  Problem problem;
  problem.m = AnyBool() ? AnyExtent(products) : AnyOfRange(1, 450);
  problem.a_by_columns = AnyOf({false, false, true});
  problem.n = AnyExtent(products / problem.m);
  problem.k = AnyOfRange(1, std::min<int64_t>(products / problem.m / problem.n, 700));
  problem.runtime_b = AnyOf({false, false, true});
  return problem;
}

reference::Axis AnyAxis(int64_t most_input, bool transposed) {
  reference::Axis axis;
  axis.input = AnyOfRange(1, most_input);
  axis.kernel = AnyOf<int64_t>({1, 2, 3, 3, 5});
  axis.stride = AnyOf<int64_t>({1, 1, 1, 2, 3});
  axis.dilation = AnyOf<int64_t>({1, 1, 1, 1, 2, 9});
  axis.pad_begin = AnyOf<int64_t>({0, axis.kernel / 2, axis.kernel / 2, 3});
  axis.pad_end = AnyOf<int64_t>({0, axis.kernel / 2, axis.kernel / 2, 4});
  const int64_t span = axis.dilation * (axis.kernel - 1) + 1;
  axis.transposed = transposed;
  if (transposed) {
    axis.output_pad = AnyOfRange(0, std::max(axis.stride, axis.dilation) - 1);
    while (axis.Output() < 1) ++axis.input;
    return axis;
  }
  axis.input = std::max(axis.input, span - axis.pad_begin - axis.pad_end);  // so that there is an output
  return axis;
}

Problem AnyConv(int64_t products) {
  reference::ConvGeometry geometry;
  geometry.dims = AnyOf({1, 2, 2, 2, 3});
  constexpr std::array<int64_t, 3> kMostInput = {60, 14, 6};
  const bool transposed = AnyOf({0, 0, 0, 1}) != 0;
  for (size_t axis = 3 - static_cast<size_t>(geometry.dims); axis < 3; ++axis) {
    geometry.axes[axis] = AnyAxis(kMostInput[static_cast<size_t>(geometry.dims) - 1], transposed);
  }
  geometry.groups = AnyOf<int64_t>({1, 1, 1, 2, 4, 8, 16, AnyOfRange(2, 40)});
  const bool is_dense = geometry.groups == 1;
  geometry.input_channels = geometry.groups * (is_dense ? AnyExtent(80) : AnyOf<int64_t>({1, 1, 2, 4, 8, 5}));
  geometry.output_channels =
      geometry.groups * (is_dense ? AnyExtent(80) : AnyOf<int64_t>({1, 1, 2, 4, 8, 3}));
  geometry.batch = AnyOfRange(1, 3);
  // The number of channels is limited by time.
  const auto work = [&] {
    return geometry.OutputPixels() * geometry.Taps() * geometry.GroupInputs() * geometry.output_channels;
  };
  while (work() > products && geometry.batch > 1) --geometry.batch;
  for (int64_t* channels : {&geometry.input_channels, &geometry.output_channels}) {
    while (work() > products && *channels > geometry.groups) {
      *channels = std::max<int64_t>(*channels / geometry.groups / 2, 1) * geometry.groups;
    }
  }
  Problem problem;
  problem.conv = geometry;
  return problem;
}

// ----- their runs ------------------------------------------------------------------------------------------

// How to run a plan.
struct Manner {
  int64_t as_rows = 0;  // uses the engine for this number of rows; 0: for the actual number
  int32_t threads = 1;
  int parts = 0;  // parts that the caller runs one after another, in any order; 0: one run
  std::vector<int> order;
};

Manner AnyManner() {
  Manner manner;
  manner.as_rows = AnyOf<int64_t>({0, 0, 1, 1 << 20});
  if (AnyBool()) {
    manner.threads = AnyOf({1, 2, 3, 7});
    return manner;
  }
  manner.parts = static_cast<int>(AnyOfRange(1, 12));
  manner.order.resize(static_cast<size_t>(manner.parts));
  std::iota(manner.order.begin(), manner.order.end(), 0);
  std::swap(manner.order.front(), manner.order[static_cast<size_t>(AnyOfRange(0, manner.parts - 1))]);
  return manner;
}

// Why `output` differs from the model of its mode and ISA; "" if it does not.
template <class Operation>
std::string WhyWrong(const Operation& operation, const RunOptions& options,
                     const Result<std::vector<uint8_t>>& output) {
  if (!output) return output.error().message;
  const auto model = ExpectedModel(operation, options.isa);
  const ByteComparison bytes = CompareBytes(
      operation.c_type, reference::Outputs(operation, reference::Accumulators(operation, model)), *output);
  if (bytes.differing == 0) return {};
  return std::to_string(bytes.differing) + " of " + std::to_string(bytes.outputs) + " differ, first at " +
         std::to_string(bytes.first_differing);
}

// The B that a plan gets: none, if its runs get B.
const int8_t* PlanB(const reference::Gemm& gemm) { return gemm.has_runtime_b ? nullptr : gemm.b.data(); }
const int8_t* PlanB(const reference::Conv& conv) { return conv.b.data(); }

template <class Plan, class Args, class Operation>
std::string WhyWrong(const Operation& operation, RunOptions options, const Manner& manner) {
  options.threads = manner.threads;
  const auto desc = DescOf(operation, options);
  Result<std::unique_ptr<Plan>> plan = kernels::MakePlan(desc, desc.linear, PlanB(operation));
  if (!plan) return plan.error().message;
  (*plan)->RunAllAs(manner.as_rows);
  return WhyWrong(operation, options, RunGuarded(operation, options, [&](const Args& args) {
                    if (manner.parts == 0) return (*plan)->Run(args);
                    Error error;
                    for (const int part : manner.order) {
                      if (error.status == INTACT_OK) error = (*plan)->RunPart(args, part, manner.parts);
                    }
                    return error;
                  }));
}

// ----- the tests -------------------------------------------------------------------------------------------

class SmallCaches : public tests::OnEachIsa<intact_mode> {
 protected:
  // Emulation takes microseconds per instruction.
  static int64_t MostProducts() { return tests::EmulatedIsas::Has(ThisIsa()) ? 60'000 : 400'000; }

  static void Check(const Problem& shape) {
    Problem problem = shape;
    std::tie(problem.isa, problem.mode) = GetParam();
    SetTensors(&problem);
    SetEpilogue(&problem);
    const bool may_cross_taps =
        problem.mode == INTACT_SATURATING && problem.conv && !problem.conv->IsTransposed();
    if (may_cross_taps && AnyBool()) problem.pairing = INTACT_PAIRING_FLATTENED;
    const CacheSizes caches = AnyCaches();
    const Manner manner = AnyManner();
    RC_LOG() << problem.ToString() << "\nl1d_bytes=" << caches.l1d_bytes << " l2_bytes=" << caches.l2_bytes
             << " threads=" << manner.threads << " parts=" << manner.parts << " as_rows=" << manner.as_rows
             << "\n";
    if (const auto error = problem.Check()) RC_FAIL(error->message);
    const ScopedCaches scoped(caches);
    const RunOptions options = RunOptionsOf(problem);
    const std::string why =
        problem.conv
            ? WhyWrong<kernels::Convolution, intact_conv_args>(MaterializeConv(problem), options, manner)
            : WhyWrong<kernels::GemmPlan, intact_gemm_args>(MaterializeGemm(problem), options, manner);
    if (!why.empty()) RC_FAIL(why);
  }
};

TEST_P(SmallCaches, Gemm) {
  EXPECT_TRUE(rc::check([] { Check(AnyGemm(MostProducts())); }));
}

TEST_P(SmallCaches, Conv) {
  EXPECT_TRUE(rc::check([] { Check(AnyConv(MostProducts())); }));
}

std::string NameOf(const ::testing::TestParamInfo<SmallCaches::ParamType>& test) {
  const auto& [isa, mode] = test.param;
  return std::string(intact_isa_name(isa)) + "_" + std::string(ToString(mode));
}

INSTANTIATE_TEST_SUITE_P(All, SmallCaches,
                         ::testing::Combine(::testing::ValuesIn(core::kIsaLadder),
                                            ::testing::Values(INTACT_EXACT, INTACT_SATURATING)),
                         NameOf);

}  // namespace
}  // namespace intact::verify
