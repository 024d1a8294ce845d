// The C ABI of convolutions: every refusal names the argument and what is wrong with it, and the properties
// that a plan reports are true. The sweep and the differential test check outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/contract/conv.h"
#include "tests/support/expect_model.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A valid convolution with u8 output and 2×4×6 input pixels of 4 channels, which tests make wrong.
struct Draft {
  std::vector<int8_t> weights = std::vector<int8_t>(6 * 3 * 3 * 4, 1);
  std::vector<float> scales = {0.5f};
  ConvDesc desc = MakeConvDesc();

  Draft() {
    desc.input_channels = 4;
    desc.output_channels = 6;
    desc.input[0] = 4;
    desc.input[1] = 6;
    desc.kernel[0] = desc.kernel[1] = 3;
    desc.pad_begin[0] = desc.pad_begin[1] = desc.pad_end[0] = desc.pad_end[1] = 1;
    desc.linear.c_type = INTACT_U8;
    desc.linear.scales = scales.data();
    desc.linear.scale_count = 1;
  }
  Result<Conv> Create() const { return Conv::Create(desc, weights.data()); }
};

TEST(ConvDescriptor, SoundOnesAreAccepted) {
  const Result<Conv> conv = Draft().Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const intact_conv_info info = conv->Info();
  EXPECT_EQ(info.output[0], 4);
  EXPECT_EQ(info.output[1], 6);
  EXPECT_EQ(info.output[2], 1);
  EXPECT_EQ(info.mode, INTACT_EXACT);
  EXPECT_NE(info.isa, INTACT_ISA_ANY);
  EXPECT_THAT(info.kernel, HasSubstr("u8s8"));
  EXPECT_GE(info.packed_bytes, 6 * 3 * 3 * 4);
  EXPECT_EQ(info.accumulator_min, 0);
  EXPECT_EQ(info.accumulator_max, 255 * 9 * 4);
}

TEST(ConvDescriptor, ZeroMeansTheCommonValue) {
  Draft draft;
  draft.desc.spatial_dims = 1;
  draft.desc.kernel[0] = 0;  // means 1, as for stride, dilation and groups
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  EXPECT_EQ(conv->Info().output[0], 6);
}

struct Refusal {
  const char* message;
  std::function<void(ConvDesc*)> spoil;
};

