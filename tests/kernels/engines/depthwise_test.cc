// Depthwise rows on every ISA compared with a plain loop over taps, and the schedules that they run. C ends
// at an unmapped page, and so does the band with its slack.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "kernels/codegen/depthwise_interleaving.h"
#include "kernels/engines/depthwise_engine.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/weights/linear_weights.h"
#include "reference/contract/requantize.h"
#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_matrix.h"

namespace intact::kernels {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

struct Filter {
  int64_t depth = 1, height = 1, width = 1;
  int64_t stride = 1, dilation = 1;
  bool has_phases = false;  // columns staged by their remainder modulo the stride
};

std::ostream& operator<<(std::ostream& out, const Filter& f) {
  return out << f.depth << "x" << f.height << "x" << f.width << " stride " << f.stride << " dilation "
             << f.dilation << (f.has_phases ? " in phases" : "");
}

enum class Fill : uint8_t { kRandom, kExtremes };

// The epilogues that kernels distinguish.
enum class Output : uint8_t { kShifted, kPlain, kClamped, kHuge };

struct Case {
  core::Isa isa = core::Isa::kAvx2;
  Filter filter;
  int64_t channels = 1, pixels = 1;
  intact_type c_type = INTACT_S32;
  Fill fill = Fill::kRandom;
  bool has_weight_zero_points = false;
  bool has_bias = false;
  int64_t c_padding = 0;  // elements between pixels of C
  Output output = Output::kShifted;
  intact_type residual = INTACT_TYPE_NONE;
  bool is_in_place = false;  // C is the residual
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << intact_isa_name(static_cast<intact_isa>(c.isa)) << " " << c.filter << ", " << c.channels
             << " channels, " << c.pixels << " pixels, c_type " << c.c_type
             << (c.fill == Fill::kExtremes ? ", extremes" : "") << (c.has_weight_zero_points ? ", zb" : "")
             << (c.has_bias ? ", bias" : "") << ", c_padding " << c.c_padding << ", output "
             << static_cast<int>(c.output) << ", residual " << c.residual
             << (c.is_in_place ? " in place" : "");
}

TapGrid GridOf(const Filter& filter, int64_t channels, int64_t pixels) {
  const int64_t columns = (pixels - 1) * filter.stride + (filter.width - 1) * filter.dilation + 1;
  const int64_t phases = filter.has_phases ? filter.stride : 1;
  const int64_t phase_bytes = (columns + phases - 1) / phases * channels;
  const int64_t row_bytes = phases * phase_bytes;
  TapGrid taps;
  taps.rows = {filter.depth, filter.height};
  taps.row_strides_bytes[1] = filter.dilation * row_bytes;
  taps.row_strides_bytes[0] = filter.dilation * ((filter.height - 1) * filter.dilation + 1) * row_bytes;
  for (int64_t i = 0; i < filter.width; ++i) {
    const int64_t column = i * filter.dilation;
    taps.columns.push_back(column % phases * phase_bytes + column / phases * channels);
  }
  taps.pixel_stride_bytes = channels * filter.stride / phases;
  return taps;
}

int64_t BandBytes(const TapGrid& taps, int64_t channels, int64_t pixels) {
  int64_t last = 0;
  for (int64_t tap = 0; tap < taps.taps(); ++tap) last = std::max(last, taps.Offset(tap));
  return last + (pixels - 1) * taps.pixel_stride_bytes + channels;
}

// The arguments that a plan would give the engine, and the same operation for the plain loop.
class Problem {
 public:
  explicit Problem(const Case& one)
      : case_(one),
        taps_(GridOf(one.filter, one.channels, one.pixels)),
        random_(1, one.channels, one.pixels) {
    band_.resize(static_cast<size_t>(BandBytes(taps_, one.channels, one.pixels)));
    for (uint8_t& value : band_) value = static_cast<uint8_t>(Draw(0, 255));
    weights_.resize(static_cast<size_t>(taps_.taps() * one.channels));
    for (int8_t& weight : weights_) weight = static_cast<int8_t>(Draw(-128, 127));
    MakeResidual();
    MakeData();
  }

