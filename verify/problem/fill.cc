#include "verify/problem/fill.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/models/operands.h"
#include "support/random.h"

namespace intact::verify {
namespace {

using reference::ConvGeometry;

// Streams of Random, one per tensor.
enum Stream : uint64_t {
  kActivationStream = 1,
  kWeightStream,
  kBiasStream,
  kScaleStream,
  kClampStream,
  kZeroPointStream,
  kResidualStream,
  kRowStream,
  kNumberStream,
  kFixedPointStream,
  kTableStream
};

// The shape that fills work on: a GEMM is a convolution with one tap; its pixels are the rows of A.
ConvGeometry ShapeOf(const Problem& p) {
  if (p.conv) return *p.conv;
  ConvGeometry shape;
  shape.axes.back().input = p.batch * p.m;
  shape.output_channels = p.n;
  shape.input_channels = p.k;
  return shape;
}

int64_t DepthOf(const ConvGeometry& shape) { return shape.Taps() * shape.GroupInputs(); }

// The zero point as a distance from the type's minimum, like the activations.
int64_t ZeroDistance(const Problem& p) { return p.a_type == INTACT_S8 ? int64_t{p.za} + 128 : p.za; }

constexpr int64_t kStrayRows = 155;

int64_t LargestWeight(const Problem& p) { return std::min(p.wmax, 127); }

uint8_t ToDistance(const Problem& p, double d) {
  return static_cast<uint8_t>(std::clamp(std::nearbyint(d), 0.0, static_cast<double>(p.LargestActivation())));
}

// kTies: how far activations are from the zero point, so that sums of a few hundred depths stay in an 8-bit
// range.
int64_t TieSteps(const Problem& p) {
  return std::max<int64_t>(1,
                           static_cast<int64_t>(60.0 / std::sqrt(static_cast<double>(DepthOf(ShapeOf(p))))));
}

uint8_t TieActivation(const Problem& p, support::Random& random) {
  return ToDistance(p, static_cast<double>(ZeroDistance(p) + random.Integer(-TieSteps(p), TieSteps(p))));
}

// One-sided and bell-shaped, as after a ReLU; three standard deviations reach the largest activation.
uint8_t HalfNormal(const Problem& p, int64_t start, support::Random& random) {
  const double width = static_cast<double>(std::max<int64_t>(p.LargestActivation() - start, 0)) / 3.0;
  return ToDistance(p, static_cast<double>(start) + std::fabs(random.Gauss()) * width);
}

// The activation of channel c of pixel m; there are `pixels` pixels. `hot`: the one channel of kOneHot.
uint8_t OneActivation(const Problem& p, int64_t pixels, int64_t m, int64_t c, int64_t hot,
                      support::Random& random) {
  const int64_t largest = p.LargestActivation();
  switch (p.fill) {
    case Fill::kUniform:
      break;
    case Fill::kExtremes:
      return static_cast<uint8_t>(random.Integer(0, 1) == 1 ? largest : 0);
    case Fill::kOneHot:
      if (c != hot) return ToDistance(p, static_cast<double>(ZeroDistance(p)));
      break;
    case Fill::kBait:
      return static_cast<uint8_t>(m % 2 == 0 ? random.Integer(largest - largest / 8, largest)
                                             : random.Integer(0, largest / 8));
    case Fill::kGauss:
    case Fill::kLaplace:
    case Fill::kStudent:
      return HalfNormal(p, 0, random);
    case Fill::kRelu:
      return random.Integer(0, 1) == 0 ? ToDistance(p, static_cast<double>(ZeroDistance(p)))
                                       : HalfNormal(p, ZeroDistance(p), random);
    case Fill::kRamp:
      return static_cast<uint8_t>(m * largest / std::max<int64_t>(pixels - 1, 1));
    case Fill::kTies:
      return TieActivation(p, random);
    case Fill::kBound:
    case Fill::kStray:
      break;
  }
  return static_cast<uint8_t>(random.Integer(0, largest));
}

// A column of real weights, quantized symmetrically: the largest magnitude becomes wmax.
template <class Draw>
std::vector<int64_t> QuantizedColumn(const Problem& p, Draw draw) {
  std::vector<double> real(static_cast<size_t>(DepthOf(ShapeOf(p))));
  double largest = std::numeric_limits<double>::min();
  for (double& w : real) {
    w = draw();
    largest = std::max(largest, std::fabs(w));
  }
  std::vector<int64_t> column(real.size());
  std::transform(real.begin(), real.end(), column.begin(),
                 [&](double w) { return static_cast<int64_t>(std::nearbyint(w / largest * p.wmax)); });
  return column;
}

// A column of pairs. draw(first, second) sets both weights of a pair; `second` is nullptr for a single
// weight. Pairs do not cross a tap's end.
template <class Draw>
std::vector<int64_t> PairedColumn(const Problem& p, Draw draw) {
  const ConvGeometry shape = ShapeOf(p);
  const auto channels = static_cast<size_t>(shape.GroupInputs());
  std::vector<int64_t> column(static_cast<size_t>(DepthOf(shape)));
  for (size_t tap = 0; tap < column.size(); tap += channels) {
    for (size_t c = 0; c < channels; c += 2) {
      draw(&column[tap + c], c + 1 < channels ? &column[tap + c + 1] : nullptr);
    }
  }
  return column;
}

// kBait: a quarter of the pairs are heavy and of one sign, so that 255·(w0 + w1) is far beyond int16. The
// others are too light to saturate.
std::vector<int64_t> BaitColumn(const Problem& p, support::Random& random) {
  bool is_first = true;
  return PairedColumn(p, [&](int64_t* w0, int64_t* w1) {
    const bool heavy = std::exchange(is_first, false) || random.Integer(0, 3) == 0;
    const int64_t sign = random.Integer(0, 1) == 0 ? -1 : 1;
    for (int64_t* w : {w0, w1}) {
      if (w == nullptr) continue;
      *w = heavy ? sign * random.Integer(p.wmax - p.wmax / 8, p.wmax)
                 : random.Integer(-p.wmax / 8, p.wmax / 8);
    }
  });
}

// kBound: pairs of one sign. Their sums are a fraction of a lane's capacity; one in eight has 1 more.
std::vector<int64_t> CapacityColumn(const Problem& p, support::Random& random) {
  return PairedColumn(p, [&](int64_t* w0, int64_t* w1) {
    const bool negative = random.Integer(0, 1) == 0;
    const int64_t capacity = (negative ? 32768 : 32767) / std::max<int64_t>(p.LargestActivation(), 1);
    const int64_t excess = random.Integer(0, 7) == 0 ? 1 : 0;
    const int64_t limit = negative ? p.wmax : LargestWeight(p);
    const int64_t sum = std::min((capacity >> random.Integer(0, 3)) + excess, 2 * limit);
    const int64_t first = random.Integer(std::max<int64_t>(sum - limit, 0), std::min(sum, limit));
    *w0 = negative ? -first : first;
    if (w1 != nullptr) *w1 = negative ? first - sum : sum - first;
  });
}

template <class Draw>
std::vector<int64_t> DrawnColumn(const Problem& p, Draw draw) {
  std::vector<int64_t> column(static_cast<size_t>(DepthOf(ShapeOf(p))));
  std::generate(column.begin(), column.end(), draw);
  return column;
}

std::vector<int64_t> Column(const Problem& p, int64_t n) {
  support::Random random(p.seed, kWeightStream, static_cast<uint64_t>(n));
  switch (p.fill) {
    case Fill::kUniform:
    case Fill::kOneHot:
    case Fill::kStray:
      return DrawnColumn(p, [&] { return random.Integer(-p.wmax, LargestWeight(p)); });
    case Fill::kExtremes:  // the first column holds only the largest: see FillPatch
      return DrawnColumn(p, [&] { return n == 0 || random.Integer(0, 1) == 1 ? LargestWeight(p) : -p.wmax; });
    case Fill::kBait:
      return BaitColumn(p, random);
    case Fill::kGauss:
    case Fill::kRelu:
    case Fill::kRamp:
      return QuantizedColumn(p, [&] { return random.Gauss(); });
    case Fill::kLaplace:
      return QuantizedColumn(p, [&] { return random.Laplace(); });
    case Fill::kStudent:
      return QuantizedColumn(p, [&] { return random.Student4(); });
    case Fill::kTies:
      return DrawnColumn(p, [&] { return random.Integer(-1, 1); });
    case Fill::kBound:
      if (n % 4 != 3) return CapacityColumn(p, random);
      return DrawnColumn(p, [&] { return random.Integer(-p.wmax, LargestWeight(p)); });
  }
  return {};
}

// Calls visit(number, output pixel) for output pixels whose patches (rows of A, or the input pixels under the
// taps) share no pixel with an earlier visited patch, so that each patch can be set freely.
template <class Visit>
void ForEachPatch(const ConvGeometry& shape, Visit visit) {
  std::vector<bool> taken(static_cast<size_t>(shape.InputPixels()));
  std::vector<size_t> rows;
  int64_t number = 0;
  for (int64_t m = 0; m < shape.OutputPixels(); ++m) {
    const reference::Pixel pixel = reference::PixelOf(shape, m);
    rows.clear();
    for (int64_t tap = 0; tap < shape.Taps(); ++tap) {
      const int64_t row = reference::InputRow(shape, pixel, reference::TapOf(shape, tap));
      if (row >= 0) rows.push_back(static_cast<size_t>(row));
    }
    if (std::ranges::any_of(rows, [&](size_t row) { return taken[row]; })) continue;
    for (const size_t row : rows) taken[row] = true;
    visit(number++, pixel);
  }
}

// Sets the patch of an output pixel to activation(group, depth of the group).
template <class Activation>
void SetPatch(const ConvGeometry& shape, const reference::Pixel& pixel, Activation activation,
              std::vector<uint8_t>* a) {
  for (int64_t tap = 0; tap < shape.Taps(); ++tap) {
    const int64_t row = reference::InputRow(shape, pixel, reference::TapOf(shape, tap));
    if (row < 0) continue;
    uint8_t* to = &(*a)[static_cast<size_t>(row * shape.input_channels)];
    for (int64_t group = 0; group < shape.groups; ++group) {
      for (int64_t c = 0; c < shape.GroupInputs(); ++c)
        *to++ = activation(group, tap * shape.GroupInputs() + c);
    }
  }
}

// Sets a patch to drive the sums of one column per group as far as activations in [low, high] can: up for
// even numbers, down for odd ones.
void AimPatch(const Problem& p, int64_t number, const reference::Pixel& pixel, int32_t low, int32_t high,
              std::vector<uint8_t>* a) {
  const ConvGeometry shape = ShapeOf(p);
  const bool negative = number % 2 != 0;
  const int64_t first_column = p.runtime_b ? number / p.m * p.n : 0;
  std::vector<std::vector<int64_t>> columns;
  for (int64_t group = 0; group < shape.groups; ++group) {
    const int64_t column = group * shape.GroupOutputs() + number / 2 % shape.GroupOutputs();
    columns.push_back(Column(p, first_column + column));
  }
  const auto aimed = [&](int64_t group, int64_t k) {
    const int64_t w = columns[static_cast<size_t>(group)][static_cast<size_t>(k)];
    return static_cast<uint8_t>((negative ? w < 0 : w > 0) ? high : low);
  };
  SetPatch(shape, pixel, aimed, a);
}

// Overwrites a whole patch, for fills that set whole patches.
void FillPatch(const Problem& p, int64_t number, const reference::Pixel& pixel, std::vector<uint8_t>* a) {
  const int32_t largest = p.LargestActivation();
  if (p.fill == Fill::kExtremes && number == 0) {  // with the first column, the largest sum
    SetPatch(
        ShapeOf(p), pixel, [&](int64_t, int64_t) { return static_cast<uint8_t>(largest); }, a);
  }
  if (p.fill == Fill::kBound) AimPatch(p, number, pixel, p.range_min, largest, a);
  if (p.fill == Fill::kStray && number % kStrayRows == 0) AimPatch(p, number, pixel, 0, 255, a);
}

// The typical distance of y from zero, per column: |mean| plus two standard deviations, as if activations
// were independent of weights. Columns of groups follow one another.
void AddTypicalMagnitudes(const reference::Operands& operands, const std::vector<int32_t>& bias_s32,
                          std::vector<double>* magnitudes) {
  double sum = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i < operands.a.size(); ++i) {
    const auto d =
        static_cast<double>(operands.a[i] - operands.a_zero_points[i / static_cast<size_t>(operands.k)]);
    sum += d;
    squares += d * d;
  }
  const auto count = static_cast<double>(std::max<size_t>(operands.a.size(), 1));
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  for (int64_t n = 0; n < operands.n; ++n) {
    double weights = 0.0;
    double weight_squares = 0.0;
    for (const int32_t w : operands.CenteredColumn(n)) {
      weights += w;
      weight_squares += w * w;
    }
    const double bias = bias_s32.empty() ? 0.0 : bias_s32[magnitudes->size()];
    const double magnitude = std::fabs(mean * weights + bias) + 2.0 * std::sqrt(variance * weight_squares);
    magnitudes->push_back(std::max(magnitude, 1.0));
  }
}

// The largest int32 bias of column n with which no activations overflow int32.
int64_t BiasHeadroom(const reference::Operands& operands, int64_t n, int64_t zero_distance) {
  int64_t weights = 0;
  for (const int32_t w : operands.CenteredColumn(n)) weights += std::abs(w);
  const int64_t farthest = std::max(zero_distance, 255 - zero_distance);
  return std::max<int64_t>(std::numeric_limits<int32_t>::max() - weights * farthest, 0);
}

// An end of int32, a value near it, or any value.
int64_t BiasAtTheEdge(support::Random& random) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  const int64_t step = random.Integer(0, 1 << 16);
  const std::array<int64_t, 6> biases = {kMin,        kMax,        kMax - step,
                                         kMin + step, kMax - step, random.Integer(kMin, kMax)};
  return biases[static_cast<size_t>(random.Integer(0, std::ssize(biases) - 1))];
}