TEST(ConvDescriptor, RefusalsNameTheFieldAndItsValue) {
  const std::vector<Refusal> refusals = {
      {"desc->struct_size is 3; expected", [](ConvDesc* d) { d->struct_size = 3; }},
      {"linear->struct_size is 5; expected", [](ConvDesc* d) { d->linear.struct_size = 5; }},
      {"spatial_dims is 0; expected 1, 2 or 3", [](ConvDesc* d) { d->spatial_dims = 0; }},
      {"spatial_dims is 4; expected 1, 2 or 3", [](ConvDesc* d) { d->spatial_dims = 4; }},
      {"input_channels is 0; expected 1 to", [](ConvDesc* d) { d->input_channels = 0; }},
      {"output_channels is -1; expected 1 to", [](ConvDesc* d) { d->output_channels = -1; }},
      {"groups is -2; expected 1 to", [](ConvDesc* d) { d->groups = -2; }},
      {"groups is 4; expected a divisor of input_channels = 4 and output_channels = 6",
       [](ConvDesc* d) { d->groups = 4; }},
      {"input[1] is 0; expected 1 to", [](ConvDesc* d) { d->input[1] = 0; }},
      {"input[0] is -7; expected 1 to", [](ConvDesc* d) { d->input[0] = -7; }},
      {"kernel[0] is -1; expected 1 to", [](ConvDesc* d) { d->kernel[0] = -1; }},
      {"kernel[1] is 9 and spans 9 pixels with its dilation; expected at most 8, the padded input[1]",
       [](ConvDesc* d) { d->kernel[1] = 9; }},
      {"kernel[0] is 3 and spans 7 pixels with its dilation; expected at most 6, the padded input[0]",
       [](ConvDesc* d) { d->dilation[0] = 3; }},
      {"stride[1] is -2; expected 1 to", [](ConvDesc* d) { d->stride[1] = -2; }},
      {"dilation[0] is -1; expected 1 to", [](ConvDesc* d) { d->dilation[0] = -1; }},
      {"pad_begin[0] is -1; expected 0 to", [](ConvDesc* d) { d->pad_begin[0] = -1; }},
      {"pad_end[1] is 4294967296; expected 0 to", [](ConvDesc* d) { d->pad_end[1] = int64_t{1} << 32; }},
      {"the padded input has more than 2^40 pixels × input_channels",
       [](ConvDesc* d) { d->pad_end[0] = d->pad_end[1] = 1 << 30; }},
      {"the padded input has more than 2^40 pixels × output_channels",
       [](ConvDesc* d) { d->pad_end[0] = d->pad_end[1] = 450'000; }},
      {"there are more than 2^40 weights",
       [](ConvDesc* d) {
         d->kernel[0] = d->kernel[1] = 1;
         d->input_channels = 1 << 30;
         d->output_channels = d->linear.scale_count = 1 << 12;
       }},
      {"transposed is 2; expected 0 or 1", [](ConvDesc* d) { d->transposed = 2; }},
      {"output_pad[1] is 1; expected 0: only a transposed convolution has one",
       [](ConvDesc* d) { d->output_pad[1] = 1; }},
      {"output_pad[0] is -1; expected 0 to", [](ConvDesc* d) { d->output_pad[0] = -1; }},
      {"output_pad[0] is 3; expected at most 2, less than stride or dilation",
       [](ConvDesc* d) {
         d->transposed = 1;
         d->stride[0] = 2;
         d->dilation[0] = 3;
         d->output_pad[0] = 3;
       }},
      {"pad_begin[1] + pad_end[1] is 8; expected less than 8, the output before it is cropped",
       [](ConvDesc* d) {
         d->transposed = 1;
         d->pad_begin[1] = 8;
         d->pad_end[1] = 0;
       }},
      {"the output's extent is 4294901764; expected 1 to 2147483647",
       [](ConvDesc* d) {
         d->transposed = 1;
         d->dilation[0] = d->kernel[0] = 1 << 16;
         d->pad_begin[0] = d->pad_end[0] = 0;
       }},
      {"the output before it is cropped has more than 2^40 pixels × input_channels",
       [](ConvDesc* d) {
         d->transposed = 1;
         d->stride[0] = d->stride[1] = 1 << 24;
       }},
      {"scale_count is 4; expected 1 or n = 6", [](ConvDesc* d) { d->linear.scale_count = 4; }},
      {"a_zero_point is 256", [](ConvDesc* d) { d->linear.a_zero_point = 256; }},
      {"pairing is 1 in exact mode; expected 0, or the mode INTACT_SATURATING",
       [](ConvDesc* d) { d->linear.pairing = INTACT_PAIRING_FLATTENED; }},
      {"pairing is 2; expected an intact_pairing",
       [](ConvDesc* d) {
         d->linear.mode = INTACT_SATURATING;
         d->linear.pairing = 2;
       }},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.message);
    Draft draft;
    refusal.spoil(&draft.desc);
    const Result<Conv> conv = draft.Create();
    ASSERT_FALSE(conv);
    EXPECT_EQ(conv.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(conv.error().message, StartsWith("intact_conv_create: "));
    EXPECT_THAT(conv.error().message, HasSubstr(refusal.message));
  }
}

TEST(ConvDescriptor, PairsOfTransposedOnesDoNotCrossTaps) {
  Draft draft;
  draft.desc.transposed = 1;
  draft.desc.linear.mode = INTACT_SATURATING;
  draft.desc.linear.pairing = INTACT_PAIRING_FLATTENED;
  EXPECT_TRUE(draft.Create());
  draft.desc.input_channels = 3;
  const Result<Conv> odd = draft.Create();
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().status, INTACT_UNSUPPORTED);
  EXPECT_EQ(odd.error().message,
            "intact_conv_create: pairing is 1 in a transposed convolution with 3 input channels per group; "
            "expected 0, "
            "or an even number of channels");
}

TEST(ConvDescriptor, NullArguments) {
  const Draft draft;
  intact_conv* handle = nullptr;
  EXPECT_EQ(intact_conv_create(nullptr, nullptr, draft.weights.data(), &handle), INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(), "intact_conv_create: desc is NULL");
  EXPECT_EQ(intact_conv_create(&draft.desc, &draft.desc.linear, nullptr, &handle), INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(), "intact_conv_create: weights is NULL");
  EXPECT_EQ(intact_conv_create(&draft.desc, &draft.desc.linear, draft.weights.data(), nullptr),
            INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(), "intact_conv_create: conv is NULL");
  EXPECT_EQ(intact_conv_run(nullptr, nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(intact_conv_query(nullptr, nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(intact_conv_certificate(nullptr, INTACT_PAIRING_WITHIN_TAP, nullptr), INTACT_INVALID_ARGUMENT);
  intact_conv_destroy(nullptr);
}

TEST(ConvDescriptor, TransposedOutputsAreThoseOfTheFormula) {
  Draft draft;
  draft.desc.transposed = 1;
  draft.desc.stride[0] = 2;
  draft.desc.stride[1] = 3;
  draft.desc.output_pad[1] = 2;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  const intact_conv_info info = conv->Info();
  EXPECT_EQ(info.output[0], 3 * 2 - 2 + 2 + 0 + 1);
  EXPECT_EQ(info.output[1], 5 * 3 - 2 + 2 + 2 + 1);
  EXPECT_EQ(info.accumulator_max, 2 * 1 * 255 * 4);  // no output has more than two taps along the height
  const Result<intact_certificate> certificate = conv->Certificate(INTACT_PAIRING_WITHIN_TAP);
  ASSERT_TRUE(certificate) << certificate.error().message;
  EXPECT_EQ(certificate->pairs, 6 * 9 * 2);
}

// All phases have a layout, even if typical extents have no outputs of a phase.
TEST(ConvDescriptor, OpenTransposedOnesHaveAllPhases) {
  ConvDesc desc = MakeConvDesc();
  desc.spatial_dims = 1;
  desc.transposed = 1;
  desc.input_channels = desc.output_channels = 1;
  desc.input[0] = INTACT_ANY_EXTENT;
  desc.kernel[0] = 1;
  desc.stride[0] = 40;
  desc.pad_begin[0] = 12;
  desc.pad_end[0] = 11;
  const int8_t weight = 3;
  const Result<Conv> conv = Conv::Create(desc, &weight);
  ASSERT_TRUE(conv) << conv.error().message;
  const std::vector<uint8_t> a = {1, 2, 3};
  std::vector<int32_t> c(58, 99);
  const Error error =
      conv->Run(PixelView<const uint8_t>{a.data(), 1, {3}, 1}, PixelView<int32_t>{c.data(), 1, {58}, 1});
  ASSERT_TRUE(error.ok()) << error.message;
  std::vector<int32_t> expected(58, 0);
  expected[28] = 6;
  EXPECT_EQ(c, expected);
}

TEST(ConvDescriptor, OpenOnesMayHaveAnyStride) {
  for (const int64_t groups : {1, 4}) {
    ConvDesc desc = MakeConvDesc();
    desc.input_channels = 16;
    desc.output_channels = 12;
    desc.groups = groups;
    desc.input[0] = desc.input[1] = INTACT_ANY_EXTENT;
    desc.stride[0] = desc.stride[1] = 1 << 30;
    const std::vector<int8_t> weights(16 * 12, 1);
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    ASSERT_TRUE(conv) << conv.error().message;
    const std::vector<uint8_t> a(16 * 4, 2);
    std::vector<int32_t> c(12);
    const Error error = conv->Run(PixelView<const uint8_t>{a.data(), 1, {2, 2}, 16},
                                  PixelView<int32_t>{c.data(), 1, {1, 1}, 12});
    ASSERT_TRUE(error.ok()) << error.message;
    EXPECT_EQ(c, std::vector<int32_t>(12, static_cast<int32_t>(2 * 16 / groups)));
  }
}

// No input pixel reaches any output.
TEST(ConvDescriptor, TransposedMayHaveBarePixelsOnly) {
  Draft draft;
  draft.desc.spatial_dims = 1;
  draft.desc.transposed = 1;
  draft.desc.input[0] = draft.desc.kernel[0] = 1;
  draft.desc.stride[0] = 4;
  draft.desc.pad_end[0] = 0;
  draft.desc.output_pad[0] = 3;
  const std::vector<int32_t> bias = {2, 4, 6, 8, 10, 12};
  draft.desc.linear.bias_s32 = bias.data();
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  EXPECT_EQ(conv->Info().output[0], 3);
  EXPECT_EQ(conv->Info().accumulator_min, 2);
  EXPECT_EQ(conv->Info().accumulator_max, 12);
  const std::vector<uint8_t> a(4, 200);
  std::vector<uint8_t> c(3 * 6, 99);
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = 1;
  args.a = a.data();
  args.c = c.data();
  ASSERT_EQ(conv->Run(args).status, INTACT_OK);
  EXPECT_THAT(c, testing::ElementsAre(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6));
}

// An output of one pixel, with a tap or bare. Strides of any size have no effect. (Sanitizers detect products
// with strides that overflow.)
TEST(ConvRunOfOnePixel, StridesLeadNowhere) {
  for (const bool is_bare : {false, true}) {
    SCOPED_TRACE(is_bare ? "bare" : "with a tap");
    Draft draft;
    draft.desc.spatial_dims = 1;
    draft.desc.transposed = 1;
    draft.desc.input[0] = draft.desc.kernel[0] = 1;
    draft.desc.stride[0] = INT32_MAX;
    draft.desc.pad_end[0] = 0;
    draft.desc.pad_begin[0] = draft.desc.output_pad[0] = is_bare ? 1 : 0;
    draft.desc.linear.residual_type = INTACT_U8;
    draft.desc.linear.residual_scale = 1.0f;
    const Result<Conv> conv = draft.Create();
    ASSERT_TRUE(conv) << conv.error().message;
    const std::vector<uint8_t> a(4, 3);
    const std::vector<uint8_t> residual = {1, 2, 3, 4, 5, 6};
    std::vector<uint8_t> c(6, 99);
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = 1;
    args.a = a.data();
    args.c = c.data();
    args.residual = residual.data();
    args.c_stride = args.residual_stride = int64_t{1} << 40;
    ASSERT_EQ(conv->Run(args).status, INTACT_OK) << intact_last_error();
    const uint8_t sum = is_bare ? 0 : 4 * 3 / 2;
    for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], sum + residual[i]) << i;
  }
}

// 2^20 taps of 127·255 exceed int32 on every ISA and in every layout.
TEST(ConvDescriptor, OverflowIsRefusedOnEveryIsa) {
  for (const intact_isa isa : core::kIsaLadder) {
    Draft draft;
    draft.weights.assign(size_t{2} << 17, 127);
    draft.desc.input_channels = 2 << 17;
    draft.desc.output_channels = 1;
    draft.desc.kernel[0] = draft.desc.kernel[1] = 1;
    draft.desc.linear.max_isa = isa;
    const Result<Conv> conv = draft.Create();
    ASSERT_FALSE(conv);
    EXPECT_EQ(conv.error().status, INTACT_OVERFLOW);
    EXPECT_THAT(conv.error().message, HasSubstr("output channel 0 of weights can accumulate"));
  }
}

// The message names the bias whose sum exceeds int32, and its output channel, for any unit of channels.
TEST(ConvDescriptor, OverflowNamesTheBias) {
  for (const intact_isa isa : core::kIsaLadder) {
    Draft draft;
    const std::vector<int32_t> bias = {0, 0, 0, 0, 2147483647, 0};
    draft.desc.linear.bias_s32 = bias.data();
    draft.desc.linear.max_isa = isa;
    Result<Conv> conv = draft.Create();
    ASSERT_FALSE(conv);
    EXPECT_EQ(conv.error().status, INTACT_OVERFLOW);
    EXPECT_THAT(
        conv.error().message,
        HasSubstr("bias_s32[4] is 2147483647, and the products of output channel 4 of weights reach"));
    EXPECT_THAT(conv.error().message, HasSubstr("or the overflow INTACT_OVERFLOW_WRAPS"));
    draft.desc.linear.overflow = INTACT_OVERFLOW_WRAPS;
    conv = draft.Create();
    EXPECT_TRUE(conv) << conv.error().message;
  }
}

class ConvRun : public testing::Test {
 protected:
  void SetUp() override {
    Result<Conv> conv = Draft().Create();
    ASSERT_TRUE(conv);
    conv_ = std::make_unique<Conv>(std::move(*conv));
    args_.batch = 2;
    args_.a = a_.data();
    args_.c = c_.data();
    args_.threads = 1;
  }
  std::vector<uint8_t> a_ = std::vector<uint8_t>(2 * 4 * 6 * 4, 3);
  std::vector<uint8_t> c_ = std::vector<uint8_t>(2 * 4 * 6 * 6, 99);
  std::unique_ptr<Conv> conv_;
  intact_conv_args args_ = INTACT_CONV_ARGS_INIT;
};

// Without images nothing is read or written, whatever is NULL. Sizes are reported and checked.
TEST_F(ConvRun, OfNothingDoesNothing) {
  for (const bool has_pointers : {false, true}) {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    EXPECT_EQ(args.batch, 1);
    args.batch = 0;
    args.a = has_pointers ? a_.data() : nullptr;
    args.c = has_pointers ? c_.data() : nullptr;
    intact_run_info info = INTACT_RUN_INFO_INIT;
    info.scratch_bytes = info.part_scratch_bytes = 1;
    EXPECT_EQ(intact_conv_prepare(conv_->handle(), &args, &info), INTACT_OK) << intact_last_error();
    EXPECT_THAT(info.output, testing::ElementsAre(4, 6, 1));
    EXPECT_EQ(info.scratch_bytes, 0u);
    EXPECT_EQ(info.part_scratch_bytes, 0u);
    EXPECT_EQ(conv_->Run(args).status, INTACT_OK) << intact_last_error();
    EXPECT_EQ(conv_->RunPart(args, 1, 2).status, INTACT_OK) << intact_last_error();
    EXPECT_THAT(c_, testing::Each(99));
    EXPECT_EQ(conv_->RunPart(args, 2, 2).status, INTACT_INVALID_ARGUMENT);
    args.output[1] = 5;
    EXPECT_THAT(conv_->Run(args).message, HasSubstr("output[1] is 5; expected 6"));
    args.output[1] = 0;
    args.a_stride = 3;
    EXPECT_THAT(conv_->Run(args).message, HasSubstr("a_stride is 3; expected 0 or at least 4"));
    args.a_stride = 0;
    PixelView<const uint8_t> a;
    a.batch = 0;
    a.extents = {4, 6, 1};
    a.channels = 4;
    PixelView<uint8_t> c;
    c.batch = 0;
    c.extents = {4, 6, 1};
    c.channels = 6;
    EXPECT_EQ(conv_->Run(a, c).message, "");
    EXPECT_EQ(conv_->RunPart(a, c, 1, 2).message, "");
    args.input[0] = 5;
    EXPECT_THAT(conv_->Run(args).message, HasSubstr("input[0] is 5; expected the descriptor's"));
    EXPECT_EQ(intact_conv_prepare(conv_->handle(), &args, &info), INTACT_INVALID_ARGUMENT);
  }
}

TEST_F(ConvRun, RefusalsNameTheArgumentAndWriteNothing) {
  const std::vector<std::pair<const char*, std::function<void(intact_conv_args*)>>> refusals = {
      {"args->struct_size is 1", [](intact_conv_args* a) { a->struct_size = 1; }},
      {"batch is -1; expected 0 to", [](intact_conv_args* a) { a->batch = -1; }},
      {"batch is 9223372036854775807; expected 0 to", [](intact_conv_args* a) { a->batch = INT64_MAX; }},
      {"a is NULL", [](intact_conv_args* a) { a->a = nullptr; }},
      {"c is NULL", [](intact_conv_args* a) { a->c = nullptr; }},
      {"a_stride is 3; expected 0 or at least 4", [](intact_conv_args* a) { a->a_stride = 3; }},
      {"c_stride is 5; expected 0 or at least 6", [](intact_conv_args* a) { a->c_stride = 5; }},
      {"intact_conv_run: threads is -1; expected 0 or more", [](intact_conv_args* a) { a->threads = -1; }},
      {"output[1] is 5; expected 6, which follows from the input",
       [](intact_conv_args* a) { a->output[1] = 5; }},
      {"c overlaps a", [](intact_conv_args* a) { a->c = const_cast<void*>(a->a); }},
      {"residual", [&](intact_conv_args* a) { a->residual = a_.data(); }},
  };
  for (const auto& [message, spoil] : refusals) {
    SCOPED_TRACE(message);
    intact_conv_args args = args_;
    spoil(&args);
    EXPECT_EQ(conv_->Run(args).status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(message));
    EXPECT_THAT(c_, testing::Each(99));
  }
  EXPECT_EQ(conv_->RunPart(args_, 2, 2).status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("part is 2 of 2"));
  EXPECT_THAT(c_, testing::Each(99));
}

TEST_F(ConvRun, TheRunsQuantizationIsChecked) {
  Draft draft;
  draft.desc.linear.a_quantization = INTACT_QUANTIZATION_TENSOR;
  draft.desc.linear.a_min = 5;
  draft.desc.linear.a_max = 100;
  Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  EXPECT_EQ(conv->Info().a_quantization, INTACT_QUANTIZATION_TENSOR);
  EXPECT_EQ(conv->Info().a_source_type, INTACT_TYPE_NONE);
  static constexpr std::array<int32_t, 3> kZeroPoints = {101, 4, 7};
  static constexpr std::array<float, 2> kScales = {-1.0f, 0.5f};
  args_.a_zero_points = &kZeroPoints[2];
  args_.a_scales = &kScales[1];
  EXPECT_EQ(conv->Run(args_).status, INTACT_OK) << intact_last_error();
  std::fill(c_.begin(), c_.end(), 99);
  const std::vector<std::pair<const char*, std::function<void(intact_conv_args*)>>> refusals = {
      {"a_zero_points[0] is 101; expected 5 to 100", [](auto* a) { a->a_zero_points = kZeroPoints.data(); }},
      {"a_zero_points[0] is 4; expected 5 to 100", [](auto* a) { a->a_zero_points = &kZeroPoints[1]; }},
      {"a_zero_points is NULL, so the zero point is 0; expected one from 5 to 100",
       [](auto* a) { a->a_zero_points = nullptr; }},
      {"a_scales[0] is -1; expected a finite value of at least 0",
       [](auto* a) { a->a_scales = kScales.data(); }},
      {"a_scales is NULL; expected one value", [](auto* a) { a->a_scales = nullptr; }},
  };
  for (const auto& [message, spoil] : refusals) {
    SCOPED_TRACE(message);
    intact_conv_args args = args_;
    spoil(&args);
    EXPECT_EQ(conv->Run(args).status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(message));
    EXPECT_THAT(c_, testing::Each(99));
  }
  // A plan with static quantization accepts none.
  EXPECT_EQ(conv_->Run(args_).status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("a_zero_points are given; expected NULL"));
  EXPECT_THAT(c_, testing::Each(99));
}

TEST(ConvDescriptor, QuantizationsByRowsAreUnsupported) {
  for (const auto quantization : {INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS}) {
    Draft draft;
    draft.desc.linear.a_quantization = quantization;
    const Result<Conv> conv = draft.Create();
    ASSERT_FALSE(conv);
    EXPECT_EQ(conv.error().status, INTACT_UNSUPPORTED);
    EXPECT_THAT(conv.error().message, HasSubstr("expected STATIC, TENSOR or DYNAMIC_TENSOR"));
  }
}

// The quantized input would not fit in scratch memory.
TEST(ConvDescriptor, BatchesOfADynamicInputAreLimited) {
  Draft draft;
  draft.desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  draft.desc.linear.a_source_type = INTACT_F32;
  draft.desc.input[0] = draft.desc.input[1] = draft.desc.stride[0] = draft.desc.stride[1] = 1 << 18;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  EXPECT_TRUE(conv->Prepare(4));
  const Result<intact_run_info> run = conv->Prepare(5);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("batch is 5; expected 0 to 4"));
}

// Floats through the C++ interface: x has the range [0, 255], so the scale is 1 and the zero point 0.
TEST(ConvRunOfFloats, QuantizesTheInput) {
  Draft draft;
  draft.desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  draft.desc.linear.a_source_type = INTACT_F32;
  draft.desc.linear.c_type = INTACT_F16;
  const Result<Conv> conv = draft.Create();
  ASSERT_TRUE(conv) << conv.error().message;
  std::vector<float> x(4 * 6 * 4, 2.25f);
  x.back() = 255.0f;
  std::vector<Float16> y(4 * 6 * 6);
  const Error error = conv->Run(PixelView<const float>{x.data(), 1, {4, 6}, 4},
                                PixelView<Float16>{y.data(), 1, {4, 6}, 6}, {.threads = 2});
  ASSERT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(y[0].bits, 0x4c00);  // 16: a corner sees four taps of four channels, 2 each, by 0.5
  const Error wrong =
      conv->Run(PixelView<const uint8_t>{nullptr, 1, {4, 6}, 4}, PixelView<Float16>{y.data(), 1, {4, 6}, 6});
  EXPECT_EQ(wrong.status, INTACT_INVALID_ARGUMENT);
}

TEST_F(ConvRun, PartsMakeTheWhole) {
  ASSERT_EQ(conv_->Run(args_).status, INTACT_OK);
  const std::vector<uint8_t> whole = c_;
  for (const int parts : {1, 2, 3, 7, 1000}) {
    std::fill(c_.begin(), c_.end(), 99);
    for (int part = parts - 1; part >= 0; --part)
      ASSERT_EQ(conv_->RunPart(args_, part, parts).status, INTACT_OK);
    EXPECT_EQ(c_, whole) << parts;
  }
  EXPECT_EQ(whole[0], 3 * 4 * 4 / 2);      // a corner sees four taps
  EXPECT_EQ(whole[6 * 7], 3 * 4 * 9 / 2);  // pixel (1, 1) sees all nine taps
}

// A group of eight channels has four pairs. The schedule separates up to four heavy channels, so that no quad
// is split. Of five heavy channels two meet, once in each tap of each column.
TEST(ConvCertificate, SchedulesKeepHeavyChannelsApart) {
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512}) {
    if (intact_isa_available(isa) == 0) continue;  // ConvDifferential reports it
    for (const int heavy : {0, 2, 4, 5}) {
      Draft draft;
      draft.desc.input_channels = draft.desc.output_channels = 16;
      draft.desc.groups = 2;
      draft.desc.linear.max_isa = isa;
      constexpr int kTaps = 9;
      draft.weights.assign(size_t{16} * kTaps * 8, 1);
      for (size_t i = 0; i < size_t{8} * kTaps; ++i) {  // of the first group
        std::fill_n(&draft.weights[i * 8], heavy, int8_t{-100});
      }
      const Result<Conv> conv = draft.Create();
      ASSERT_TRUE(conv) << conv.error().message;
      const Result<intact_certificate> made = conv->Certificate(INTACT_PAIRING_WITHIN_TAP);
      ASSERT_TRUE(made) << made.error().message;
      const intact_certificate& certificate = *made;
      EXPECT_EQ(certificate.schedule_quads, 16 * kTaps * 2);
      EXPECT_EQ(certificate.schedule_items, 16 * kTaps * 2 + (heavy == 5 ? 8 * kTaps : 0)) << heavy;
    }
  }
}

