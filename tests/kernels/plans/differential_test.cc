// The library compared with the scalar reference: every ISA × mode × fill, on shapes around the register
// blocks. ISAs that the CPU lacks are emulated if possible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/codegen/microkernel.h"
#include "kernels/codegen/row_kernel.h"
#include "kernels/weights/cut_panels.h"
#include "kernels/weights/scheduled_vectors.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/on_every_isa.h"
#include "tests/support/require_isas.h"
#include "tests/support/tiles_target.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

void ExpectExactOnEveryIsa(const reference::Gemm& gemm) {
  const std::vector<uint8_t> expected =
      reference::Outputs(gemm, reference::Accumulators(gemm, reference::Model::kExact));
  RunOptions options;
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;  // Differential reports it
    options.isa = isa;
    const Result<std::vector<uint8_t>> actual = IntactTarget().Run(gemm, options);
    ASSERT_TRUE(actual) << actual.error().message;
    EXPECT_EQ(CompareBytes(gemm.c_type, expected, *actual).differing, 0) << intact_isa_name(isa);
  }
}

TEST(RequireIsas, NamesAreKnownAndAvailable) {
  const Result<std::vector<intact_isa>> required = tests::RequiredIsas();
  ASSERT_TRUE(required) << required.error().message;
  for (const intact_isa isa : *required) {
    EXPECT_EQ(intact_isa_available(isa), 1) << intact_isa_name(isa) << " is required by INTACT_REQUIRE_ISAS";
  }
}

TEST(RequireIsas, AreParsedStrictly) {
  EXPECT_TRUE(tests::ParseIsas("")->empty());
  const std::vector<intact_isa> two = {INTACT_ISA_AVX2, INTACT_ISA_AVX512_VNNI};
  EXPECT_EQ(*tests::ParseIsas("avx2,avx512_vnni"), two);
  EXPECT_EQ(*tests::ParseIsas(" avx2 , avx512_vnni\t"), two);
  EXPECT_EQ(*tests::ParseIsas("avx2,,avx512_vnni,"), two);
  for (const char* list : {"avx512vnni", "avx2 avx512", "AVX2", "avx2,vnni", "any"}) {
    EXPECT_FALSE(tests::ParseIsas(list)) << list;
  }
}

// ----- kernels in all signs --------------------------------------------------------------------------------

// Runs the kernel of `spec` on a tile. `rows`: A in the kernel's layout, `row_bytes` each. B: panels of `b`,
// or a strip of `windows`. `extra`: the extra quads of a panel that was cut.
std::vector<int32_t> RunTile(const kernels::MicrokernelSpec& spec, const uint8_t* rows, int64_t row_bytes,
                             const void* b, int64_t panel_bytes, const std::vector<int32_t>& compensation,
                             int64_t windows = 0, const kernels::ExtraQuads& extra = {},
                             const kernels::RowKernelSpec* row_kernel = nullptr) {
  const Result<kernels::MicrokernelFunction> kernel =
      row_kernel == nullptr ? kernels::GetMicrokernel(spec) : kernels::GetRowKernel(*row_kernel);
  if (!kernel) {
    ADD_FAILURE() << kernel.error().message;
    return {};
  }
  std::vector<int32_t> c(static_cast<size_t>(spec.mr * spec.nr()));
  std::vector<const uint8_t*> pointers(static_cast<size_t>(spec.mr));
  for (int m = 0; m < spec.mr; ++m) pointers[static_cast<size_t>(m)] = rows + m * row_bytes;
  const int64_t tap = 0;
  kernels::MicrokernelArgs args;
  args.rows = pointers.data();
  args.taps = &tap;
  args.taps_end = &tap + 1;
  args.tap_bytes = row_bytes;
  args.b = b;
  args.b_panel_stride_bytes = panel_bytes;
  args.windows = windows;
  if (extra.begins != nullptr) {
    args.extras = extra.offsets + extra.begins[0];
    args.extras_end = extra.offsets + extra.begins[1];
    args.extra_b = extra.quads;
  }
  args.c = c.data();
  args.c_stride_bytes = spec.nr() * 4;
  args.compensation = compensation.data();
  (*kernel)(&args);
  return c;
}

