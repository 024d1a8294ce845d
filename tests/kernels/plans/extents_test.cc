// Open extents: many threads run one plan at once on inputs of many sizes. It computes what plans of these
// sizes compute, and what the scalar model computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "support/random.h"
#include "tests/support/conv_layers.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/long.h"
#include "tests/support/require_isas.h"
#include "tests/support/sanitized.h"
#include "verify/explain/audit.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using verify::Problem;
using Bytes = std::vector<uint8_t>;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

// A run of an open plan and its expected output.
struct Case {
  reference::Conv conv;
  verify::RunOptions options;
  Bytes expected;
};

std::string Text(const Case& one) {
  std::string text = "in";
  for (const int64_t extent : InputOf(one.conv.geometry)) text.append("x").append(std::to_string(extent));
  text.append(" batch=").append(std::to_string(one.conv.geometry.batch));
  return text.append(" threads=").append(std::to_string(one.options.threads));
}

// The arguments with the extents of `conv` for open dimensions. For others 0, or the descriptor's extent.
intact_conv_args WithExtents(intact_conv_args args, const reference::Conv& conv, unsigned open,
                             bool names_fixed) {
  const Extents extents = InputOf(conv.geometry);
  for (size_t i = 0; i < extents.size(); ++i) {
    args.input[i] = (open >> i & 1u) != 0 || names_fixed ? extents[i] : 0;
  }
  return args;
}

class OpenPlan {
 public:
  OpenPlan(const reference::Conv& layer, const verify::RunOptions& options, unsigned open)
      : open_(open), plan_(Conv::Create(OpenDescOf(layer, options, open), layer.b.data())) {}

  const Result<Conv>& plan() const { return plan_; }

  // What went wrong; "" if nothing did.
  std::string Run(const Case& one, bool in_parts) const {
    const std::string what = Text(one) + (in_parts ? " in parts: " : ": ");
    const Result<Bytes> output =
        verify::RunGuarded(one.conv, one.options, [&](const intact_conv_args& given) {
          return RunOn(WithExtents(given, one.conv, open_, in_parts), one.conv.geometry, in_parts);
        });
    if (!output) return what + output.error().message + "\n";
    const auto [actual, expected] = std::mismatch(output->begin(), output->end(), one.expected.begin());
    if (actual == output->end()) return "";
    return what + "byte " + std::to_string(actual - output->begin()) + " is " + std::to_string(*actual) +
           "; expected " + std::to_string(*expected) + "\n";
  }

 private:
  Error RunOn(const intact_conv_args& args, const reference::ConvGeometry& geometry, bool in_parts) const {
    Error error = CheckPrepared(args, geometry);
    if (error.status != INTACT_OK || !in_parts) return error.ok() ? plan_->Run(args) : error;
    constexpr int kParts = 3;
    for (int part = kParts - 1; part >= 0 && error.ok(); --part) error = plan_->RunPart(args, part, kParts);
    return error;
  }

  Error CheckPrepared(const intact_conv_args& args, const reference::ConvGeometry& geometry) const {
    intact_run_info info = INTACT_RUN_INFO_INIT;
    const intact_status status = intact_conv_prepare(plan_->handle(), &args, &info);
    if (status != INTACT_OK) return {status, intact_last_error()};
    const Extents output = OutputOf(geometry);
    for (size_t i = 0; i < std::size(info.output); ++i) {
      const int64_t expected = i < output.size() ? output[i] : 1;
      if (info.output[i] == expected) continue;
      return {INTACT_CODEGEN_FAILED, "prepared output[" + std::to_string(i) + "] is " +
                                         std::to_string(info.output[i]) + "; expected " +
                                         std::to_string(expected)};
    }
    if (info.scratch_bytes >= info.part_scratch_bytes) return {};
    return {INTACT_CODEGEN_FAILED, "a part needs more scratch than the whole run"};
  }

  unsigned open_;
  Result<Conv> plan_;
};

// ----- bytes -----------------------------------------------------------------------------------------------