// Pairs are adjacent channels within a tap. An odd last channel is alone, in any layout of the kernel.
TEST(ConvCertificate, CountsPairsOfChannels) {
  Draft draft;
  draft.desc.input_channels = 3;
  draft.weights.assign(size_t{6} * 9 * 3, 0);
  draft.weights[0] = draft.weights[1] = 127;  // channels 0 and 1 of the first tap: a pair
  draft.weights[2] = draft.weights[3] = 127;  // channel 2, and channel 0 of the next tap: not a pair
  draft.weights[5 * 27] = draft.weights[5 * 27 + 1] = -128;
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512, INTACT_ISA_ANY}) {
    draft.desc.linear.max_isa = isa;
    const Result<Conv> conv = draft.Create();
    ASSERT_TRUE(conv) << conv.error().message;
    const Result<intact_certificate> certificate = conv->Certificate(INTACT_PAIRING_WITHIN_TAP);
    ASSERT_TRUE(certificate) << certificate.error().message;
    EXPECT_EQ(certificate->pairs, 6 * 9 * 2);
    EXPECT_EQ(certificate->failing_pairs, 2);
    EXPECT_EQ(certificate->worst_column, 0);
    EXPECT_EQ(certificate->worst_column_failing_pairs, 1);
    EXPECT_EQ(certificate->a_max, 255);
    EXPECT_EQ(certificate->accumulator_max, 4 * 127 * 255);
    EXPECT_EQ(certificate->accumulator_min, -2 * 128 * 255);
  }
}

