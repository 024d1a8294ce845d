// Choosing kernels by measurement: any choice gives the same bytes, a wrong choice of the cost model is
// corrected, and choices are saved with the CPU on which they were measured.
#include <cpuid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "jit/isa.h"
#include "kernels/api/create.h"
#include "kernels/weights/pack_file.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "tests/support/conv_layers.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/pack_image.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"

namespace intact::tests {
namespace {

using kernels::Convolution;
using kernels::GemmPlan;
using kernels::TunedChoices;
using testing::Contains;
using testing::HasSubstr;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

constexpr std::chrono::milliseconds kNoBudget(0);  // four runs of each

class Tune : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  void Use(const char* line) {
    verify::Problem problem = Parsed(line);
    problem.isa = GetParam();
    gemm_ = verify::MaterializeGemm(problem);
    const GemmDesc desc = verify::DescOf(gemm_, verify::RunOptionsOf(problem));
    auto plan = kernels::MakePlan(desc, desc.linear, gemm_.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    plan_ = std::move(*plan);
    expected_ = reference::Outputs(gemm_, reference::Accumulators(gemm_, reference::Model::kExact));
  }

  // The bytes of the first `m` rows.
  std::vector<uint8_t> Run(const GemmPlan& plan, int64_t m, int threads = 2) const {
    std::vector<uint8_t> c(static_cast<size_t>(m * gemm_.n * core::BytesOf(gemm_.c_type)));
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.a = gemm_.a.data();
    args.c = c.data();
    if (gemm_.HasResidual()) args.residual = gemm_.residual.data();
    args.threads = threads;
    EXPECT_EQ(plan.Run(args).status, INTACT_OK);
    return c;
  }
  std::vector<uint8_t> ExpectedRows(int64_t m) const {
    const auto row_bytes = static_cast<int64_t>(expected_.size()) / gemm_.m;
    return {expected_.begin(), expected_.begin() + m * row_bytes};
  }