void FillBiasS32(const Problem& p, std::span<const reference::Operands> groups,
                 reference::Linear* operation) {
  // About as large as the sum itself for small depths, and as its deviation for large depths.
  const int64_t reach = p.fill == Fill::kTies ? 20 : 4000;
  for (const reference::Operands& operands : groups) {
    for (int64_t n = 0; n < operands.n; ++n) {
      const bool is_static = p.quantization == INTACT_QUANTIZATION_STATIC;
      const int64_t limit = std::min(reach, BiasHeadroom(operands, n, is_static ? ZeroDistance(p) : 0));
      support::Random random(p.seed, kBiasStream, operation->bias_s32.size());
      const bool may_wrap = p.overflow == INTACT_OVERFLOW_WRAPS && p.fill != Fill::kTies;
      operation->bias_s32.push_back(
          static_cast<int32_t>(may_wrap ? BiasAtTheEdge(random) : random.Integer(-limit, limit)));
    }
  }
}

void FillBiasF32(const Problem& p, reference::Linear* operation) {
  for (int64_t n = 0; n < ShapeOf(p).output_channels; ++n) {
    support::Random random(p.seed, kBiasStream, static_cast<uint64_t>(n));
    const double halves = static_cast<double>(random.Integer(-60, 60)) / 2.0;
    operation->bias_f32.push_back(
        static_cast<float>(p.fill == Fill::kTies ? halves : 60.0 * random.Unit() - 30.0));
  }
}