// Failing pairs for activations from 0 to 255, counted in the caller's weights as the contract defines them.
struct PairCount {
  int64_t pairs = 0, failing = 0;
  int64_t worst_column = 0, of_worst_column = 0;
  std::vector<std::array<int64_t, 5>> list;  // output channel, number of the tap, channel, weights
};

PairCount CountPairs(const reference::Conv& conv, intact_pairing pairing) {
  const int64_t inputs = conv.geometry.GroupInputs();
  const int64_t depths = conv.geometry.Taps() * inputs;
  // Pairs do not cross the end of a row of depths.
  const int64_t row = pairing == INTACT_PAIRING_FLATTENED ? depths : inputs;
  PairCount count;
  for (int64_t column = 0; column < conv.geometry.output_channels; ++column) {
    int64_t failing = 0;
    for (int64_t begin = 0; begin < depths; begin += row) {
      const auto weight = [&](int64_t depth) {
        if (depth == begin + row) return 0;
        const auto at = static_cast<size_t>(column * depths + depth);
        return core::DecodeInt8(conv.b_type, static_cast<uint8_t>(conv.b[at])) + reference::WeightShift(conv);
      };
      for (int64_t depth = begin; depth < begin + row; depth += 2, ++count.pairs) {
        const int32_t w0 = weight(depth);
        const int32_t w1 = weight(depth + 1);
        const int32_t most = 255 * (std::max(w0, 0) + std::max(w1, 0));
        const int32_t least = 255 * (std::min(w0, 0) + std::min(w1, 0));
        if (most <= 32767 && least >= -32768) continue;
        ++failing;
        count.list.push_back({column, depth / inputs, depth % inputs, w0, w1});
      }
    }
    count.failing += failing;
    if (failing <= count.of_worst_column) continue;
    count.worst_column = column;
    count.of_worst_column = failing;
  }
  return count;
}