  reference::Gemm gemm_;
  std::unique_ptr<GemmPlan> plan_;
  std::vector<uint8_t> expected_;
};

TEST_P(Tune, EveryCandidateGivesTheSameBytes) {
  for (const char* const line : {"gemm u8s8s32 m=61 n=85 k=137 za=3 fill=uniform",
                                 "gemm u8s8s32 m=61 n=24 k=4111 fill=laplace",  // a strip has three windows
                                 "gemm u8s8s32 m=61 n=40 k=64 arange=127 fill=stray",
                                 "gemm s8u8u8 m=61 n=33 k=300 za=-7 zb=17 zc=128 fill=laplace scale=channel "
                                 "bias=f32 act=relu res=s8 zres=-9"}) {
    SCOPED_TRACE(line);
    Use(line);
    const auto candidates = plan_->CandidateNames();
    ASSERT_TRUE(candidates);
    for (const int64_t m : {1, 2, 7, 61}) {
      const std::string untuned = plan_->KernelNameFor(m);
      const Result<kernels::Tuned> tuned = plan_->Tune(m, kNoBudget);
      ASSERT_TRUE(tuned) << tuned.error().message;
      EXPECT_EQ(tuned->model_kernel, untuned);
      EXPECT_EQ(static_cast<size_t>(tuned->candidates), candidates->size());
      EXPECT_THAT(*candidates, Contains(tuned->kernel));
      EXPECT_GT(tuned->microseconds, 0);
      EXPECT_EQ(tuned->microseconds == tuned->model_microseconds, tuned->kernel == untuned);
      EXPECT_EQ(plan_->KernelNameFor(m), tuned->kernel);
      EXPECT_EQ(Run(*plan_, m), ExpectedRows(m)) << tuned->kernel;
    }
    // Each candidate, also if another was chosen before.
    for (const std::string& kernel : *candidates) {
      plan_->Restore({jit::HostCpu().ToString(), {{61, kernel}}});
      EXPECT_EQ(plan_->KernelNameFor(61), kernel);
      EXPECT_EQ(Run(*plan_, 61), ExpectedRows(61)) << kernel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tune, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

class TuneHere : public Tune {};

// For many rows, the kernel for one row takes several times as long.
TEST_P(TuneHere, CorrectsAWrongChoiceOfTheModel) {
  Use("gemm u8s8s32 m=240 n=256 k=768 fill=laplace");
  plan_->RunAllAs(1);
  const std::string wrong = plan_->KernelNameFor(240);
  const Result<kernels::Tuned> tuned = plan_->Tune(240, std::chrono::milliseconds(200));
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_EQ(tuned->model_kernel, wrong);
  EXPECT_NE(tuned->kernel, wrong);
  EXPECT_EQ(plan_->KernelNameFor(240), tuned->kernel);
  EXPECT_EQ(plan_->KernelNameFor(239), wrong) << "chosen for other rows too";
  EXPECT_EQ(Run(*plan_, 240), expected_);
}

// Items with adjacent rows are one item. The number of all rows decides.
TEST_P(TuneHere, JoinedItemsRunAsTheirRows) {
  Use("gemm u8s8s32 m=240 n=256 k=768 fill=laplace");
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 1;
  args.batch = 240;
  EXPECT_EQ(plan_->KernelNameFor(args), plan_->KernelNameFor(240));
  EXPECT_NE(plan_->KernelNameFor(args), plan_->KernelNameFor(1));
}

TEST_P(TuneHere, ChoicesAreSavedWithTheirCpu) {
  Use("gemm u8s8s32 m=40 n=85 k=137 fill=laplace");
  const std::string cpu = jit::HostCpu().ToString();
  const auto load = [&](const TunedChoices& tuned) {
    const auto image = kernels::WritePackImage(plan_->weights().problem(), std::nullopt,
                                               **plan_->weights().Panels(), 0, tuned);
    const auto held = std::make_shared<std::vector<uint8_t>>(image);
    auto loaded = kernels::LoadGemm(held->data(), held->size(), GetParam(), held);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  };
  const auto candidates = plan_->CandidateNames();
  ASSERT_TRUE(candidates);
  // A kernel that the model would not choose, if there is one.
  const std::string chosen = plan_->KernelNameFor(40);
  const auto other = std::find_if(candidates->begin(), candidates->end(),
                                  [&](const std::string& name) { return name != chosen; });
  if (other == candidates->end()) GTEST_SKIP() << "there is one kernel alone";
  plan_->Restore({cpu, {{5, *other}, {40, *other}}});
  ASSERT_EQ(plan_->tuned().choices.size(), 2u);
  const auto same = load(plan_->tuned());
  EXPECT_EQ(same->KernelNameFor(40), *other);
  EXPECT_EQ(same->KernelNameFor(5), *other);
  EXPECT_EQ(same->tuned().choices.size(), 2u);
  EXPECT_EQ(Run(*same, 40), expected_);

  EXPECT_EQ(load({"GenuineElsewhere family 6 model 1", {{40, *other}}})->KernelNameFor(40), chosen);
  EXPECT_EQ(load({cpu, {{40, "a kernel that went"}}})->KernelNameFor(40), chosen);
}

TEST_P(TuneHere, FilesWithChoicesThatMakeNoSenseAreRefused) {
  Use("gemm u8s8s32 m=1 n=3 k=5");
  const std::string cpu = jit::HostCpu().ToString();
  for (const TunedChoices& tuned :
       {TunedChoices{cpu, {{0, "a"}}}, TunedChoices{cpu, {{5, "a"}, {5, "a"}}},
        TunedChoices{cpu, {{7, "a"}, {5, "a"}}}, TunedChoices{cpu, {{int64_t{1} << 31, "a"}}},
        TunedChoices{cpu, {{1, std::string("a\0b", 3)}}}, TunedChoices{std::string("a\0b", 3), {{1, "a"}}}}) {
    const auto image = kernels::WritePackImage(plan_->weights().problem(), std::nullopt,
                                               **plan_->weights().Panels(), 0, tuned);
    const auto loaded = kernels::LoadGemm(image.data(), image.size(), GetParam(), nullptr);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("a tuned choice makes no sense"));
  }
}

INSTANTIATE_TEST_SUITE_P(Avx2, TuneHere, testing::Values(INTACT_ISA_AVX2));

// ----- convolutions ----------------------------------------------------------------------------------------

using ConvChoices = std::vector<TunedChoices::ConvChoice>;

class TuneConv : public testing::TestWithParam<std::tuple<intact_isa, ConvLayer>> {
 protected:
  static intact_isa ThisIsa() { return std::get<0>(GetParam()); }

  void SetUp() override {
    if (intact_isa_available(ThisIsa()) == 0) INTACT_SKIP_ISA(intact_isa_name(ThisIsa()));
  }

  void Use(const char* line, bool is_open = false) {
    problem_ = Parsed(line);
    problem_.isa = ThisIsa();
    conv_ = verify::MaterializeConv(problem_);
    const Extents extents = InputOf(conv_.geometry);
    input_ = {};
    if (is_open) std::ranges::copy(extents, input_.begin());
    const ConvDesc desc =
        OpenDescOf(conv_, Options(), is_open ? OpenDimensions(conv_.geometry.dims).front() : 0);
    auto plan = kernels::MakePlan(desc, desc.linear, conv_.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    plan_ = std::move(*plan);
    expected_ = ExpectedOutput(conv_, Options());
  }
  verify::RunOptions Options() const { return verify::RunOptionsOf(problem_); }

  void ExpectRight(const Convolution& plan) const {
    const auto output = verify::RunGuarded(conv_, Options(), [&](intact_conv_args args) {
      std::ranges::copy(input_, args.input);
      args.threads = 2;
      return plan.Run(args);
    });
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_TRUE(*output == expected_);
  }
  ConvChoices Candidates() const {
    const auto candidates = plan_->ListCandidates(input_.data());
    EXPECT_TRUE(candidates) << candidates.error().message;
    return candidates ? *candidates : ConvChoices();
  }
  static std::string NameOf(const TunedChoices::ConvChoice& choice) {
    return choice.variant + ": " + choice.kernel;
  }
  // The kernel of the first phase, if phases are tuned.
  std::string Chosen() const {
    const TunedChoices tuned = plan_->tuned();
    return tuned.conv_choices.empty() ? "" : NameOf(tuned.conv_choices.front());
  }
  std::unique_ptr<Convolution> Reloaded(const TunedChoices& tuned) const {
    plan_->Restore(tuned);
    const auto image = kernels::ImageOf(*plan_);
    EXPECT_TRUE(image);
    auto loaded = kernels::LoadConvolution(image->data(), image->size(), ThisIsa(), nullptr);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  }

  verify::Problem problem_;
  reference::Conv conv_;
  std::array<int64_t, INTACT_MAX_SPATIAL> input_ = {};
  std::unique_ptr<Convolution> plan_;
  std::vector<uint8_t> expected_;
};

TEST_P(TuneConv, EveryCandidateGivesTheSameBytes) {
  for (const bool is_open : {false, true}) {
    SCOPED_TRACE(is_open);
    Use(std::get<1>(GetParam()).line, is_open);
    ExpectRight(*plan_);
    const int64_t bytes = plan_->packed_bytes();
    const ConvChoices candidates = Candidates();
    ASSERT_FALSE(candidates.empty());
    EXPECT_EQ(plan_->packed_bytes(), bytes) << "panels that candidates read are kept";
    for (const TunedChoices::ConvChoice& candidate : candidates) {
      SCOPED_TRACE(NameOf(candidate));
      const TunedChoices forced = {jit::HostCpu().ToString(), {}, {candidate}};
      plan_->Restore(forced);
      ASSERT_EQ(plan_->tuned().conv_choices.size(), 1u);
      EXPECT_EQ(Chosen(), NameOf(candidate));
      ExpectRight(*plan_);
    }
    EXPECT_EQ(Candidates().size(), candidates.size()) << "what was chosen changes what may be";
  }
}

TEST_P(TuneConv, WhatIsChosenGivesTheSameBytes) {
  if (EmulatedIsas::Has(ThisIsa())) GTEST_SKIP() << "emulated: its runs take long, and times tell nothing";
  for (const bool is_open : {false, true}) {
    SCOPED_TRACE(is_open);
    Use(std::get<1>(GetParam()).line, is_open);
    const ConvChoices candidates = Candidates();
    const Result<kernels::Tuned> tuned = plan_->Tune(input_.data(), kNoBudget);
    ASSERT_TRUE(tuned) << tuned.error().message;
    EXPECT_EQ(static_cast<size_t>(tuned->candidates), candidates.size());
    // A transposed convolution reports only the kernel of its longest phase.
    if (!conv_.geometry.IsTransposed()) {
      EXPECT_EQ(tuned->microseconds == tuned->model_microseconds, tuned->kernel == tuned->model_kernel);
    }
    ConvChoices chosen = plan_->tuned().conv_choices;
    EXPECT_FALSE(chosen.empty());
    for (const TunedChoices::ConvChoice& choice : chosen) {
      const auto is_same = [&](const TunedChoices::ConvChoice& candidate) {
        return NameOf(candidate) == NameOf(choice) && candidate.phase == choice.phase;
      };
      EXPECT_TRUE(std::ranges::any_of(candidates, is_same)) << NameOf(choice);
    }
    ExpectRight(*plan_);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TuneConv, testing::Combine(testing::ValuesIn(core::kIsaLadder), testing::ValuesIn(kConvLayers)),
    [](const auto& test) {
      return std::string(intact_isa_name(std::get<0>(test.param))) + "_" + std::get<1>(test.param).name;
    });

// Narrow kernels of several taps: threads divide an output line, and a line has rows behind its whole tiles.
INSTANTIATE_TEST_SUITE_P(
    OfFewColumns, TuneConv,
    testing::Combine(
        testing::Values(INTACT_ISA_AVX_VNNI, INTACT_ISA_AVX512_VNNI),
        testing::Values(ConvLayer{"FewChannels", "conv s8s8u8 in=3x21 c=32 o=7 kernel=3x3 pad=1x1 za=-7"},
                        ConvLayer{"AVectorOfChannels",
                                  "conv u8s8s32 in=3x21 c=20 o=16 kernel=3x3 pad=1x1 za=5 zb=3"})),
    [](const auto& test) {
      return std::string(intact_isa_name(std::get<0>(test.param))) + "_" + std::get<1>(test.param).name;
    });

class TuneConvHere : public TuneConv {};

// With open extents, a plan also has the kernel for one row, which takes far longer for many rows.
TEST_P(TuneConvHere, CorrectsAWrongChoiceOfTheModel) {
  Use("conv u8s8s32 in=20x20 c=64 o=128 kernel=3x3 pad=1x1 fill=laplace", true);
  plan_->RunAllAs(1);
  const Result<kernels::Tuned> tuned = plan_->Tune(input_.data(), std::chrono::milliseconds(300));
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_NE(tuned->kernel, tuned->model_kernel);
  EXPECT_EQ(tuned->kernel, Chosen());
  ExpectRight(*plan_);
}

TEST_P(TuneConvHere, ChoicesAreSavedWithTheirCpu) {
  const std::string cpu = jit::HostCpu().ToString();
  for (const bool is_open : {false, true}) {
    for (const char* const line : {"conv u8s8s32 in=9x11 c=33 o=20 kernel=1x1 za=5 batch=2",
                                   "conv u8s8s32 in=9x11 c=32 o=32 groups=8 kernel=3x3 pad=1x1 za=3"}) {
      SCOPED_TRACE(line);
      Use(line, is_open);
      const std::string model = plan_->kernel_name();
      const ConvChoices candidates = Candidates();
      ASSERT_GT(candidates.size(), 1u);
      for (const TunedChoices::ConvChoice& candidate : candidates) {
        const auto loaded = Reloaded({cpu, {}, {candidate}});
        ASSERT_EQ(loaded->tuned().conv_choices.size(), 1u);
        EXPECT_EQ(NameOf(loaded->tuned().conv_choices.front()), NameOf(candidate));
        EXPECT_EQ(loaded->tuned().conv_choices.front().input, candidate.input);
        ExpectRight(*loaded);
      }
      // Choices for another CPU, another input or unknown kernels are skipped.
      Use(line, is_open);
      TunedChoices::ConvChoice other = candidates.back();
      for (const TunedChoices& tuned :
           {TunedChoices{"GenuineElsewhere family 6 model 1", {}, {other}},
            TunedChoices{cpu, {}, {{other.input, 0, "a variant that went", other.kernel}}},
            TunedChoices{cpu, {}, {{other.input, 0, other.variant, "a kernel that went"}}},
            TunedChoices{cpu, {}, {{other.input, 7, other.variant, other.kernel}}},
            TunedChoices{cpu, {}, {{{2, 9, 11}, 0, other.variant, other.kernel}}}}) {
        const auto image = kernels::ImageOf(*Reloaded(tuned));
        ASSERT_TRUE(image);
        EXPECT_TRUE(plan_->tuned().conv_choices.empty());
        EXPECT_EQ(plan_->kernel_name(), model);
        EXPECT_TRUE(WithoutSchedules(*image) == WithoutSchedules(*kernels::ImageOf(*plan_)));
        ExpectRight(*plan_);
      }
    }
  }
}

TEST_P(TuneConvHere, FilesWithChoicesThatMakeNoSenseAreRefused) {
  Use("conv u8s8s32 in=5x6 c=3 o=5 kernel=3x3");
  const auto image_with = [&](const TunedChoices& tuned) {
    const int64_t k = 27;
    std::vector<int8_t> weights(static_cast<size_t>(k * 5));
    const auto columns = plan_->ColumnsAt(3);
    EXPECT_TRUE(columns);
    for (int64_t n = 0; n < 5; ++n) (*columns)(n, &weights[static_cast<size_t>(n * k)]);
    kernels::PackedWeights packed;
    EXPECT_TRUE(kernels::PackWeights({weights.data(), k, 5, 1, k, 0}, &packed));
    return kernels::WritePackImage(plan_->problem(), kernels::DescOf(plan_->geometry()), packed, 0, tuned);
  };
  const std::string cpu = jit::HostCpu().ToString();
  const TunedChoices::ConvChoice sound = {{1, 5, 6}, 0, "band", "a"};
  const auto with = [&](const auto& change) {
    TunedChoices::ConvChoice choice = sound;
    change(&choice);
    return TunedChoices{cpu, {}, {choice}};
  };
  const auto load = [&](const TunedChoices& tuned) {
    const auto image = image_with(tuned);
    return kernels::LoadConvolution(image.data(), image.size(), ThisIsa(), nullptr);
  };
  EXPECT_TRUE(load({cpu, {}, {sound}}));
  for (const TunedChoices& tuned :
       {with([](auto* choice) { choice->input[2] = 0; }), with([](auto* choice) { choice->input[0] = -1; }),
        with([](auto* choice) { choice->input[1] = int64_t{1} << 31; }),
        with([](auto* choice) { choice->phase = -1; }),
        with([](auto* choice) { choice->variant = std::string("a\0b", 3); }),
        with([](auto* choice) { choice->kernel = std::string("a\0b", 3); }),
        TunedChoices{cpu, {}, {sound, sound}}, TunedChoices{std::string("a\0b", 3), {}, {sound}}}) {
    const auto loaded = load(tuned);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("a tuned choice makes no sense"));
  }
}

// A choice holds only for the extents of its input. New plans use it again.
TEST_P(TuneConvHere, ChoicesHoldForTheirExtents) {
  Use("conv u8s8s32 in=9x11 c=33 o=20 kernel=1x1 za=5", true);
  const TunedChoices::ConvChoice candidate = Candidates().back();
  plan_->Restore({jit::HostCpu().ToString(), {}, {candidate}});
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = 1;
  for (int64_t width = 1; width < 80; ++width) {
    args.input[0] = 9;
    args.input[1] = width;
    intact_run_info info = INTACT_RUN_INFO_INIT;
    ASSERT_TRUE(plan_->Prepare(args, &info).ok());
  }
  EXPECT_EQ(Chosen(), NameOf(candidate));
  ExpectRight(*plan_);
  plan_->Restore({jit::HostCpu().ToString(), {}, {{{1, 3, 4}, 0, candidate.variant, candidate.kernel}}});
  ASSERT_EQ(plan_->tuned().conv_choices.size(), 2u);
  EXPECT_EQ(plan_->tuned().conv_choices.front().input, (std::array<int64_t, 3>{1, 3, 4})) << "by extents";
}

INSTANTIATE_TEST_SUITE_P(Avx2, TuneConvHere,
                         testing::Combine(testing::Values(INTACT_ISA_AVX2), testing::Values(kConvLayers[0])),
                         [](const auto&) { return std::string("All"); });

// The key of measured constants. It is compared with CPUID, not with a library's interpretation.
TEST(CpuKind, KnowsAmd) {
  std::array<uint32_t, 4> words = {};
  ASSERT_NE(__get_cpuid(0, words.data(), &words[1], &words[3], &words[2]), 0);
  std::array<char, 12> vendor = {};
  std::memcpy(vendor.data(), &words[1], vendor.size());
  EXPECT_EQ(jit::HostCpu().vendor == "AMD", std::string_view(vendor.data(), vendor.size()) == "AuthenticAMD");
}

TEST(TuneArguments, OfConvolutionsAreChecked) {
  const auto create = [](const char* line, unsigned open) {
    const verify::Problem problem = Parsed(line);
    const reference::Conv conv = verify::MaterializeConv(problem);
    return Conv::Create(OpenDescOf(conv, verify::RunOptionsOf(problem), open), conv.b.data());
  };
  Result<Conv> fixed = create("conv u8s8s32 in=4x5 c=3 o=2 kernel=3x3", 0);
  Result<Conv> open = create("conv u8s8s32 in=4x5 c=3 o=2 kernel=3x3", 3);
  ASSERT_TRUE(fixed && open);
  const auto expect = [](const Result<intact_tune_info>& tuned, const char* words) {
    ASSERT_FALSE(tuned);
    EXPECT_EQ(tuned.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(tuned.error().message, HasSubstr(words));
  };
  expect(fixed->Tune({7, 5}), "input[0] is 7; expected the descriptor's 4");
  expect(fixed->Tune({}, -1), "milliseconds is -1");
  expect(fixed->Tune({}, std::nan("")), "milliseconds is nan");
  expect(open->Tune({}), "input[0] is 0");
  expect(open->Tune({2, 5}), "kernel[0] is 3 and spans 3");
  EXPECT_EQ(intact_conv_tune(nullptr, nullptr, 1, nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("intact_conv_tune: conv is NULL"));
  const Result<intact_tune_info> tuned = fixed->Tune({}, 0);
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_GT(tuned->candidates, 0);
  EXPECT_GT(tuned->model_microseconds, 0);
  EXPECT_THAT(tuned->kernel, ::testing::ContainsRegex("^band.*: u8s8"));  // time decides which kernel
  EXPECT_THAT(tuned->kernel, HasSubstr(fixed->Info().kernel));
  EXPECT_TRUE(open->Tune({6, 7}, 0));
}

TEST(TuneArguments, AreChecked) {
  const verify::Problem problem = Parsed("gemm u8s8s32 m=4 n=3 k=5");
  const Result<Plan> plan = CreatePlan(problem, verify::MaterializeGemm(problem));
  ASSERT_TRUE(plan);
  const auto expect = [](intact_status status, const char* words) {
    EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(words));
  };
  intact_gemm* const gemm = plan->get();
  intact_tune_info info = INTACT_TUNE_INFO_INIT;
  expect(intact_gemm_tune(nullptr, 1, 1, &info), "intact_gemm_tune: gemm is NULL");
  expect(intact_gemm_tune(gemm, 0, 1, &info), "m is 0; expected 1 to 2147483647");
  expect(intact_gemm_tune(gemm, int64_t{1} << 31, 1, &info), "m is 2147483648");
  expect(intact_gemm_tune(gemm, 1, -1, &info), "milliseconds is -1");
  expect(intact_gemm_tune(gemm, 1, std::nan(""), &info), "milliseconds is nan");
  expect(intact_gemm_tune(gemm, 1, std::numeric_limits<double>::infinity(), &info), "milliseconds is inf");
  info.struct_size = 1;
  expect(intact_gemm_tune(gemm, 1, 1, &info), "info->struct_size is 1");
  EXPECT_EQ(intact_gemm_tune(gemm, 4, 0, nullptr), INTACT_OK);
  info.struct_size = sizeof(info);
  ASSERT_EQ(intact_gemm_tune(gemm, 4, 0, &info), INTACT_OK);
  EXPECT_GT(info.candidates, 0);
  EXPECT_THAT(info.kernel, HasSubstr("s8"));
  EXPECT_THAT(info.model_kernel, HasSubstr("s8"));
}

}  // namespace
}  // namespace intact::tests