// The median of the positive row scales; 1 if rows have no positive scales.
double TypicalRowScale(const reference::Linear& operation) {
  std::vector<float> scales;
  std::ranges::copy_if(operation.a_scales, std::back_inserter(scales), [](float s) { return s > 0.0f; });
  if (scales.empty()) return 1.0;
  const auto middle = scales.begin() + std::ssize(scales) / 2;
  std::ranges::nth_element(scales, middle);
  return *middle;
}

// A typical output reaches 60 to 160 from the zero point: most of the range, with some clamping.
float ScaleFor(double magnitude, support::Random& random) {
  const double reach = 60.0 + 100.0 * random.Unit();
  return static_cast<float>(std::clamp(reach / magnitude, 1e-30, 1e30));
}

// After the multiplication by a row's scale: denormal in the output's type, or little larger.
float TinyScaleFor(intact_type c_type, double row_scale, support::Random& random) {
  const int least = core::TraitsOf(core::IsFloat(c_type) ? c_type : INTACT_F32).exponent;
  const auto exponent = static_cast<int>(random.Integer(least - 20, least + 6));
  return static_cast<float>(std::ldexp(1.0 + random.Unit(), exponent) / row_scale);
}

// ----- quantizations ---------------------------------------------------------------------------------------

// The zero point and the scale that a run gives for all of A; stored for each of the `rows`.
void FillTensor(const Problem& p, size_t rows, reference::Linear* linear) {
  support::Random random(p.seed, kRowStream, 0);
  const auto power = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.Integer(-1, 1))));
  const double factor = p.fill == Fill::kTies ? 1.0 : 1.0 + random.Unit();
  if (p.za != 0) linear->a_zero_points.assign(rows, p.za);
  if (p.c_type != INTACT_S32) linear->a_scales.assign(rows, static_cast<float>(power * factor));
}

