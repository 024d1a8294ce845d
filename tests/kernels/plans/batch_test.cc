// Rows with their own quantization, batches of items, and a transposed A: every ISA equals the reference,
// however threads and parts share a run. Every buffer lies between guards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/on_every_isa.h"
#include "verify/explain/audit.h"

namespace intact::tests {
namespace {

using verify::Problem;
using Bytes = std::vector<uint8_t>;

constexpr const char* kLines[] = {
    "gemm u8s8f32 m=67 n=33 k=130 batch=3 quant=dynamic_rows x=normal bias=f32 scale=channel apad=3 cpad=1",
    "gemm u8u8bf16 m=9 n=65 k=67 batch=4 itempad=5 quant=dynamic_tensor src=bf16 x=outlier zb=131",
    "gemm s8s8u8 m=5 n=17 k=64 batch=7 items=pointers quant=dynamic_rows x=nonfinite zc=9 res=s8",
    "gemm s8u8f32 m=31 n=40 k=66 batch=3 quant=rows zaper=row zb=9 zbper=channel scale=channel",
    "gemm u8s8s32 m=1 n=65 k=130 batch=19 items=pointers za=3 fill=student",
    "gemm u8s8f32 m=1 n=33 k=70 batch=19 itempad=7 quant=rows zaper=row res=s8",
    "gemm u8s8f32 m=1 n=65 k=70 batch=19 itempad=7 quant=dynamic_tensor x=normal",
    "gemm u8s8f32 m=300 n=3 k=16 batch=2 quant=dynamic_tensor x=outlier",
    "gemm s8s8f32 m=9 n=17 k=60 batch=3 quant=dynamic_tensor src=f16 x=normal zb=4",
    "gemm u8s8u8 m=20 n=33 k=64 batch=3 itempad=16 za=3 zc=7 res=u8 inplace=yes cpad=3",
    "gemm u8u8f32 m=20 n=33 k=64 batch=3 runtimeb=yes blayout=nk bpad=3 zb=9 zbper=item scale=item",
    "gemm s8s8s32 m=20 n=64 k=35 batch=5 items=pointers runtimeb=yes fill=bait",
    "gemm u8s8f32 m=9 n=24 k=64 batch=2 runtimeb=yes scale=item quant=dynamic_rows x=halves",
    "gemm s8u8s32 m=20 n=33 k=65 batch=3 runtimeb=yes zb=9 zbper=item_column",
    "gemm u8u8f32 m=31 n=50 k=66 batch=3 items=pointers runtimeb=yes zb=9 zbper=item_column "
    "scale=item_column bias=f32",
    "gemm s8s8u8 m=9 n=17 k=64 batch=4 runtimeb=yes blayout=nk zbper=item scale=item_column quant=rows "
    "zaper=row zc=3",
    "gemm u8u8bf16 m=5 n=40 k=67 batch=3 runtimeb=yes zb=3 zbper=item_column scale=item quant=dynamic_rows",
    "gemm u8s8s32 m=70 n=33 k=130 alayout=km za=3 fill=bait",
    "gemm s8s8u8 m=1 n=65 k=70 alayout=km apad=3 zc=9 res=s8",
    "gemm u8s8s32 m=1 n=33 k=70 batch=5 alayout=km itempad=3",
    "gemm s8s8f32 m=1 n=9 k=33 batch=4 alayout=km quant=dynamic_tensor x=normal",
    "gemm u8u8s32 m=1 n=19 k=33 batch=3 alayout=km items=pointers runtimeb=yes",
    "gemm s8u8s32 m=15 n=17 k=16 alayout=km zb=9 zbper=channel",
    "gemm u8s8s32 m=161 n=20 k=65 alayout=km apad=1 arange=127 fill=stray",
    "gemm u8s8u8 m=700 n=40 k=1000 alayout=km za=3 zc=7",
    "gemm u8u8f32 m=33 n=40 k=67 alayout=km quant=rows zaper=row zb=131 scale=channel",
    "gemm u8s8f32 m=67 n=33 k=130 alayout=km quant=dynamic_rows x=normal bias=f32",
    "gemm s8s8bf16 m=35 n=17 k=68 alayout=km apad=5 quant=dynamic_rows src=bf16 x=nonfinite",
    "gemm u8u8f16 m=9 n=65 k=67 batch=4 alayout=km itempad=5 quant=dynamic_tensor src=f16 x=outlier zb=131",
    "gemm u8s8f32 m=3 n=20 k=33 batch=3 alayout=km items=pointers quant=dynamic_tensor",
    "gemm s8s8s32 m=20 n=64 k=35 batch=3 alayout=km runtimeb=yes blayout=nk",
    // Few rows read B where it lies; some quads are cut; too many would be cut; B is packed in chunks.
    "gemm u8u8f32 m=1 n=129 k=131 batch=3 runtimeb=yes bpad=3 zb=9 zbper=item_column scale=item_column za=3",
    "gemm s8s8u8 m=3 n=70 k=300 batch=2 runtimeb=yes blayout=nk bpad=1 wmax=128 res=u8",
    "gemm u8s8s32 m=37 n=83 k=68 batch=3 runtimeb=yes za=3 fill=gauss",
    "gemm s8u8u8 m=37 n=83 k=70 batch=2 runtimeb=yes blayout=nk fill=extremes zb=131",
    "gemm u8s8s32 m=12 n=213 k=3001 runtimeb=yes za=3 fill=laplace",
    // Threads share the packed B.
    "gemm u8u8f32 m=37 n=50 k=6000 runtimeb=yes za=3 zb=9 zbper=item_column scale=item_column",
    "gemm s8s8s32 m=40 n=20 k=2100 batch=3 runtimeb=yes blayout=nk za=3",
    // Weights with one zero point.
    "gemm u8u8s32 m=35 n=33 k=66 batch=2 runtimeb=yes za=3 zb=131 zbper=tensor",
    "gemm u8u8u8 m=35 n=33 k=66 quant=rows zaper=row res=u8 scale=channel",
};

// Problems whose runs have a quantization of A, of all types, numbers and epilogues: rows of one matrix, and items of a batch.
std::vector<std::string> QuantizedLines() {
  constexpr const char* kShapes[] = {"m=1 n=1 k=1",      "m=1 n=40 k=67",   "m=5 n=17 k=64",
                                     "m=9 n=33 k=129",   "m=20 n=48 k=300", "m=40 n=65 k=96",
                                     "m=200 n=19 k=130", "m=700 n=24 k=36"};
  std::minstd_rand random(7);
  const auto pick = [&random](const auto& all) { return all[random() / 7 % std::size(all)]; };
  const auto maybe = [&](const char* words) { return pick(std::array<std::string, 2>{"", words}); };
  std::vector<std::string> lines;
  for (size_t i = 0; i < 160; ++i) {
    const std::string how = pick(std::array<std::string, 3>{"rows", "dynamic_rows", "dynamic_tensor"});
    const std::string_view a = core::NameOf(pick(std::array{INTACT_U8, INTACT_S8}));
    const std::string_view b = core::NameOf(pick(std::array{INTACT_U8, INTACT_S8}));
    const intact_type drawn = pick(core::kOutputTypes);
    const intact_type c = how != "rows" && drawn == INTACT_S32 ? INTACT_F32 : drawn;
    std::string line = fmt::format("gemm {}{}{} {} quant={} seed={}", a, b, core::NameOf(c),
                                   kShapes[i % std::size(kShapes)], how, i + 1);
    line += how == "rows" ? " zaper=row"
                          : fmt::format(" src={} x={}", core::NameOf(pick(core::kSourceTypes)),
                                        verify::ToString(pick(verify::AllNumbers())));
    line += maybe(" zb=5 zbper=channel");
    if (c != INTACT_S32) line += " scale=channel" + maybe(" bias=f32") + maybe(" res=s8");
    if (i % 4 == 3) line += " mode=saturating";
    if (i % 3 == 0)
      line += pick(std::array<std::string, 3>{" batch=2 itempad=5", " batch=3", " batch=7 items=pointers"});
    lines.push_back(std::move(line));
  }
  return lines;
}

class Items : public OnEachIsa<> {
 protected:
  // Expects that run(plan, args), an Error, computes what the reference computes, on this ISA.
  template <class Run>
  static void Expect(const std::string& line, const Run& run) {
    Problem problem = Parsed(line);
    problem.isa = ThisIsa();
    const reference::Gemm gemm = verify::MaterializeGemm(problem);
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    const Result<Gemm> plan = verify::CreatePlan(gemm, options);
    ASSERT_TRUE(plan) << plan.error().message;
    const Result<Bytes> output = verify::RunGuarded(
        gemm, options, [&](const intact_gemm_args& args) { return run(plan->handle(), args); });
    ASSERT_TRUE(output) << output.error().message;
    const reference::Model model = verify::ExpectedModel(gemm, problem.isa);
    EXPECT_EQ(*output, reference::Outputs(gemm, reference::Accumulators(gemm, model)));
  }