  const KernelData& data() const { return *data_; }
  const TapGrid& taps() const { return taps_; }
  const std::vector<uint8_t>& band() const { return band_; }
  const std::vector<uint8_t>& residual() const { return residual_; }
  int64_t element_bytes() const { return core::BytesOf(case_.c_type); }

  std::vector<uint8_t> Expected() const {
    std::vector<uint8_t> c;
    for (int64_t pixel = 0; pixel < case_.pixels; ++pixel) {
      for (int64_t channel = 0; channel < case_.channels; ++channel) Append(pixel, channel, &c);
    }
    return c;
  }

 private:
  int64_t Draw(int64_t low, int64_t high) {
    if (case_.fill == Fill::kRandom || random_.Integer(0, 7) == 0) return random_.Integer(low, high);
    return random_.Integer(0, 2) == 0 ? low : high;
  }

  void MakeData() {
    const int64_t n = case_.channels;
    const int64_t taps = taps_.taps();
    linear_.n = n;
    linear_.bias_s32.resize(static_cast<size_t>(n));
    for (int32_t& bias : linear_.bias_s32) bias = static_cast<int32_t>(random_.Integer(-100000, 100000));
    if (case_.has_weight_zero_points) {
      linear_.b_zero_points.resize(static_cast<size_t>(n));
      for (int32_t& zero_point : linear_.b_zero_points) zero_point = static_cast<int32_t>(Draw(-128, 127));
    }
    if (case_.c_type != INTACT_S32) {
      linear_.scales.resize(static_cast<size_t>(n));
      for (float& scale : linear_.scales) scale = static_cast<float>(random_.Unit() * Scale());
    }
    if (case_.has_bias) {
      linear_.bias_f32.resize(static_cast<size_t>(n));
      for (float& bias : linear_.bias_f32) bias = static_cast<float>(random_.Gauss() * 20);
    }
    SetOutput();
    PadColumns(&linear_.bias_s32);
    PadColumns(&linear_.b_zero_points);
    PadColumns(&linear_.scales);
    PadColumns(&linear_.bias_f32);
    auto packed = LinearWeights::Pack(linear_, {weights_.data(), taps, n, n, 1}, {}, false);
    ASSERT_TRUE(packed) << packed.error().message;
    data_.emplace(std::move(*packed), case_.isa, /*folds_zero_points=*/false);
    ASSERT_EQ(data_->epilogue.has_b_zero_points, linear_.HasWeightZeroPoints());
  }

  // The largest scale: outputs are in range, or far beyond int32.
  double Scale() const { return case_.output == Output::kHuge ? 1e6 : 1e-3; }

  void SetOutput() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    float lo = -kInfinity, hi = kInfinity;
    if (case_.output == Output::kClamped) lo = -30.5f, hi = 60.5f;
    const core::Clamp clamp = {lo, hi};
    output_.c_type = case_.c_type;
    output_.has_bias_f32 = case_.has_bias;
    if (element_bytes() == 1) {
      const int32_t least = case_.c_type == INTACT_S8 ? -128 : 0;
      output_.zero_point = case_.output == Output::kPlain ? 0 : least + 100;
      const auto type_lo = static_cast<float>(least - output_.zero_point);
      lo = std::max(lo, type_lo);
      hi = std::min(hi, type_lo + 255.0f);
    }
    linear_.output.c_type = case_.c_type;
    linear_.output.bounds = {lo, hi, output_.zero_point};
    if (case_.residual != INTACT_TYPE_NONE) {
      output_.post_ops.Add(core::AddResidual{case_.residual, kResidualScale, ResidualZeroPoint()});
    }
    if (case_.output == Output::kClamped) output_.post_ops.Add(clamp);
  }

  int32_t Accumulator(int64_t pixel, int64_t channel) const {
    const auto n = static_cast<size_t>(channel);
    int32_t sum = linear_.bias_s32[n];
    for (int64_t tap = 0; tap < taps_.taps(); ++tap) {
      const int64_t at = pixel * taps_.pixel_stride_bytes + taps_.Offset(tap) + channel;
      const int32_t weight = weights_[static_cast<size_t>(tap * case_.channels + channel)];
      sum += band_[static_cast<size_t>(at)] * (weight - linear_.WeightZeroPoint(channel));
    }
    return sum;
  }