void FillRows(const Problem& p, reference::Gemm* gemm) {
  const int32_t lowest = core::LowestOf(p.a_type);
  for (int64_t row = 0; row < gemm->rows(); ++row) {
    support::Random random(p.seed, kRowStream, static_cast<uint64_t>(row));
    const int64_t distances[] = {0, 255, random.Integer(0, 255), random.Integer(0, 255)};
    const int64_t distance = distances[random.Integer(0, 3)];
    const auto power = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.Integer(-1, 1))));
    const double factor = p.fill == Fill::kTies ? 1.0 : 1.0 + random.Unit();
    if (p.row_zero_points) gemm->a_zero_points.push_back(lowest + static_cast<int32_t>(distance));
    if (p.c_type != INTACT_S32) gemm->a_scales.push_back(static_cast<float>(power * factor));
  }
}

// Makes the numbers of a dynamic quantization, row by row.
class NumberMaker {
 public:
  NumberMaker(const Problem& p, int64_t rows) : p_(p), rows_(rows) {}

  // `distances`: the fill's activations in the row.
  std::vector<float> Row(int64_t row, std::span<const uint8_t> distances) const {
    const bool by_rows = p_.quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
    const int64_t unit = by_rows ? row : 0;
    support::Random of_unit(p_.seed, kRowStream, static_cast<uint64_t>(unit));
    support::Random random(p_.seed, kNumberStream, static_cast<uint64_t>(row));
    std::vector<float> x(distances.size());
    Make(unit, distances, of_unit, random, x);
    if (p_.numbers == Numbers::kNonFinite && row == (by_rows ? row : of_unit.Integer(0, rows_ - 1))) {
      Spoil(unit, random, x);
    }
    return x;
  }