class OpenExtents : public testing::TestWithParam<std::tuple<intact_isa, ConvLayer>> {
 protected:
  void SetUp() override {
    const intact_isa isa = std::get<0>(GetParam());
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
    problem_ = Parsed(std::get<1>(GetParam()).line);
    ASSERT_TRUE(problem_.conv);
    problem_.isa = isa;
    options_ = verify::RunOptionsOf(problem_);
    layer_ = verify::MaterializeConv(problem_);
  }

  bool IsEmulated() const { return EmulatedIsas::Has(problem_.isa); }

  // The smallest extent of the input in dimension `i` that has an output.
  int64_t Least(size_t i) const {
    reference::Axis axis = layer_.geometry.axes[reference::kMaxSpatial - Dims() + i];
    for (axis.input = 1; axis.Output() < 1;) ++axis.input;
    return axis.input;
  }

  size_t Dims() const { return static_cast<size_t>(layer_.geometry.dims); }

  // The layer on a random input, with the outputs of the scalar model and of a plan of that size.
  Case RandomCase(unsigned open, support::Random* random) {
    constexpr int64_t kMost[] = {140, 24, 9};  // by number of dimensions
    constexpr int64_t kMostEmulated[] = {40, 8, 4};
    const int64_t most = IsEmulated() ? kMostEmulated[Dims() - 1] : kMost[Dims() - 1];
    Extents extents = InputOf(layer_.geometry);
    for (size_t i = 0; i < Dims(); ++i) {
      if ((open >> i & 1u) == 0) continue;
      const int64_t least = Least(i);
      extents[i] = random->Integer(least, std::max(least, most));
    }
    const int64_t batch = random->Integer(0, 3) == 0 ? 3 : 1;
    Case made{OnInput(problem_, layer_, extents, batch, random->Next() >> 1), options_, {}};
    made.options.threads = random->Integer(0, 3) == 0 ? 2 : 1;
    made.expected = ExpectedOutput(made.conv, made.options);
    const Result<Bytes> fixed = verify::IntactTarget().Run(made.conv, made.options);
    EXPECT_TRUE(fixed) << Text(made) << ": " << fixed.error().message;
    EXPECT_TRUE(!fixed || *fixed == made.expected) << Text(made) << ": the plan of this size is wrong";
    return made;
  }

  Problem problem_;
  verify::RunOptions options_;
  reference::Conv layer_;
};

TEST_P(OpenExtents, ManyThreadsRunOnePlanOnManySizesAtOnce) {
  constexpr size_t kThreads = 4;
  const size_t count = IsEmulated() ? 4 : kSanitized ? 8 : 50;
  for (const unsigned open : OpenDimensions(layer_.geometry.dims)) {
    SCOPED_TRACE(problem_.ToString() + " open=" + std::to_string(open));
    const OpenPlan plan(layer_, options_, open);
    ASSERT_TRUE(plan.plan()) << plan.plan().error().message;
    support::Random random(3, open, static_cast<uint64_t>(problem_.isa));
    std::vector<Case> cases;
    for (size_t i = 0; i < count; ++i) cases.push_back(RandomCase(open, &random));
    ASSERT_FALSE(HasFailure());

    std::mutex mutex;
    std::string wrong;
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        // Each thread begins with another size, and later meets sizes that others have prepared.
        const size_t runs = IsEmulated() ? 2 : count;
        for (size_t i = 0; i < runs; ++i) {
          const size_t number = (i + thread * count / kThreads) % count;
          const std::string error = plan.Run(cases[number], (i + thread) % 5 == 0);
          const std::lock_guard lock(mutex);
          wrong += error;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wrong, "") << plan.plan()->Info().kernel;
  }
}

std::string NameOf(const testing::TestParamInfo<std::tuple<intact_isa, ConvLayer>>& info) {
  const auto& [isa, layer] = info.param;
  return std::string(intact_isa_name(isa)).append("_").append(layer.name);
}