  static Error ErrorOf(intact_status status) { return {status, intact_last_error()}; }
};

// Expects the reference's bytes on this number of threads, and in this number of parts.
class Divided : public Items {
 protected:
  static void ExpectOnThreads(const std::string& line, int32_t threads) {
    SCOPED_TRACE(fmt::format("{} threads={}", line, threads));
    Expect(line, [=](const intact_gemm* plan, intact_gemm_args args) {
      args.threads = threads;
      return ErrorOf(intact_gemm_run(plan, &args));
    });
  }
  static void ExpectInParts(const std::string& line, int32_t parts) {
    SCOPED_TRACE(fmt::format("{} parts={}", line, parts));
    Expect(line, [=](const intact_gemm* plan, const intact_gemm_args& args) {
      Error error;
      for (int32_t part = parts - 1; part >= 0 && error.ok(); --part) {
        error = ErrorOf(intact_gemm_run_part(plan, &args, part, parts));
      }
      return error;
    });
  }
};

TEST_P(Divided, ByAnyNumberOfThreads) {
  for (const char* line : kLines) {
    for (const int32_t threads : {1, 2, 5}) ExpectOnThreads(line, threads);
  }
}

TEST_P(Divided, InAnyNumberOfParts) {
  for (const char* line : kLines) {
    for (const int32_t parts : {2, 3, 11}) ExpectInParts(line, parts);
  }
}

TEST_P(Divided, WithQuantizationsOfRuns) {
  for (const std::string& line : QuantizedLines()) {
    for (const int32_t threads : {1, 3}) ExpectOnThreads(line, threads);
    ExpectInParts(line, 5);
  }
}

TEST_P(Items, ByPointersReadNoStride) {
  Expect("gemm u8s8u8 m=67 n=65 k=130 batch=3 items=pointers runtimeb=yes res=s8",
         [](const intact_gemm* plan, intact_gemm_args args) {
           args.a_batch_stride = -1;
           args.c_batch_stride = std::numeric_limits<int64_t>::min();
           args.residual_batch_stride = std::numeric_limits<int64_t>::max();
           args.b_batch_stride = -7;
           return ErrorOf(intact_gemm_run(plan, &args));
         });
}

// Replaces an array by an address without memory: reading it faults.
template <class T>
void Hide(T** array) {
  if (*array != nullptr) *array = reinterpret_cast<T*>(uintptr_t{64});  // NOLINT(performance-no-int-to-ptr)
}

TEST_P(Items, AreDescribedWithoutTheirArrays) {
  for (const char* line : {"gemm u8u8f32 m=67 n=65 k=130 batch=3 items=pointers quant=rows zaper=row res=s8",
                           "gemm u8u8f32 m=67 n=65 k=130 batch=3 items=pointers runtimeb=yes zb=9 zbper=item "
                           "scale=item_column"}) {
    SCOPED_TRACE(line);
    Expect(line, [](const intact_gemm* plan, const intact_gemm_args& args) {
      intact_gemm_args asked = args;
      Hide(&asked.a_items);
      Hide(&asked.c_items);
      Hide(&asked.residual_items);
      Hide(&asked.b_items);
      Hide(&asked.a_zero_points);
      Hide(&asked.a_scales);
      Hide(&asked.b_scales);
      Hide(&asked.b_zero_points);
      intact_run_info info = INTACT_RUN_INFO_INIT;
      const Error error = ErrorOf(intact_gemm_prepare(plan, &asked, &info));
      return error.ok() ? ErrorOf(intact_gemm_run(plan, &args)) : error;
    });
  }
}

// Items that are slices of the rows of one k×m matrix. They are computed as one item.
TEST_P(Items, OfATransposedALieSideBySide) {
  constexpr int64_t kM = 24, kItems = 3;
  Problem problem = Parsed("gemm u8s8f32 m=72 n=48 k=201 alayout=km apad=2 quant=dynamic_tensor");
  problem.isa = ThisIsa();
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  const verify::RunOptions options = verify::RunOptionsOf(problem);
  const Result<Gemm> plan = verify::CreatePlan(gemm, options);
  ASSERT_TRUE(plan) << plan.error().message;
  const Result<Bytes> output = verify::RunGuarded(gemm, options, [&](intact_gemm_args args) {
    args.m = kM;
    args.batch = kItems;
    args.a_batch_stride = kM;
    return ErrorOf(intact_gemm_run(plan->handle(), &args));
  });
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(*output, reference::Outputs(gemm, reference::Accumulators(gemm, reference::Model::kExact)));
}

// Some rows are copied, not all of A.
TEST_P(Items, ScratchOfATransposedAIsThatOfABlock) {
  Problem problem = Parsed("gemm u8s8f32 m=48 n=40 k=500 quant=dynamic_rows");
  problem.isa = ThisIsa();
  const Result<Gemm> plan =
      verify::CreatePlan(verify::MaterializeGemm(problem), verify::RunOptionsOf(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  const auto scratch_of = [&](int64_t m, bool transposed) {
    const Result<intact_run_info> info = plan->Prepare(m, {.threads = 1, .a_transposed = transposed});
    EXPECT_TRUE(info) << info.error().message;
    return info ? info->scratch_bytes : 0;
  };
  EXPECT_GT(scratch_of(9, true), scratch_of(9, false));
  EXPECT_EQ(scratch_of(10000, true), scratch_of(100000, true));
  EXPECT_LT(scratch_of(100000, true), size_t{4} << 20);
  ExpectItsModel(problem);  // shows whether the ISA is emulated
}

INSTANTIATE_TEST_SUITE_P(All, Items, ::testing::Combine(::testing::ValuesIn(core::kIsaLadder)),
                         [](const auto& name) {
                           return std::string(intact_isa_name(std::get<0>(name.param)));
                         });

INSTANTIATE_TEST_SUITE_P(All, Divided, ::testing::Combine(::testing::ValuesIn(core::kIsaLadder)),
                         [](const auto& name) {
                           return std::string(intact_isa_name(std::get<0>(name.param)));
                         });

}  // namespace
}  // namespace intact::tests