 private:
  void Make(int64_t unit, std::span<const uint8_t> distances, support::Random& of_unit,
            support::Random& random, std::span<float> x) const {
    switch (p_.numbers) {
      case Numbers::kScaled:
        return Scale(distances, of_unit, x);
      case Numbers::kHalves:
        return Halves(of_unit, random, x);
      case Numbers::kConstant: {
        const double value = Power(of_unit, -20, 20) * (of_unit.Unit() - 0.5);
        std::ranges::fill(x, static_cast<float>(value));
        return;
      }
      case Numbers::kZeros:
        if (unit % 2 != 0) return Normal(of_unit, random, x);
        std::ranges::generate(x, [&] { return random.Integer(0, 1) == 0 ? 0.0f : -0.0f; });
        return;
      case Numbers::kTiny:
        return Tiny(of_unit, random, x);
      case Numbers::kOutlier:
        Normal(of_unit, random, x);
        x[static_cast<size_t>(random.Integer(0, std::ssize(x) - 1))] *= 1e6f;
        return;
      case Numbers::kNormal:
      case Numbers::kNonFinite:
        return Normal(of_unit, random, x);
    }
  }

  static double Power(support::Random& random, int low, int high) {
    return std::ldexp(1.0, static_cast<int>(random.Integer(low, high)));
  }