// Runs a kernel of the cut variant on a panel, after cutting it.
std::vector<int32_t> RunCut(const kernels::MicrokernelSpec& spec, int64_t depth,
                            const std::vector<uint8_t>& rows, std::vector<int8_t> panel,
                            const std::vector<int32_t>& compensation) {
  const kernels::PackedWeights sizes(depth, kernels::kPanelColumns);
  std::vector<int64_t> begins(2), offsets(static_cast<size_t>(sizes.quads()));
  std::vector<kernels::ExtraQuad> quads(static_cast<size_t>(sizes.quads()));
  const kernels::ExtraQuads extra = {begins.data(), offsets.data(), quads.data()};
  EXPECT_TRUE(kernels::CutPanels(sizes, 255, sizes.quads(), panel.data(), extra));
  return RunTile(spec, rows.data(), depth, panel.data(), 0, compensation, 0, extra);
}

// Runs the kernel of `block`. A's rows and the canonical panels are converted to its layouts.
std::vector<int32_t> RunBlock(const kernels::KernelBlock& block, int mr, int64_t depth,
                              const std::vector<uint8_t>& a, const std::vector<int8_t>& panels,
                              const std::vector<int32_t>& compensation) {
  kernels::MicrokernelSpec spec;
  spec.isa = block.isa;
  spec.dot = block.dot;
  spec.mr = mr;
  spec.vectors = block.vectors;
  const int64_t row_bytes = depth / kernels::kQuad * jit::ActivationQuadBytes(block.dot);
  std::vector<uint8_t> staged(static_cast<size_t>(mr * row_bytes));
  for (int m = 0; m < mr; ++m) {
    kernels::StageFor(block.dot, block.isa)(a.data() + m * depth, depth, 0, staged.data() + m * row_bytes);
  }
  if (block.packing == kernels::Packing::kCutPanels) return RunCut(spec, depth, staged, panels, compensation);
  kernels::PackedWeights weights(depth, std::max(spec.nr(), kernels::kPanelColumns));
  const int64_t panel_bytes = depth * kernels::kPanelColumns;
  std::vector<int8_t> padded(static_cast<size_t>(weights.bytes()));
  for (int64_t panel = 0; panel < weights.panels(); ++panel) {
    std::copy_n(panels.data() + panel * panel_bytes, panel_bytes,
                padded.data() + panel * weights.panel_stride_bytes());
  }
  weights.data = padded.data();
  if (block.packing == kernels::Packing::kWidePanels) {
    kernels::WidePanels wide;
    if (!wide.Widen(weights, depth)) return {};
    return RunTile(spec, staged.data(), row_bytes, wide.data(), wide.panel_stride_bytes(), compensation);
  }
  if (block.packing != kernels::Packing::kStrips) {
    return RunTile(spec, staged.data(), row_bytes, panels.data(), panel_bytes, compensation);
  }
  kernels::ScheduledVectors schedule;
  const kernels::ScheduleSpec how = kernels::ScheduledVectors::SpecFor(weights, spec.nr(), 255);
  if (!schedule.Build(weights, how).ok()) return {};
  spec.loop = kernels::StripLoop{.largest_group = kernels::MostInGroup(weights, how)};
  return RunTile(spec, staged.data(), row_bytes, schedule.Strip(0), 0, compensation, schedule.windows());
}

// Each available block of any height, whatever the cost model would choose.
template <class Test>
void ForEachBlock(const Test& test) {
  int tested = 0;
  for (const kernels::KernelBlock& block : kernels::kKernels) {
    if (intact_isa_available(static_cast<intact_isa>(block.isa)) == 0) continue;
    for (int mr = 1; mr <= block.mr; ++mr, ++tested) {
      SCOPED_TRACE(std::to_string(mr) + " rows, " + std::to_string(block.vectors) + " vectors, " +
                   std::string(jit::ToString(block.dot)) + ", " +
                   intact_isa_name(static_cast<int32_t>(block.isa)));
      test(block, mr, int64_t{block.vectors} * jit::VectorBytes(block.isa) / 4);
    }
  }
  EXPECT_GT(tested, 0);
}