INSTANTIATE_TEST_SUITE_P(All, OpenExtents, testing::ValuesIn(SomePairs(core::kIsaLadder, kConvLayers, 3)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Long, OpenExtents,
                         testing::Combine(testing::ValuesIn(core::kIsaLadder),
                                          testing::ValuesIn(kConvLayers)),
                         NameOf);

class OpenExtentsOnIsa : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  // Runs a plan of the line with all extents open on inputs of these extents, in this order.
  static void ExpectRight(const char* line, const std::vector<Extents>& inputs) {
    Problem problem = Parsed(line);
    problem.isa = GetParam();
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    const reference::Conv layer = verify::MaterializeConv(problem);
    const OpenPlan plan(layer, options, OpenDimensions(layer.geometry.dims).front());
    ASSERT_TRUE(plan.plan()) << plan.plan().error().message;
    for (size_t i = 0; i < inputs.size(); ++i) {
      SCOPED_TRACE(problem.ToString());
      Case one{OnInput(problem, layer, inputs[i], 1, i + 1), options, {}};
      one.expected = ExpectedOutput(one.conv, options);
      EXPECT_EQ(plan.Run(one, false), "");
    }
  }
};

// A plan keeps its preparations for 64 sizes. The first ones are prepared again.
TEST_P(OpenExtentsOnIsa, MoreSizesThanAPlanKeeps) {
  const int64_t most = EmulatedIsas::Has(GetParam()) ? 2 : 9;
  std::vector<Extents> inputs;
  for (int round = 0; round < 2; ++round) {
    for (int64_t height = 1; height <= most; ++height) {
      for (int64_t width = 1; width <= 9; ++width) inputs.push_back({height, width});
    }
    inputs.push_back({1, 1});
  }
  ExpectRight("conv u8s8s32 in=5x5 c=4 o=8 kernel=3x3 pad=1x1 za=3", inputs);
  ExpectRight("conv u8s8s32 in=5x5 c=4 o=8 kernel=2x2 stride=3x3 za=3 transposed=yes", inputs);
}

// Layouts are chosen for common sizes. A planar band of the widest input would not fit into the cache, so it
// gets another layout. The small input before and after it has the first layout.
TEST_P(OpenExtentsOnIsa, LinesThatAreTooLongForAPlanarBand) {
  if (EmulatedIsas::Has(GetParam())) GTEST_SKIP() << "too slow, emulated";
  const std::vector<Extents> inputs = {{3, 9}, {2, 40000}, {9, 3}, {1, 40001}, {3, 9}};
  constexpr const char* kLines[] = {
      "conv u8s8u8 in=5x5 c=16 o=16 groups=8 kernel=3x3 pad=1x1 za=3 bias=f32",
      "conv s8s8s32 in=5x5 c=32 o=16 groups=8 kernel=3x3 pad=1x1 za=-3 fill=extremes",
      "conv u8s8s32 in=5x5 c=16 o=16 groups=4 kernel=3x3 pad=1x1 arange=127 za=9 fill=stray",
      "conv u8u8s32 in=5x5 c=16 o=8 groups=8 kernel=3x3 stride=2x2 pad=1x1 zb=3 zbper=channel",
      "conv u8s8s32 in=5x5 c=16 o=16 groups=8 kernel=4x4 stride=2x2 pad=1x1 za=3 transposed=yes"};
  // The quick test runs one line for each ISA. Lines take seconds each.
  const auto first = static_cast<size_t>(GetParam()) % std::size(kLines);
  for (size_t i = 0; i < (IsLong() ? std::size(kLines) : 1); ++i) {
    ExpectRight(kLines[(first + i) % std::size(kLines)], inputs);
  }
}