  void Scale(std::span<const uint8_t> distances, support::Random& of_unit, std::span<float> x) const {
    const double scale = Power(of_unit, -2, 2) * (1.0 + of_unit.Unit());
    const int64_t zeros[] = {0, 255, of_unit.Integer(0, 255), of_unit.Integer(0, 255)};
    const int64_t zero = p_.a_type == INTACT_S8 ? 128 : zeros[of_unit.Integer(0, 3)];
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(static_cast<double>(distances[i] - zero) * scale);
    }
  }

  static void Normal(support::Random& of_unit, support::Random& random, std::span<float> x) {
    const double scale = Power(of_unit, -20, 20);
    std::ranges::generate(x, [&] { return static_cast<float>(random.Gauss() * scale); });
  }

  // The first number is the smallest, the second the largest: they make the scale a power of two.
  void Halves(support::Random& of_unit, support::Random& random, std::span<float> x) const {
    const double scale = Power(of_unit, -8, 8);
    const int64_t low = p_.a_type == INTACT_S8 ? -127 : of_unit.Integer(-255, 0);
    const int64_t high = p_.a_type == INTACT_S8 ? 127 : low + 255;
    for (float& value : x) {
      value = static_cast<float>((static_cast<double>(random.Integer(low, high - 1)) + 0.5) * scale);
    }
    x.front() = static_cast<float>(static_cast<double>(low) * scale);
    if (x.size() > 1) x[1] = static_cast<float>(static_cast<double>(high) * scale);
  }

  void Tiny(support::Random& of_unit, support::Random& random, std::span<float> x) const {
    const core::ElementType& source = core::TraitsOf(p_.source);
    const int smallest = source.exponent - source.fraction;
    const auto largest = static_cast<int64_t>(Power(of_unit, 3, 14));
    for (float& value : x) {
      const int64_t steps = random.Integer(-largest / 4, largest);
      value = steps == 0 ? -0.0f : std::ldexp(static_cast<float>(steps), smallest);
    }
  }

  static void Spoil(int64_t unit, support::Random& random, std::span<float> x) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kLarge = 3e38f;
    const auto at = static_cast<size_t>(random.Integer(0, std::ssize(x) - 1));
    constexpr std::array kValues = {kNaN, kInfinity, -kInfinity, kLarge};
    if (unit % 5 == 4) return;
    x[at] = kValues[static_cast<size_t>(unit % 5)];
    if (x[at] == kLarge) x[at == 0 ? x.size() - 1 : 0] = -kLarge;
  }

  const Problem& p_;
  const int64_t rows_;
};

void FillNumbers(const Problem& p, reference::Linear* linear) {
  linear->a_source_type = p.source;
  const std::vector<uint8_t> distances = FillActivations(p);
  const ConvGeometry shape = ShapeOf(p);
  const auto k = static_cast<size_t>(shape.input_channels);
  const NumberMaker maker(p, shape.InputPixels());
  std::vector<uint8_t> element(static_cast<size_t>(core::BytesOf(p.source)));
  const auto largest = static_cast<float>(core::LargestOf(p.source));
  for (int64_t row = 0; row < shape.InputPixels(); ++row) {
    const auto of_row = std::span(distances).subspan(static_cast<size_t>(row) * k, k);
    for (const float x : maker.Row(row, of_row)) {
      const float number = std::isfinite(x) ? std::clamp(x, -largest, largest) : x;
      core::Encode(p.source, reference::RoundToFloat(number, p.source), element.data());
      linear->a_source.insert(linear->a_source.end(), element.begin(), element.end());
    }
  }
}

}  // namespace

std::vector<uint8_t> FillActivations(const Problem& problem) {
  const ConvGeometry shape = ShapeOf(problem);
  const auto smallest = static_cast<uint8_t>(problem.range_min);
  std::vector<uint8_t> a;
  a.reserve(static_cast<size_t>(shape.InputPixels() * shape.input_channels));
  for (int64_t m = 0; m < shape.InputPixels(); ++m) {
    support::Random random(problem.seed, kActivationStream, static_cast<uint64_t>(m));
    const int64_t hot = problem.fill == Fill::kOneHot ? random.Integer(0, shape.input_channels - 1) : -1;
    for (int64_t c = 0; c < shape.input_channels; ++c) {
      a.push_back(std::max(smallest, OneActivation(problem, shape.InputPixels(), m, c, hot, random)));
    }
  }
  ForEachPatch(shape,
               [&](int64_t number, const reference::Pixel& pixel) { FillPatch(problem, number, pixel, &a); });
  return a;
}

std::vector<int8_t> FillWeights(const Problem& problem) {
  const int64_t count = ShapeOf(problem).output_channels * (problem.runtime_b ? problem.batch : 1);
  std::vector<int8_t> columns;
  for (int64_t n = 0; n < count; ++n) {
    for (const int64_t w : Column(problem, n)) {
      columns.push_back(static_cast<int8_t>(std::clamp<int64_t>(w, -128, 127)));
    }
  }
  return columns;
}