  static constexpr std::array kBeyondInt32 = {3e9f, -3e9f, std::numeric_limits<float>::infinity(),
                                              std::numeric_limits<float>::quiet_NaN()};

  static constexpr float kResidualScale = 0.75f;
  int32_t ResidualZeroPoint() const { return case_.residual == INTACT_F32 ? 0 : 17; }

  void MakeResidual() {
    const int64_t count = case_.residual == INTACT_TYPE_NONE ? 0 : case_.pixels * case_.channels;
    for (int64_t i = 0; i < count; ++i) {
      auto f = static_cast<float>(random_.Gauss() * 100);
      const auto beyond = static_cast<size_t>(random_.Integer(0, 19));
      if (beyond < kBeyondInt32.size()) f = kBeyondInt32[beyond];
      const auto byte = static_cast<uint8_t>(random_.Integer(0, 255));
      const auto* const bytes = case_.residual == INTACT_F32 ? reinterpret_cast<const uint8_t*>(&f) : &byte;
      residual_.insert(residual_.end(), bytes, bytes + core::BytesOf(case_.residual));
    }
    if (count == 0) return;
    linear_.output.residual_type = case_.residual;
    linear_.output.residual = {kResidualScale, ResidualZeroPoint()};
  }

  // The residual minus its zero point.
  float ResidualAt(int64_t i) const {
    const uint8_t* const element = residual_.data() + i * core::BytesOf(case_.residual);
    float f = 0;
    if (case_.residual == INTACT_F32) {
      std::memcpy(&f, element, sizeof(f));
    } else {
      const int32_t value = case_.residual == INTACT_S8 ? static_cast<int8_t>(*element) : *element;
      f = static_cast<float>(value - linear_.output.residual.zero_point);
    }
    return f;
  }

  void Append(int64_t pixel, int64_t channel, std::vector<uint8_t>* c) const {
    const int32_t y = Accumulator(pixel, channel);
    const auto n = static_cast<size_t>(channel);
    reference::Requantization q = output_;
    if (case_.c_type != INTACT_S32) q.scale = linear_.scales[n];
    if (case_.has_bias) q.bias_f32 = linear_.bias_f32[n];
    if (case_.residual != INTACT_TYPE_NONE) {
      q.residual = ResidualAt(pixel * case_.channels + channel);
    }
    const size_t size = c->size();
    c->resize(size + static_cast<size_t>(element_bytes()));
    if (case_.c_type == INTACT_F32) {
      const float f = reference::Dequantize(y, q);
      std::memcpy(c->data() + size, &f, sizeof(f));
    } else {
      const int32_t value = case_.c_type == INTACT_S32 ? y : reference::Requantize(y, q);
      std::memcpy(c->data() + size, &value, static_cast<size_t>(element_bytes()));
    }
  }

  Case case_;
  TapGrid taps_;
  support::Random random_;
  std::vector<uint8_t> band_, residual_;
  std::vector<int8_t> weights_;
  LinearProblem linear_;
  std::optional<KernelData> data_;
  reference::Requantization output_;  // without the values that differ by channel
};