// What an estimate chooses, the schedule does not change.
TEST_P(OpenExtentsOnIsa, ScratchIsTheSameBeforeAndAfterSchedulesAreFound) {
  ConvDesc desc = MakeConvDesc();
  desc.spatial_dims = 1;
  desc.input_channels = 40;
  desc.output_channels = 120;
  desc.input[0] = INTACT_ANY_EXTENT;
  desc.linear.max_isa = GetParam();
  std::vector<int8_t> weights(size_t{40} * 120);
  std::minstd_rand random;
  for (int8_t& weight : weights) weight = static_cast<int8_t>(static_cast<int>(random() % 128) - 64);
  const Result<Conv> found = Conv::Create(desc, weights.data());
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_TRUE(found->SaveMemory());  // finds all schedules
  for (int64_t width = 45; width <= 56; ++width) {
    const Result<Conv> fresh = Conv::Create(desc, weights.data());
    ASSERT_TRUE(fresh) << fresh.error().message;
    const auto before = fresh->Prepare(1, {width}), after = found->Prepare(1, {width});
    ASSERT_TRUE(before && after);
    EXPECT_EQ(before->scratch_bytes, after->scratch_bytes) << width;
  }
}

std::string NameOfIsa(const testing::TestParamInfo<intact_isa>& isa) { return intact_isa_name(isa.param); }

INSTANTIATE_TEST_SUITE_P(All, OpenExtentsOnIsa, testing::ValuesIn(core::kIsaLadder), NameOfIsa);
INSTANTIATE_TEST_SUITE_P(Long, OpenExtentsOnIsa, testing::ValuesIn(core::kIsaLadder), NameOfIsa);

// ----- properties and refusals of plans --------------------------------------------------------------------

// A 5×5 filter over 4 channels, padded by 1, to 6 channels. Height and width are open.
struct Draft {
  std::vector<int8_t> weights = std::vector<int8_t>(6 * 5 * 5 * 4, 1);
  ConvDesc desc = MakeConvDesc();

  Draft() {
    desc.input_channels = 4;
    desc.output_channels = 6;
    for (int i = 0; i < 2; ++i) {
      desc.input[i] = INTACT_ANY_EXTENT;
      desc.kernel[i] = 5;
      desc.pad_begin[i] = desc.pad_end[i] = 1;
    }
  }
  Result<Conv> Create() const { return Conv::Create(desc, weights.data()); }
};

TEST(OpenExtentsInfo, ReportsWhatIsOpen) {
  Draft draft;
  draft.desc.input[1] = 30;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const intact_conv_info& info = conv->Info();
  EXPECT_THAT(info.input, ElementsAre(INTACT_ANY_EXTENT, 30, 1));
  EXPECT_THAT(info.output, ElementsAre(INTACT_ANY_EXTENT, 28, 1));
  EXPECT_STRNE(info.kernel, "");
  EXPECT_GE(info.packed_bytes, 6 * 5 * 5 * 4);
  EXPECT_EQ(info.accumulator_max, 255 * 5 * 5 * 4);
}

// Certificates depend on weights only: they equal those of a plan of any size.
TEST(OpenExtentsInfo, CertificatesDoNotDependOnExtents) {
  for (const ConvLayer& layer : kConvLayers) {
    SCOPED_TRACE(layer.line);
    const Problem problem = Parsed(layer.line);
    const reference::Conv conv = verify::MaterializeConv(problem);
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    const Result<Conv> fixed = Conv::Create(verify::DescOf(conv, options), conv.b.data());
    const Result<Conv> open =
        Conv::Create(OpenDescOf(conv, options, OpenDimensions(conv.geometry.dims).front()), conv.b.data());
    ASSERT_TRUE(fixed) << fixed.error().message;
    ASSERT_TRUE(open) << open.error().message;
    const Result<intact_certificate> expected = fixed->Certificate(INTACT_PAIRING_WITHIN_TAP);
    const Result<intact_certificate> actual = open->Certificate(INTACT_PAIRING_WITHIN_TAP);
    ASSERT_TRUE(expected && actual);
    EXPECT_EQ(actual->pairs, expected->pairs);
    EXPECT_EQ(actual->failing_pairs, expected->failing_pairs);
    EXPECT_EQ(actual->worst_column, expected->worst_column);
    EXPECT_EQ(actual->accumulator_min, expected->accumulator_min);
    EXPECT_EQ(actual->accumulator_max, expected->accumulator_max);
  }
}