constexpr int64_t kBlockDepth = 4 * 37;  // four groups of eight quads and a tail

int64_t PanelsOf(int64_t columns) { return kernels::CeilDivide(columns, kernels::kPanelColumns); }

// int16 sums are largest if all values have one sign.
TEST(Blocks, ComputeAtTheirLargestSums) {
  ForEachBlock([](const kernels::KernelBlock& block, int mr, int64_t nr) {
    for (const int weight : {-128, -64, 64, 127}) {
      if (block.dot == jit::DotKind::kMaddubs && std::abs(weight) > 64) continue;  // may saturate
      const std::vector<uint8_t> a(static_cast<size_t>(mr * kBlockDepth), 255);
      const std::vector<int8_t> b(static_cast<size_t>(PanelsOf(nr) * kBlockDepth * kernels::kPanelColumns),
                                  static_cast<int8_t>(weight));
      const std::vector<int32_t> c =
          RunBlock(block, mr, kBlockDepth, a, b, std::vector<int32_t>(static_cast<size_t>(nr), 7));
      ASSERT_FALSE(c.empty());
      EXPECT_THAT(c, testing::Each(static_cast<int32_t>(7 + 255 * kBlockDepth * weight))) << weight;
    }
  });
}

TEST(Blocks, MultiplyEachDepthOfEachRowByItsWeight) {
  std::mt19937 generator(1);
  ForEachBlock([&](const kernels::KernelBlock& block, int mr, int64_t nr) {
    const uint32_t most = block.dot == jit::DotKind::kMaddubs ? 64 : 128;  // more may saturate
    std::vector<uint8_t> a(static_cast<size_t>(mr * kBlockDepth));
    for (uint8_t& byte : a) byte = static_cast<uint8_t>(generator() >> 8);
    std::vector<int8_t> b(static_cast<size_t>(PanelsOf(nr) * kBlockDepth * kernels::kPanelColumns));
    for (int8_t& weight : b) {
      weight =
          static_cast<int8_t>(static_cast<int>((generator() >> 8) % (2 * most)) - static_cast<int>(most));
    }
    std::vector<int32_t> compensation(static_cast<size_t>(nr));
    for (int32_t& value : compensation) value = static_cast<int32_t>(generator() >> 16);
    const std::vector<int32_t> c = RunBlock(block, mr, kBlockDepth, a, b, compensation);
    ASSERT_EQ(std::ssize(c), mr * nr);
    for (int64_t i = 0; i < std::ssize(c); ++i) {
      const int64_t m = i / nr;
      const int64_t n = i % nr;
      const int64_t panel = n / kernels::kPanelColumns * kBlockDepth * kernels::kPanelColumns;
      int32_t expected = compensation[static_cast<size_t>(n)];
      for (int64_t k = 0; k < kBlockDepth; ++k) {
        const int64_t at =
            panel + kernels::OffsetInPanel(k, n % kernels::kPanelColumns, kernels::kPanelQuadBytes);
        expected += a[static_cast<size_t>(m * kBlockDepth + k)] * b[static_cast<size_t>(at)];
      }
      ASSERT_EQ(c[static_cast<size_t>(i)], expected) << m << ", " << n;
    }
  });
}

std::vector<intact_isa> IsasOfAllSigns() {
  std::vector<intact_isa> isas;
  for (const intact_isa isa : core::kIsaLadder) {
    const core::IsaTraits& traits = core::TraitsOf(static_cast<core::Isa>(isa));
    if (traits.dot_products == core::DotProducts::kAllSigns) isas.push_back(isa);
  }
  return isas;
}

class AllSigns : public ::testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(All, AllSigns, ::testing::ValuesIn(IsasOfAllSigns()),
                         [](const auto& test) { return std::string(intact_isa_name(test.param)); });