void ExpectExact(const Case& one, bool in_slices) {
  SCOPED_TRACE(testing::Message() << one << (in_slices ? ", in slices of channels" : ""));
  const Problem problem(one);
  // Slices: of an engine for rows of 1, 2 or 4 pixels, which have no tails. Engines for few pixels have small blocks.
  const int64_t row_pixels = in_slices ? int64_t{1} << one.pixels % 3 : one.pixels;
  const auto engine = DepthwiseEngine::Create(problem.data(), problem.taps(), one.isa, row_pixels);
  ASSERT_TRUE(engine) << engine.error().message;
  const auto band_bytes = std::ssize(problem.band());
  auto band = verify::GuardedMatrix::Allocate(1, band_bytes + DepthwiseEngine::kSlackBytes,
                                              band_bytes + DepthwiseEngine::kSlackBytes);
  const int64_t stride = (one.channels + one.c_padding) * problem.element_bytes();
  auto c = verify::GuardedMatrix::Allocate(one.pixels, one.channels * problem.element_bytes(), stride);
  ASSERT_TRUE(band && c);
  std::vector<uint8_t> padded = problem.band();
  padded.resize(padded.size() + DepthwiseEngine::kSlackBytes, 0xff);
  band->Load(padded.data());
  OutputMap output;
  output.c = c->data();
  output.c_stride_bytes = stride;
  output.c_bytes = core::BytesOf(one.c_type);
  Result<verify::GuardedMatrix> residual = verify::GuardedMatrix::Allocate(1, 1, 1);
  if (one.is_in_place) {
    const int64_t row_bytes = one.channels * problem.element_bytes();
    CopyTile(problem.residual().data(), row_bytes, one.pixels, row_bytes, c->data(), stride);
    output.residual = c->data();
    output.residual_stride_bytes = stride;
  } else if (one.residual != INTACT_TYPE_NONE) {
    output.residual_stride_bytes = (one.channels + 2) * core::BytesOf(one.residual);
    residual = verify::GuardedMatrix::Allocate(one.pixels, one.channels * core::BytesOf(one.residual),
                                               output.residual_stride_bytes);
    residual->Load(problem.residual().data());
    output.residual = residual->data();
  }
  if (one.residual != INTACT_TYPE_NONE) output.residual_bytes = core::BytesOf(one.residual);
  const int64_t slice = in_slices ? (*engine)->channel_step() : one.channels;
  for (int64_t begin = 0; begin < one.channels; begin += slice) {
    (*engine)->RunRow({band->data(), one.pixels, output}, begin, std::min(begin + slice, one.channels));
  }
  EXPECT_EQ(c->StrayWrite(), std::nullopt);
  ASSERT_EQ(c->Dense(), problem.Expected()) << (*engine)->KernelName();
}

void ExpectExact(const Case& one) {
  ExpectExact(one, false);
  ExpectExact(one, true);
}

// The last four are not unrolled: they have whole groups of taps, and tails of one, two and three taps.
const std::vector<Filter> kFilters = {{1, 3, 3},   {1, 5, 5},  {1, 7, 7},   {3, 3, 3},  {1, 1, 3},
                                      {1, 2, 2},   {1, 1, 1},  {1, 1, 4},   {1, 4, 1},  {1, 1, 9},
                                      {1, 16, 16}, {3, 7, 11}, {1, 1, 227}, {2, 1, 113}};

class Depthwise : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
  static core::Isa isa() { return static_cast<core::Isa>(GetParam()); }
};