struct Refusal {
  const char* words;
  std::function<void(Draft*)> make;
  std::array<int64_t, 2> input;
};

TEST(OpenExtentsRefusals, NameTheExtentAndWriteNothing) {
  const auto nothing = [](Draft*) {};
  const auto fix_width = [](Draft* d) { d->desc.input[1] = 30; };
  const auto transpose = [](Draft* d) {
    d->desc.transposed = 1;
    for (int i = 0; i < 2; ++i) d->desc.pad_begin[i] = d->desc.pad_end[i] = 3;
  };
  constexpr int64_t kLarge = int64_t{1} << 30;
  const Refusal refusals[] = {
      {"input[0] is 0; expected 1 to", nothing, {0, 9}},
      {"input[1] is 0; expected 1 to", nothing, {9, 0}},
      {"input[1] is -1; expected 1 to", nothing, {9, INTACT_ANY_EXTENT}},
      {"input[0] is -7; expected 1 to", nothing, {-7, 9}},
      {"input[1] is 2147483648; expected 1 to", nothing, {9, 2 * kLarge}},
      {"kernel[0] is 5 and spans 5 pixels with its dilation; expected at most 4, the padded input[0]",
       nothing,
       {2, 9}},
      {"kernel[1] is 5 and spans 5 pixels with its dilation; expected at most 3, the padded input[1]",
       nothing,
       {9, 1}},
      {"input[1] is 29; expected the descriptor's 30", fix_width, {9, 29}},
      {"input[1] is -1; expected the descriptor's 30", fix_width, {9, INTACT_ANY_EXTENT}},
      {"input[0] is 0; expected 1 to", fix_width, {0, 30}},
      {"pad_begin[1] + pad_end[1] is 6; expected less than 5", transpose, {9, 1}},
      {"the padded input has more than 2^40 pixels × input_channels", nothing, {kLarge, kLarge}},
      {"the output has more than 2147483647 pixels", nothing, {1 << 16, 1 << 16}},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.words);
    Draft draft;
    refusal.make(&draft);
    const Result<Conv> conv = draft.Create();
    ASSERT_TRUE(conv) << conv.error().message;
    const std::vector<uint8_t> a(9 * 30 * 4, 3);
    std::vector<int32_t> c(11 * 32 * 6, 99);
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = 1;
    args.a = a.data();
    args.c = c.data();
    args.threads = 1;
    std::copy(refusal.input.begin(), refusal.input.end(), args.input);
    intact_run_info info = INTACT_RUN_INFO_INIT;
    info.output[0] = 77;
    const auto expect_refused = [&](intact_status status) {
      EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
      EXPECT_THAT(intact_last_error(), HasSubstr(refusal.words));
    };
    expect_refused(intact_conv_prepare(conv->handle(), &args, &info));
    expect_refused(intact_conv_run(conv->handle(), &args));
    expect_refused(intact_conv_run_part(conv->handle(), &args, 0, 2));
    EXPECT_EQ(info.output[0], 77);
    EXPECT_THAT(c, testing::Each(99));
    // The plan still works.
    if (draft.desc.input[1] != 30) args.input[0] = args.input[1] = 9;
    if (draft.desc.input[1] == 30) args.input[0] = 9, args.input[1] = 0;
    EXPECT_EQ(intact_conv_run(conv->handle(), &args), INTACT_OK) << intact_last_error();
    EXPECT_NE(c[0], 99);
  }
}

TEST(OpenExtentsRefusals, PlansOfFixedExtentsCompareThoseOfRuns) {
  Draft draft;
  draft.desc.input[0] = 9;
  draft.desc.input[1] = 10;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  for (const int64_t batch : {1, 2}) {
    EXPECT_TRUE(conv->Prepare(batch));
    EXPECT_TRUE(conv->Prepare(batch, {9, 10, 0}));
    EXPECT_TRUE(conv->Prepare(batch, {0, 10, 77}));  // values beyond its dimensions are ignored
    const Result<intact_run_info> other = conv->Prepare(batch, {9, 11});
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(other.error().message, HasSubstr("input[1] is 11; expected the descriptor's 10"));
  }
}