// Plans use only kernels for s8 weights, because packed weights are s8 (pack.h).
TEST_P(AllSigns, MultiplyInAllShapes) {
  const auto isa = static_cast<core::Isa>(GetParam());
  constexpr int64_t kDepth = 20, kColumns = kernels::kPanelColumns, kMostRows = 7;
  std::mt19937 generator(1);
  std::vector<uint8_t> a(kMostRows * kDepth), b(kDepth * kColumns);
  for (std::vector<uint8_t>* const operand : {&a, &b}) {
    constexpr uint8_t kExtremes[] = {0, 0x7f, 0x80, 0xff};
    for (uint8_t& byte : *operand) {
      const auto drawn = static_cast<uint32_t>(generator());
      byte = drawn % 2 == 0 ? kExtremes[drawn / 2 % 4] : static_cast<uint8_t>(drawn >> 8);
    }
  }
  std::vector<int32_t> compensation(kColumns);
  for (int32_t& value : compensation) value = static_cast<int32_t>(generator() % 2001) - 1000;
  const auto value = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int8_t>(byte) : int{byte};
  };
  for (const jit::DotSigns signs :
       {jit::DotSigns{false, false}, {false, true}, {true, false}, {true, true}}) {
    for (int mr = 1; mr <= kMostRows; ++mr) {
      kernels::MicrokernelSpec spec;
      spec.isa = isa;
      spec.dot = jit::DotKind::kVnni;
      spec.signs = signs;
      spec.mr = mr;
      spec.vectors = static_cast<int>(kColumns) * 4 / jit::VectorBytes(isa);
      SCOPED_TRACE(spec.Name());
      kernels::RowKernelSpec row;
      row.isa = isa;
      row.signs = signs;
      row.ahead = 128;
      const bool has_row_kernel = mr == 1 && jit::VectorBytes(isa) == kernels::kPanelQuadBytes;
      for (const kernels::RowKernelSpec* const kernel :
           {static_cast<kernels::RowKernelSpec*>(nullptr), &row}) {
        if (kernel != nullptr && !has_row_kernel) continue;
        const std::vector<int32_t> c =
            RunTile(spec, a.data(), kDepth, b.data(), std::ssize(b), compensation, 0, {}, kernel);
        ASSERT_EQ(std::ssize(c), mr * kColumns);
        for (int64_t i = 0; i < std::ssize(c); ++i) {
          const int64_t m = i / kColumns, n = i % kColumns;
          int32_t expected = compensation[static_cast<size_t>(n)];
          for (int64_t k = 0; k < kDepth; ++k) {
            expected += value(a[static_cast<size_t>(m * kDepth + k)], signs.a_signed) *
                        value(b[static_cast<size_t>(kernels::OffsetInPanel(k, n, kernels::kPanelQuadBytes))],
                              signs.b_signed);
          }
          ASSERT_EQ(c[static_cast<size_t>(i)], expected)
              << m << ", " << n << (kernel == nullptr ? "" : ", row kernel");
        }
      }
    }
  }
}

TEST_P(AllSigns, TakeSignedActivationsAsTheyAre) {
  const auto kernel = [](intact_type a_type, intact_type b_type) {
    GemmDesc desc = MakeGemmDesc();
    desc.n = 64;
    desc.k = 64;
    desc.linear.a_type = a_type;
    desc.linear.b_type = b_type;
    desc.linear.max_isa = GetParam();
    const std::vector<int8_t> b(64 * 64, 1);
    const Result<Gemm> gemm = Gemm::Create(desc, b.data());
    return gemm ? std::string(gemm->Info().kernel) : gemm.error().message;
  };
  const std::string end = "_vnni_" + core::CompactName(static_cast<core::Isa>(GetParam()));
  using testing::AllOf, testing::EndsWith, testing::StartsWith;
  EXPECT_THAT(kernel(INTACT_U8, INTACT_S8), AllOf(StartsWith("u8s8s32_gemm_"), EndsWith(end)));
  EXPECT_THAT(kernel(INTACT_S8, INTACT_S8), AllOf(StartsWith("s8s8s32_gemm_"), EndsWith(end)));
  EXPECT_THAT(kernel(INTACT_S8, INTACT_U8), AllOf(StartsWith("s8s8s32_"), EndsWith(end)));
}