TEST_P(Depthwise, IsExactWithEveryFilterAndStride) {
  for (const Filter& shape : kFilters) {
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t dilation : {1, 2}) {
        for (const bool has_phases : {false, true}) {
          if (has_phases && stride == 1) continue;
          const Filter filter{shape.depth, shape.height, shape.width, stride, dilation, has_phases};
          for (const int64_t channels : {24, 64}) {
            for (const int64_t pixels : {1, 2, 3, 4, 5, 9}) {
              for (const Fill fill : {Fill::kRandom, Fill::kExtremes}) {
                ExpectExact({isa(), filter, channels, pixels, INTACT_S32, fill});
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(Depthwise, IsExactWithEveryNumberOfChannels) {
  const std::array types = {INTACT_U8, INTACT_S8, INTACT_F32, INTACT_S32};
  size_t turn = 0;
  for (const int64_t channels : {1,  2,  3,  5,  8,  15, 16, 17, 24,  31,  32,  33,  40,  48, 63,
                                 64, 65, 72, 80, 95, 96, 97, 99, 100, 127, 128, 129, 144, 200}) {
    for (int64_t pixels = 1; pixels <= 9; ++pixels) {
      for (const int64_t c_padding : {0, 3}) {
        const Filter filter{1, 3, 3, 1 + static_cast<int64_t>(turn / 4 % 2)};
        ExpectExact({isa(), filter, channels, pixels, types[turn++ % types.size()], Fill::kExtremes, false,
                     true, c_padding});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows of few channels are computed as lines of adjacent elements, also if pixels are apart.
TEST_P(Depthwise, IsExactInLongAndShortLines) {
  const std::array types = {INTACT_U8, INTACT_F32, INTACT_S32};
  size_t turn = 0;
  for (const int64_t channels : {1, 2, 3, 7, 16, 20, 31}) {
    for (const int64_t stride : {1, 2, 3, 5}) {
      for (const int64_t pixels : {1, 11, 63, 64, 65, 341, 342, 700, 1025}) {
        const Filter filter{1, 1, 1 + static_cast<int64_t>(turn % 4), stride};
        const int64_t c_padding = static_cast<int64_t>(turn / 4 % 2) * 3;
        ExpectExact({isa(), filter, channels, pixels, types[turn++ % types.size()], Fill::kRandom,
                     turn % 5 == 0, true, c_padding});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Depthwise, RequantizesToEveryType) {
  for (const intact_type type : {INTACT_U8, INTACT_S8, INTACT_F32, INTACT_S32}) {
    for (const Output output : {Output::kShifted, Output::kPlain, Output::kClamped, Output::kHuge}) {
      for (const bool has_bias : {false, true}) {
        if (type == INTACT_S32 && (has_bias || output != Output::kShifted)) continue;
        for (const bool has_weight_zero_points : {false, true}) {
          for (const int64_t channels : {16, 24, 64, 70, 96}) {
            for (const Fill fill : {Fill::kRandom, Fill::kExtremes}) {
              ExpectExact(
                  {isa(), {1, 3, 3}, channels, 7, type, fill, has_weight_zero_points, has_bias, 0, output});
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(Depthwise, AddsResiduals) {
  size_t turn = 0;
  for (const intact_type residual : {INTACT_U8, INTACT_S8, INTACT_F32}) {
    for (const intact_type type : {INTACT_U8, INTACT_S8, INTACT_F32}) {
      const bool may_be_in_place = (residual == INTACT_F32) == (type == INTACT_F32);
      for (const int64_t channels : {5, 24, 64, 70, 96, 150}) {
        for (const int64_t pixels : {1, 5, 9, 17}) {
          const bool is_in_place = may_be_in_place && turn++ % 2 == 0;
          const bool has_bias = turn % 3 == 0;
          ExpectExact({isa(),
                       {1, 3, 3},
                       channels,
                       pixels,
                       type,
                       Fill::kRandom,
                       false,
                       has_bias,
                       channels % 4,
                       Output::kPlain,
                       residual,
                       is_in_place});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Depthwise, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

// ----- schedules -------------------------------------------------------------------------------------------

// Every pixel uses each of its taps once, and no other taps.
void ExpectSchedule(const TapGrid& taps, jit::DotKind dot, int most) {
  const DepthwiseInterleaving schedule(taps.Shape(most), dot);
  const std::vector<int64_t> offsets = taps.PlaceOffsets(most);
  for (int pixels = 1; pixels <= most; ++pixels) {
    std::map<std::pair<int, int64_t>, int> weighed;  // (pixel, tap)
    for (const TapGroup& group : schedule.Groups(pixels)) {
      ASSERT_EQ(std::ssize(group.places), TapsPerGroup(dot));
      for (const TapGroup::Use& use : group.uses) {
        const std::vector<int>& weights = schedule.weights()[static_cast<size_t>(use.weights)];
        for (size_t i = 0; i < weights.size(); ++i) {
          if (weights[i] < 0) continue;
          EXPECT_EQ(offsets[static_cast<size_t>(group.places[i])],
                    use.pixel * taps.pixel_stride_bytes + taps.Offset(weights[i]));
          ++weighed[{use.pixel, weights[i]}];
        }
      }
      for (const int place : group.places) {
        const int64_t offset = offsets[static_cast<size_t>(place)];
        bool is_read = false;
        for (int pixel = 0; pixel < pixels; ++pixel) {
          for (int64_t tap = 0; tap < taps.taps(); ++tap) {
            is_read |= offset == pixel * taps.pixel_stride_bytes + taps.Offset(tap);
          }
        }
        EXPECT_TRUE(is_read) << offset;
      }
    }
    EXPECT_EQ(std::ssize(weighed), pixels * taps.taps());
    for (const auto& [tap, times] : weighed) EXPECT_EQ(times, 1) << tap.first << ", " << tap.second;
  }
}

TEST(DepthwiseInterleavings, WeighEachTapOnce) {
  for (const Filter& shape : kFilters) {
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t dilation : {1, 2}) {
        for (const bool has_phases : {false, true}) {
          const Filter filter{shape.depth, shape.height, shape.width, stride, dilation, has_phases};
          SCOPED_TRACE(testing::Message() << filter);
          for (const jit::DotKind dot : {jit::DotKind::kVnni, jit::DotKind::kWide}) {
            // A narrow band: places after a row's last pixel belong to the next row.
            for (const int64_t pixels : {1, 40}) ExpectSchedule(GridOf(filter, 64, pixels), dot, 4);
            ExpectSchedule(GridOf(filter, 64, 40), dot, 2);
          }
        }
      }
    }
  }
}

// Two pixels of a 3×3 filter at stride 1 share groups of four taps. With pixels of two bytes, rows form
// pairs.
TEST(DepthwiseInterleavings, ShareWhatNeighboursWant) {
  const TapGrid taps = GridOf({1, 3, 3}, 64, 40);
  EXPECT_EQ(DepthwiseInterleaving(taps.Shape(4), jit::DotKind::kVnni).weights().size(), 6u);
  EXPECT_EQ(DepthwiseInterleaving(taps.Shape(4), jit::DotKind::kVnni).Groups(4).size(), 6u);
  EXPECT_EQ(DepthwiseInterleaving(taps.Shape(2), jit::DotKind::kWide).Groups(2).size(), 6u);
}

// Channels, widths, and strides beyond the pixels that share do not change the kernel.
TEST(DepthwiseInterleavings, KnowNoDistances) {
  const auto name = [](const Filter& filter, int64_t channels, int64_t pixels) {
    return GridOf(filter, channels, pixels).Shape(4).Name();
  };
  EXPECT_EQ(name({1, 3, 3}, 64, 40), "3x3_x1_s1");
  EXPECT_EQ(name({1, 3, 3}, 32, 112), "3x3_x1_s1");
  EXPECT_EQ(name({3, 3, 3}, 64, 40), "9x3_x1_s1");
  EXPECT_EQ(name({1, 3, 3, 2}, 64, 40), "3x3_x1_s2");
  for (const int64_t stride : {3, 4, 5, 100}) EXPECT_EQ(name({1, 3, 3, stride}, 64, 40), "3x3_x1_s3");
  EXPECT_EQ(name({1, 1, 3, 1, 2}, 64, 40), "1x3_x2_s1");
  EXPECT_EQ(name({1, 1, 3, 3, 2}, 64, 40), "1x3_0.1.3_2.4.6_5.7.9_8.10.11");
  EXPECT_EQ(name({1, 1, 3, 2, 1, true}, 32, 40), name({1, 1, 3, 2, 1, true}, 64, 400));
  DepthwiseKernelSpec spec;
  spec.taps = GridOf({1, 3, 3}, 32, 40).Shape(2);
  spec.epilogue.c_type = INTACT_U8;
  EXPECT_EQ(spec.Name(), "u8s8u8_depthwise_3x3_x1_s1_2x32_wide_avx2");
}

TEST(DepthwiseEngines, SaveInstructionsWhereOutputsAreKnown) {
  const auto kernel_name = [](Output output) {
    const Problem problem(
        {core::Isa::kAvx2, {1, 3, 3}, 32, 9, INTACT_U8, Fill::kRandom, false, true, 0, output});
    const auto engine = DepthwiseEngine::Create(problem.data(), problem.taps(), core::Isa::kAvx2, 0);
    return engine ? (*engine)->KernelName().substr(0, 25) : engine.error().message;
  };
  EXPECT_EQ(kernel_name(Output::kHuge), "u8s8u8_bias_depthwise_3x3");
  EXPECT_EQ(kernel_name(Output::kShifted), "u8s8u8_bias_int32_depthwi");
  EXPECT_EQ(kernel_name(Output::kClamped), "u8s8u8_bias_int32_depthwi");
  EXPECT_EQ(kernel_name(Output::kPlain), "u8s8u8_bias_plain_depthwi");
}

}  // namespace
}  // namespace intact::kernels