// Lists the pairs in slices, and checks that their witnesses clamp.
void ExpectListed(const Conv& conv, intact_pairing pairing, const reference::ConvGeometry& geometry,
                  const std::vector<std::array<int64_t, 5>>& expected) {
  constexpr int64_t kSlice = 7;
  std::array<intact_conv_failing_pair, kSlice> pairs;
  std::vector<std::array<int64_t, 5>> listed;
  int64_t written = kSlice;
  for (int64_t first = 0; written == kSlice; first += kSlice) {
    ASSERT_EQ(intact_conv_failing_pairs(conv.handle(), pairing, first, kSlice, pairs.data(), &written),
              INTACT_OK);
    for (const intact_conv_failing_pair& pair : std::span(pairs).first(static_cast<size_t>(written))) {
      int64_t tap = 0;
      for (int i = 0; i < geometry.dims; ++i) {
        const size_t axis = geometry.axes.size() - static_cast<size_t>(geometry.dims - i);
        tap = tap * geometry.axes[axis].kernel + pair.tap[i];
      }
      listed.push_back({pair.output_channel, tap, pair.channel, pair.w0, pair.w1});
      EXPECT_EQ(pair.sum, pair.a0 * pair.w0 + pair.a1 * pair.w1);
      EXPECT_TRUE(pair.sum > 32767 || pair.sum < -32768);
      EXPECT_THAT((std::array{pair.a0, pair.a1}),
                  testing::Each(testing::AllOf(testing::Ge(0), testing::Le(255))));
    }
  }
  EXPECT_EQ(listed, expected);
}