// ----- the library -----------------------------------------------------------------------------------------

class Differential : public tests::OnEveryIsa {};

TEST_P(Differential, ShapesAroundTheBlocks) {
  Problem problem = OnThis("gemm u8s8s32 m=1 n=1 k=1 za=3");
  int number = 0;
  for (const int64_t m : {1, 2, 3, 4, 6, 7, 8, 9, 13, 17, 31, 33}) {
    for (const int64_t n : {1, 15, 16, 17, 24, 31, 33, 47, 48, 49, 64, 65, 97}) {
      for (const int64_t k : {1, 2, 3, 4, 5, 8, 63, 64, 65, 130}) {
        if (!IsInShare(number++)) continue;
        problem.m = m;
        problem.n = n;
        problem.k = k;
        ExpectItsModel(problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Differential, TypesAndEpilogues) {
  for (const char* line : {
           "gemm s8s8s32 m=9 n=50 k=67 za=-5 bias=s32",
           "gemm s8s8u8 m=9 n=50 k=67 za=127 zc=3 bias=f32 scale=channel act=relu",
           "gemm s8s8s8 m=9 n=50 k=67 za=-128 zc=-128 bias=s32",
           "gemm s8s8f32 m=9 n=50 k=67 act=clamp scale=channel",
           "gemm u8s8u8 m=9 n=50 k=67 za=255 zc=128 bias=s32 scale=channel act=clamp",
           "gemm u8s8u8 m=9 n=50 k=67 za=9 zc=255 bias=f32",
           "gemm u8s8s8 m=9 n=50 k=67 za=9 zc=127 wmax=128 scale=channel",
           "gemm u8s8f32 m=9 n=50 k=67 za=9 bias=f32 scale=channel act=relu",
           "gemm u8s8f32 m=9 n=50 k=67 bias=s32",
           "gemm u8u8s32 m=9 n=50 k=67 za=3 zb=128",
           "gemm u8u8s32 m=61 n=50 k=67 zb=255 zbper=channel wmax=128",
           "gemm s8u8s32 m=61 n=17 k=66 za=-5 bias=s32 wmax=128",
           "gemm s8s8s32 m=9 n=50 k=67 za=127 zb=-128 zbper=channel",
           "gemm u8u8u8 m=61 n=50 k=67 za=77 zb=131 zc=128 bias=f32 scale=channel act=relu",
           "gemm s8u8s8 m=9 n=50 k=67 za=-128 zb=9 zbper=channel bias=f32 scale=channel act=clamp",
           "gemm u8s8f32 m=61 n=50 k=67 za=9 zb=7 bias=f32 scale=channel",
           "gemm u8s8u8 m=9 n=50 k=67 za=9 zc=128 act=relu res=u8 zres=7",
           "gemm s8s8s8 m=61 n=50 k=67 za=-5 zc=3 bias=f32 scale=channel res=s8 zres=-128 inplace=yes cpad=3",
           "gemm u8u8f32 m=61 n=33 k=67 zb=7 zbper=channel bias=f32 act=clamp res=f32 respad=5",
           "gemm u8s8u8 m=9 n=50 k=67 zb=3 zc=9 bias=f32 act=clamp res=f32",
           "gemm s8u8s8 m=33 n=64 k=64 zb=9 scale=channel res=u8 zres=255 inplace=yes threads=2",
           "gemm s8s8f32 m=9 n=65 k=64 bias=s32 res=s8 zres=127",
           "gemm u8s8f32 m=61 n=50 k=67 act=relu res=f32 inplace=yes cpad=1 threads=3",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(Differential, StridesAndThreads) {
  for (const char* line : {
           "gemm u8s8s32 m=61 n=50 k=67 apad=1 cpad=3 threads=2",
           "gemm u8s8u8 m=61 n=50 k=67 apad=64 cpad=1 threads=3 scale=channel",
           "gemm s8s8f32 m=130 n=33 k=64 cpad=7 threads=0",
           "gemm u8s8s8 m=7 n=200 k=256 apad=5 threads=4",
           "gemm s8u8s32 m=61 n=50 k=67 zb=7 zbper=channel apad=1 cpad=3 threads=3",
           "gemm u8u8f32 m=130 n=33 k=64 zb=1 apad=9 threads=2",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Values that no fill makes: clamps without an end, or at a zero of either sign, and scales at float32's
// limits.
TEST(Epilogue, ExtremeClampsAndScales) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::pair<float, float> kClamps[] = {
      {-kInfinity, kInfinity}, {-kInfinity, 3.0f},      {-3.0f, kInfinity},  {-0.0f, 0.0f},
      {0.0f, kInfinity},       {-0.0f, kInfinity},      {-kInfinity, -0.0f}, {-kInfinity, 0.0f},
      {kInfinity, kInfinity},  {-kInfinity, -kInfinity}};
  constexpr float kScales[] = {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                               0.01f, 1e30f, std::numeric_limits<float>::max()};
  for (const char* line : {"gemm u8s8f32 m=9 n=35 k=6 za=128", "gemm u8s8u8 m=9 n=35 k=6 za=128 zc=7",
                           "gemm s8s8s8 m=9 n=35 k=6 bias=f32", "gemm s8s8f32 m=33 n=18 k=6 bias=f32"}) {
    for (const auto& [low, high] : kClamps) {
      for (const float scale : kScales) {
        SCOPED_TRACE(testing::Message() << line << " clamp " << low << " to " << high << " scale " << scale);
        reference::Gemm gemm = MaterializeGemm(tests::Parsed(line));
        for (int64_t n = 0; n < gemm.n; n += 5) {  // accumulators of zero
          for (int64_t k = 0; k < gemm.k; ++k) gemm.b[static_cast<size_t>(k * gemm.n + n)] = 0;
        }
        gemm.post_ops.Add(core::Clamp{low, high});
        gemm.scales = {scale};
        ExpectExactOnEveryIsa(gemm);
      }
    }
  }
}

// Values that no fill makes: residuals beyond float32's range, NaNs, and infinities that cancel.
TEST(Epilogue, ExtremeResiduals) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kValues[] = {
      std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, kLargest, -kLargest, 0.0f, -0.0f,
      std::numeric_limits<float>::denorm_min()};
  for (const char* line :
       {"gemm u8s8f32 m=9 n=35 k=6 za=128 res=f32", "gemm u8s8u8 m=9 n=35 k=6 zc=7 res=f32",
        "gemm s8s8s8 m=33 n=35 k=6 zc=-9 bias=f32 res=f32",
        "gemm u8s8f32 m=33 n=18 k=6 za=128 bias=f32 res=s8 zres=1"}) {
    for (const auto activation : {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP}) {
      for (const float scale : {0.01f, kLargest}) {
        for (const float residual_scale : {1.0f, std::numeric_limits<float>::denorm_min(), kLargest}) {
          SCOPED_TRACE(testing::Message() << line << " activation " << activation << " scale " << scale
                                          << " residual_scale " << residual_scale);
          reference::Gemm gemm = MaterializeGemm(tests::Parsed(line));
          for (size_t i = 0; gemm.residual_type() == INTACT_F32 && i < gemm.residual.size() / 4; ++i) {
            std::memcpy(&gemm.residual[4 * i], &kValues[i % std::size(kValues)], 4);
          }
          if (activation == INTACT_ACTIVATION_RELU) gemm.post_ops.Add(core::Relu{});
          if (activation == INTACT_ACTIVATION_CLAMP) gemm.post_ops.Add(core::Clamp{-3.5f, 9.5f});
          gemm.scales = {scale};
          gemm.post_ops.Find<core::AddResidual>()->scale = residual_scale;
          ExpectExactOnEveryIsa(gemm);
        }
      }
    }
  }
}

INTACT_INSTANTIATE_ON_EVERY_ISA(Differential);

}  // namespace
}  // namespace intact::verify