TEST(OpenExtentsRefusals, BatchesAreBoundByTheOutput) {
  const Result<Conv> conv = Draft().Create();
  ASSERT_TRUE(conv) << conv.error().message;
  EXPECT_TRUE(conv->Prepare(2147483647 / (8 * 8), {10, 10}));
  for (const int64_t batch :
       {int64_t{-1}, int64_t{2147483647 / (8 * 8) + 1}, std::numeric_limits<int64_t>::max()}) {
    const Result<intact_run_info> refused = conv->Prepare(batch, {10, 10});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("batch is " + std::to_string(batch) + "; expected 0 to "));
  }
}

// With such a large fixed extent, none of the common sizes may be possible.
TEST(OpenExtentsRefusals, HugeFixedExtentsLeaveTheOthersOpen) {
  Draft draft;
  draft.desc.input[1] = int64_t{1} << 26;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const Result<intact_run_info> info = conv->Prepare(1, {3});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_THAT(info->output, ElementsAre(1, (1 << 26) - 2, 1));
  EXPECT_FALSE(conv->Prepare(1, {60}));
}

// ----- the C++ face ----------------------------------------------------------------------------------------

TEST(OpenExtentsViews, GiveTheExtents) {
  const Result<Conv> conv = Draft().Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const std::vector<uint8_t> a(size_t{2} * 7 * 6 * 5, 1);
  std::vector<int32_t> c(size_t{2} * 5 * 4 * 7, 99);
  const PixelView<const uint8_t> input{a.data(), 2, {7, 6, 1}, 4, 5};
  PixelView<int32_t> output{c.data(), 2, {5, 4, 1}, 6, 7};
  const Error ran = conv->Run(input, output, {.threads = 1});
  ASSERT_TRUE(ran.ok()) << ran.message;
  EXPECT_EQ(c[0], 4 * 4 * 4);      // a corner sees 4×4 taps
  EXPECT_EQ(c[7 * 5], 5 * 5 * 4);  // pixel (1, 1) sees all taps
  EXPECT_EQ(c[6], 99);             // between pixels
  const std::vector<int32_t> whole = c;
  std::fill(c.begin(), c.end(), 99);
  for (const int part : {1, 0}) ASSERT_TRUE(conv->RunPart(input, output, part, 2).ok());
  EXPECT_EQ(c, whole);

  output.extents = {5, 5, 1};
  EXPECT_THAT(conv->Run(input, output).message, HasSubstr("intact_conv_run: output[1] is 5; expected 4"));
  output.extents = {5, 4, 1};
  output.batch = 1;
  EXPECT_THAT(conv->Run(input, output).message, HasSubstr("c's batch is 1; expected 2"));
  const PixelView<const uint8_t> small{a.data(), 2, {2, 6, 1}, 4, 5};
  output.batch = 2;
  EXPECT_THAT(conv->Run(small, output).message, HasSubstr("kernel[0] is 5"));
}

// In the C ABI, 0 means the descriptor's extent. An empty view is an error.
TEST(OpenExtentsViews, AreNotEmpty) {
  Draft draft;
  draft.desc.input[0] = 7;
  draft.desc.input[1] = 6;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const std::vector<uint8_t> a(size_t{7} * 6 * 4, 1);
  std::vector<int32_t> c(size_t{5} * 4 * 6, 99);
  const PixelView<int32_t> output{c.data(), 1, {5, 4, 1}, 6};
  for (const int64_t extent : {0, -1}) {
    const PixelView<const uint8_t> input{a.data(), 1, {7, extent, 1}, 4};
    const Error error = conv->Run(input, output);
    EXPECT_EQ(error.status, INTACT_INVALID_ARGUMENT);
    EXPECT_EQ(error.message, "a's extent 1 is " + std::to_string(extent) + "; expected at least 1");
  }
  EXPECT_THAT(c, testing::Each(99));
}

}  // namespace
}  // namespace intact::tests