// Counts pairs of adjacent channels within taps, however the plan divides its weights: phases of a transposed
// convolution, taps that no output reads, blocks of groups, planes.
TEST(ConvCertificate, CountsTheCallersWeightsWhateverTheLayout) {
  for (const char* line : {
           "conv u8s8s32 in=7x6 c=20 o=35 kernel=3x3 pad=1x1 fill=extremes",
           "conv u8s8s32 in=7x6 c=3 o=35 kernel=3x5 pad=1x1 fill=extremes",
           "conv u8s8s32 in=7x6 c=5 o=17 kernel=1x1 fill=extremes",
           "conv s8u8s32 in=7x6 c=12 o=20 groups=4 kernel=3x3 zb=90 fill=extremes",
           "conv u8s8s32 in=7x6 c=128 o=128 groups=32 kernel=3x3 fill=extremes",
           "conv u8s8s32 in=7x6 c=35 o=35 groups=35 kernel=3x3 fill=extremes",
           "conv u8u8s32 in=5x4 c=7 o=18 kernel=4x3 stride=2x3 pad=1x1 transposed=yes fill=extremes",
           "conv u8s8s32 in=2 c=6 o=3 kernel=5 stride=4 pad=6:0 outpad=3 transposed=yes fill=extremes",
           "conv u8s8s32 in=1 c=5 o=3 kernel=1 stride=4 pad=1:0 outpad=3 transposed=yes fill=extremes",
       }) {
    SCOPED_TRACE(line);
    const reference::Conv conv = verify::MaterializeConv(Parsed(line));
    for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_ANY}) {
      ConvDesc desc = verify::DescOf(conv, {});
      desc.linear.max_isa = isa;
      const Result<Conv> plan = Conv::Create(desc, conv.b.data());
      ASSERT_TRUE(plan) << plan.error().message;
      for (const intact_pairing pairing : {INTACT_PAIRING_WITHIN_TAP, INTACT_PAIRING_FLATTENED}) {
        const Result<intact_certificate> certificate = plan->Certificate(pairing);
        ASSERT_TRUE(certificate) << certificate.error().message;
        const PairCount expected = CountPairs(conv, pairing);
        // A single product never clamps.
        EXPECT_EQ(expected.failing > 0,
                  conv.geometry.GroupInputs() > 1 ||
                      (pairing == INTACT_PAIRING_FLATTENED && conv.geometry.Taps() > 1));
        EXPECT_EQ(certificate->pairing, pairing);
        EXPECT_EQ(certificate->pairs, expected.pairs);
        EXPECT_EQ(certificate->failing_pairs, expected.failing);
        EXPECT_EQ(certificate->worst_column, expected.worst_column);
        EXPECT_EQ(certificate->worst_column_failing_pairs, expected.of_worst_column);
        ExpectListed(*plan, pairing, conv.geometry, expected.list);
      }
    }
  }
}