std::vector<int32_t> FillWeightZeroPoints(const Problem& problem) {
  if (problem.zb_kind == ZeroPointKind::kTensor) {
    return problem.zb == 0 ? std::vector<int32_t>() : std::vector<int32_t>{problem.zb};
  }
  const int32_t lowest = core::LowestOf(problem.b_type);
  const int64_t items = IsOfItems(problem.zb_kind) ? problem.batch : 1;
  const int64_t count =
      problem.zb_kind == ZeroPointKind::kItem ? items : items * ShapeOf(problem).output_channels;
  std::vector<int32_t> zero_points = {problem.zb};
  for (int64_t n = 1; n < count; ++n) {
    support::Random random(problem.seed, kZeroPointStream, static_cast<uint64_t>(n));
    const int64_t distances[] = {0, 255, random.Integer(0, 255), random.Integer(0, 255)};
    zero_points.push_back(lowest + static_cast<int32_t>(distances[random.Integer(0, 3)]));
  }
  return zero_points;
}

void FillQuantization(const Problem& problem, reference::Gemm* gemm) {
  if (problem.quantization == INTACT_QUANTIZATION_ROWS) FillRows(problem, gemm);
  if (problem.quantization == INTACT_QUANTIZATION_TENSOR) {
    FillTensor(problem, static_cast<size_t>(gemm->rows()), gemm);
  }
  if (!problem.IsDynamic()) return;
  FillNumbers(problem, gemm);
  reference::QuantizeActivations(gemm);
}

void FillQuantization(const Problem& problem, reference::Conv* conv) {
  if (problem.quantization == INTACT_QUANTIZATION_TENSOR) FillTensor(problem, 1, conv);
  if (!problem.IsDynamic()) return;
  FillNumbers(problem, conv);
  reference::QuantizeActivations(conv);
}

void FillItemScales(const Problem& problem, reference::Gemm* gemm) {
  std::vector<float> scales;  // kept here until complete, because Item() reads gemm->item_scales
  for (int64_t i = 0; i < gemm->batch; ++i) {
    const reference::Gemm item = reference::Item(*gemm, i);
    std::vector<double> magnitudes;
    AddTypicalMagnitudes(reference::Operands(item), gemm->bias_s32, &magnitudes);
    if (problem.scale == ScaleKind::kItem) magnitudes = {*std::ranges::max_element(magnitudes)};
    for (size_t n = 0; n < magnitudes.size(); ++n) {
      support::Random random(problem.seed, kScaleStream, scales.size());
      const float scale = ScaleFor(magnitudes[n] * TypicalRowScale(item), random);
      const float tie_scale = n % 2 == 0 ? 0.5f : 0.25f;
      scales.push_back(problem.fill == Fill::kTies ? tie_scale : scale);
    }
  }
  gemm->item_scales = std::move(scales);
}

void FillBias(const Filling& filling) {
  if (filling.problem.bias == BiasKind::kS32) FillBiasS32(filling.problem, filling.groups, filling.linear);
  if (filling.problem.bias == BiasKind::kF32) FillBiasF32(filling.problem, filling.linear);
}

void FillScales(const Filling& filling) {
  const Problem& p = filling.problem;
  reference::Linear* const operation = filling.linear;
  if (p.scale == ScaleKind::kNone) return;
  std::vector<double> magnitudes;
  for (const reference::Operands& operands : filling.groups)
    AddTypicalMagnitudes(operands, operation->bias_s32, &magnitudes);
  const double largest = *std::max_element(magnitudes.begin(), magnitudes.end());
  const int64_t count = p.scale == ScaleKind::kTensor ? 1 : std::ssize(magnitudes);
  const double row_scale = TypicalRowScale(*operation);
  for (int64_t n = 0; n < count; ++n) {
    support::Random random(p.seed, kScaleStream, static_cast<uint64_t>(n));
    if (p.scale == ScaleKind::kTiny) {
      operation->scales.push_back(TinyScaleFor(p.c_type, row_scale, random));
      continue;
    }
    if (p.scale == ScaleKind::kHuge) {
      operation->scales.push_back(std::numeric_limits<float>::max());
      continue;
    }
    constexpr int64_t kPrunedStep = 3;
    if (p.scale == ScaleKind::kPruned && n % kPrunedStep == 0) {
      operation->scales.push_back(0.0f);
      continue;
    }
    const double magnitude = count == 1 ? largest : magnitudes[static_cast<size_t>(n)];
    const float scale = ScaleFor(magnitude * row_scale, random);
    const float tie_scale = n % 2 == 0 ? 0.5f : 0.25f;
    operation->scales.push_back(p.fill == Fill::kTies ? tie_scale : scale);
  }
}