TEST(ConvCertificate, ListsFromAnyNumberOn) {
  const reference::Conv conv =
      verify::MaterializeConv(Parsed("conv u8s8s32 in=4x4 c=6 o=40 kernel=2x2 fill=extremes"));
  const Result<Conv> plan = Conv::Create(verify::DescOf(conv, {}), conv.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  const auto failing = static_cast<int64_t>(CountPairs(conv, INTACT_PAIRING_WITHIN_TAP).list.size());
  std::vector<intact_conv_failing_pair> pairs(static_cast<size_t>(failing) + 1);
  int64_t written = -1;
  const auto list = [&](int64_t first, int64_t count) {
    return intact_conv_failing_pairs(plan->handle(), INTACT_PAIRING_WITHIN_TAP, first, count, pairs.data(),
                                     &written);
  };
  ASSERT_EQ(list(0, 0), INTACT_OK);
  EXPECT_EQ(written, 0);
  ASSERT_EQ(list(failing - 1, 100), INTACT_OK);
  EXPECT_EQ(written, 1);
  EXPECT_EQ(pairs[0].output_channel, 39);
  ASSERT_EQ(list(failing, 100), INTACT_OK);
  EXPECT_EQ(written, 0);
  EXPECT_EQ(list(-1, 1), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("first is -1 and count is 1; expected 0 or more"));
  EXPECT_EQ(intact_conv_failing_pairs(plan->handle(), INTACT_PAIRING_WITHIN_TAP, 0, 1, nullptr, &written),
            INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(intact_conv_failing_pairs(plan->handle(), INTACT_PAIRING_WITHIN_TAP, 0, 1, pairs.data(), nullptr),
            INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(intact_conv_failing_pairs(nullptr, INTACT_PAIRING_WITHIN_TAP, 0, 1, pairs.data(), &written),
            INTACT_INVALID_ARGUMENT);
}

// Activations of 0 to 10 minus a zero point of 0 to 10, four of them multiplied by 100.
TEST(ConvQuantizationOfRuns, BoundsSumsByTheActivationRange) {
  ConvDesc desc = MakeConvDesc();
  desc.input_channels = 4;
  desc.output_channels = 1;
  desc.input[0] = desc.input[1] = 2;
  desc.linear.a_max = 10;
  desc.linear.range_check = INTACT_RANGE_UNCHECKED;
  desc.linear.a_quantization = INTACT_QUANTIZATION_TENSOR;
  const std::vector<int8_t> weights(4, 100);
  for (const int32_t mode : {INTACT_EXACT, INTACT_SATURATING}) {
    desc.linear.mode = mode;
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    ASSERT_TRUE(conv) << conv.error().message;
    intact_conv_info info = INTACT_CONV_INFO_INIT;
    ASSERT_EQ(intact_conv_query(conv->handle(), &info), INTACT_OK);
    EXPECT_EQ(info.accumulator_min, -4000);
    EXPECT_EQ(info.accumulator_max, 4000);
  }
  GemmDesc gemm = MakeGemmDesc();
  gemm.n = 1;
  gemm.k = 100000;
  gemm.linear = desc.linear;
  gemm.linear.mode = INTACT_EXACT;
  gemm.linear.a_max = 127;
  const std::vector<int8_t> b(100000, 127);
  const Result<Gemm> plan = Gemm::Create(gemm, b.data());
  EXPECT_TRUE(plan) << plan.error().message;
}

TEST(ConvCertificate, NeedsItsStruct) {
  const Result<Conv> conv = Draft().Create();
  ASSERT_TRUE(conv);
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  certificate.struct_size = 8;
  EXPECT_EQ(intact_conv_certificate(conv->handle(), INTACT_PAIRING_WITHIN_TAP, &certificate),
            INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("certificate->struct_size is 8"));
  certificate.struct_size = 96;  // the first version's size
  EXPECT_EQ(intact_conv_certificate(conv->handle(), INTACT_PAIRING_WITHIN_TAP, &certificate), INTACT_OK)
      << intact_last_error();
  EXPECT_EQ(certificate.pairs, 6 * 9 * 2);
  certificate = INTACT_CERTIFICATE_INIT;
  EXPECT_EQ(intact_conv_certificate(conv->handle(), 2, &certificate), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("pairing is 2; expected an intact_pairing"));
  intact_conv_info info = INTACT_CONV_INFO_INIT;
  info.struct_size = 9;
  EXPECT_EQ(intact_conv_query(conv->handle(), &info), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("info->struct_size is 9"));
}

}  // namespace
}  // namespace intact::tests