void FillFixedPoint(const Filling& filling) {
  const Problem& p = filling.problem;
  reference::Linear* const operation = filling.linear;
  if (p.fixed == FixedKind::kNone) return;
  const bool is_up = p.fixed == FixedKind::kUp || p.fixed == FixedKind::kUpShift;
  operation->fixed_point = is_up ? INTACT_FIXED_POINT_HALF_UP : INTACT_FIXED_POINT_HALF_AWAY;
  const bool has_multipliers = p.fixed == FixedKind::kUp || p.fixed == FixedKind::kAway;
  for (size_t n = 0; n < operation->scales.size(); ++n) {
    support::Random random(p.seed, kFixedPointStream, n);
    int shift = 0;
    const double mantissa = std::frexp(operation->scales[n], &shift);
    const bool is_exact = p.fill == Fill::kTies || mantissa == 0;
    const int64_t low_bits = is_exact ? 0 : random.Integer(0, 127);
    if (has_multipliers) {
      operation->multipliers.push_back(static_cast<int32_t>(std::ldexp(mantissa, 31)) +
                                       static_cast<int32_t>(low_bits));
    }
    const bool is_left = operation->scales.size() > 1 && random.Integer(0, 4) == 0;
    operation->shifts.push_back(is_left ? static_cast<int32_t>(random.Integer(0, 30))
                                        : std::clamp(shift, -31, 30));
  }
  operation->scales.clear();
}

void FillTable(const Filling& filling) {
  if (!filling.problem.has_table) return;
  std::vector<uint8_t>& table = filling.linear->lookup_table;
  table.resize(256);
  std::iota(table.begin(), table.end(), uint8_t{0});
  support::Random random(filling.problem.seed, kTableStream, 0);
  for (size_t i = table.size() - 1; i > 0; --i) {
    std::swap(table[i], table[static_cast<size_t>(random.Integer(0, static_cast<int64_t>(i)))]);
  }
}

void FillResidual(const Filling& filling) {
  const Problem& p = filling.problem;
  reference::Linear* const operation = filling.linear;
  if (p.residual == INTACT_TYPE_NONE) return;
  support::Random scale_random(p.seed, kResidualStream, 0);
  const auto scale = static_cast<float>((20.0 + 40.0 * scale_random.Unit()) / 128.0);
  operation->post_ops.Add(core::AddResidual{p.residual, p.fill == Fill::kTies ? 0.5f : scale, p.zres});
  const ConvGeometry shape = ShapeOf(p);
  for (int64_t m = 0; m < shape.OutputPixels(); ++m) {
    support::Random random(p.seed, kResidualStream, static_cast<uint64_t>(m) + 1);
    for (int64_t n = 0; n < shape.output_channels; ++n) {
      const auto byte = static_cast<uint8_t>(random.Integer(0, 255));
      if (p.residual != INTACT_F32) {
        operation->residual.push_back(byte);
        continue;
      }
      const double fraction = p.fill == Fill::kTies ? 0.0 : random.Unit();
      const auto value = static_cast<float>(byte - 128 + fraction);
      const auto bytes = std::bit_cast<std::array<uint8_t, sizeof value>>(value);
      operation->residual.insert(operation->residual.end(), bytes.begin(), bytes.end());
    }
  }
}

void FillActivation(const Filling& filling) {
  const intact_activation activation = filling.problem.activation;
  if (filling.grouped != nullptr) {
    if (activation == INTACT_ACTIVATION_RELU) filling.grouped->post_ops.Add(core::Relu{});
    if (activation == INTACT_ACTIVATION_CLAMP) filling.grouped->post_ops.Add(core::Clamp{-0.75f, 1.5f});
    return;
  }
  if (activation == INTACT_ACTIVATION_RELU) filling.linear->post_ops.Add(core::Relu{});
  if (activation != INTACT_ACTIVATION_CLAMP) return;
  support::Random random(filling.problem.seed, kClampStream, 0);
  const auto low = static_cast<float>(-60.0 * random.Unit());
  filling.linear->post_ops.Add(core::Clamp{low, static_cast<float>(60.0 * random.Unit())});
}

}  // namespace intact::verify
