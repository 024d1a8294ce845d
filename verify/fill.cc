#include "verify/fill.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "verify/random.h"

namespace intact::verify {
namespace {

// Streams of Random: which tensor an index belongs to.
enum Stream : uint64_t {
  kActivationStream = 1,
  kWeightStream,
  kBiasStream,
  kScaleStream,
  kClampStream,
  kZeroPointStream,
  kResidualStream
};

// The zero point as a distance from the type's minimum, like the activations.
int64_t ZeroDistance(const Problem& p) { return p.a_type == INTACT_S8 ? int64_t{p.za} + 128 : p.za; }

constexpr int64_t kStrayRows = 155;

int64_t LargestWeight(const Problem& p) { return std::min(p.wmax, 127); }

uint8_t ToDistance(const Problem& p, double d) {
  return static_cast<uint8_t>(std::clamp(std::nearbyint(d), 0.0, static_cast<double>(p.LargestActivation())));
}

// kTies: steps of an activation from the zero point, so that sums of a few hundred stay in an 8-bit range.
int64_t TieSteps(const Problem& p) {
  return std::max<int64_t>(1, static_cast<int64_t>(60.0 / std::sqrt(static_cast<double>(p.k))));
}

uint8_t TieActivation(const Problem& p, Random& random) {
  return ToDistance(p, static_cast<double>(ZeroDistance(p) + random.Integer(-TieSteps(p), TieSteps(p))));
}

// One-sided and bell-shaped, as after a ReLU, three standard deviations wide.
uint8_t HalfNormal(const Problem& p, int64_t start, Random& random) {
  const double width = static_cast<double>(std::max<int64_t>(p.LargestActivation() - start, 0)) / 3.0;
  return ToDistance(p, static_cast<double>(start) + std::fabs(random.Gauss()) * width);
}

// `hot`: kOneHot's one depth.
uint8_t OneActivation(const Problem& p, int64_t m, int64_t k, int64_t hot, Random& random) {
  const int64_t largest = p.LargestActivation();
  switch (p.fill) {
    case Fill::kUniform:
      break;
    case Fill::kExtremes:  // the first row holds the largest only: with the first column, the largest sum
      return static_cast<uint8_t>(m == 0 || random.Integer(0, 1) == 1 ? largest : 0);
    case Fill::kOneHot:
      if (k != hot) return ToDistance(p, static_cast<double>(ZeroDistance(p)));
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
      return static_cast<uint8_t>(m * largest / std::max<int64_t>(p.m - 1, 1));
    case Fill::kTies:
      return TieActivation(p, random);
    case Fill::kBound:
    case Fill::kStray:
      break;
  }
  return static_cast<uint8_t>(random.Integer(0, largest));
}

// A column of real weights, quantized symmetrically so that the largest in size becomes ±wmax.
template <class Draw>
std::vector<int64_t> QuantizedColumn(const Problem& p, Draw draw) {
  std::vector<double> real(static_cast<size_t>(p.k));
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

// kBait: a quarter of the pairs are heavy and of one sign, so that 255·(w0 + w1) is far beyond int16; the
// others are too light to saturate.
std::vector<int64_t> BaitColumn(const Problem& p, Random& random) {
  std::vector<int64_t> column(static_cast<size_t>(p.k));
  for (size_t k = 0; k < column.size(); k += 2) {
    const bool heavy = k == 0 || random.Integer(0, 3) == 0;
    const int64_t sign = random.Integer(0, 1) == 0 ? -1 : 1;
    for (size_t i = k; i < std::min(k + 2, column.size()); ++i) {
      column[i] = heavy ? sign * random.Integer(p.wmax - p.wmax / 8, p.wmax)
                        : random.Integer(-p.wmax / 8, p.wmax / 8);
    }
  }
  return column;
}

// kBound: pairs of one sign whose sums are a part of what a lane can hold, one in eight of them one more.
std::vector<int64_t> CapacityColumn(const Problem& p, Random& random) {
  std::vector<int64_t> column(static_cast<size_t>(p.k));
  for (size_t k = 0; k < column.size(); k += 2) {
    const bool negative = random.Integer(0, 1) == 0;
    const int64_t capacity = (negative ? 32768 : 32767) / std::max<int64_t>(p.LargestActivation(), 1);
    const int64_t excess = random.Integer(0, 7) == 0 ? 1 : 0;
    const int64_t limit = negative ? p.wmax : LargestWeight(p);
    const int64_t sum = std::min((capacity >> random.Integer(0, 3)) + excess, 2 * limit);
    const int64_t first = random.Integer(std::max<int64_t>(sum - limit, 0), std::min(sum, limit));
    column[k] = negative ? -first : first;
    if (k + 1 < column.size()) column[k + 1] = negative ? first - sum : sum - first;
  }
  return column;
}

template <class Draw>
std::vector<int64_t> DrawnColumn(const Problem& p, Draw draw) {
  std::vector<int64_t> column(static_cast<size_t>(p.k));
  std::generate(column.begin(), column.end(), draw);
  return column;
}

std::vector<int64_t> Column(const Problem& p, int64_t n) {
  Random random(p.seed, kWeightStream, static_cast<uint64_t>(n));
  switch (p.fill) {
    case Fill::kUniform:
    case Fill::kOneHot:
    case Fill::kStray:
      return DrawnColumn(p, [&] { return random.Integer(-p.wmax, LargestWeight(p)); });
    case Fill::kExtremes:  // the first column holds the largest only: see OneActivation
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

// A row that drives the sums of its column as far as activations in [low, high] can: up in even rows, down in
// odd ones.
void AimRow(const Problem& p, int64_t m, int32_t low, int32_t high, uint8_t* row) {
  const bool negative = m % 2 != 0;
  for (const int64_t w : Column(p, m / 2 % p.n)) {
    *row++ = static_cast<uint8_t>((negative ? w < 0 : w > 0) ? high : low);
  }
}

// How far y may be from zero, typically, per column: |mean| plus two standard deviations, as if activations
// were independent of their weights.
std::vector<double> TypicalMagnitudes(const reference::Operands& operands,
                                      const std::vector<int32_t>& bias_s32) {
  double sum = 0.0;
  double squares = 0.0;
  for (const uint8_t a : operands.a) {
    const auto d = static_cast<double>(a - operands.a_zero_point);
    sum += d;
    squares += d * d;
  }
  const auto count = static_cast<double>(operands.a.size());
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  std::vector<double> magnitudes;
  for (int64_t n = 0; n < operands.n; ++n) {
    double weights = 0.0;
    double weight_squares = 0.0;
    for (const int32_t w : operands.CenteredColumn(n)) {
      weights += w;
      weight_squares += w * w;
    }
    const double bias = bias_s32.empty() ? 0.0 : bias_s32[static_cast<size_t>(n)];
    const double magnitude = std::fabs(mean * weights + bias) + 2.0 * std::sqrt(variance * weight_squares);
    magnitudes.push_back(std::max(magnitude, 1.0));
  }
  return magnitudes;
}

// How large an int32 bias column n can bear whatever the activations are.
int64_t BiasHeadroom(const reference::Operands& operands, int64_t n, int64_t zero_distance) {
  int64_t weights = 0;
  for (const int32_t w : operands.CenteredColumn(n)) weights += std::abs(w);
  const int64_t farthest = std::max(zero_distance, 255 - zero_distance);
  return std::max<int64_t>(std::numeric_limits<int32_t>::max() - weights * farthest, 0);
}

void FillBiasS32(const Problem& p, const reference::Operands& operands, reference::Gemm* gemm) {
  // About the size of the sum itself for short depths, and of the size of its deviation for long ones.
  const int64_t reach = p.fill == Fill::kTies ? 20 : 4000;
  for (int64_t n = 0; n < p.n; ++n) {
    const int64_t limit = std::min(reach, BiasHeadroom(operands, n, ZeroDistance(p)));
    Random random(p.seed, kBiasStream, static_cast<uint64_t>(n));
    gemm->bias_s32.push_back(static_cast<int32_t>(random.Integer(-limit, limit)));
  }
}

void FillBiasF32(const Problem& p, reference::Gemm* gemm) {
  for (int64_t n = 0; n < p.n; ++n) {
    Random random(p.seed, kBiasStream, static_cast<uint64_t>(n));
    const double halves = static_cast<double>(random.Integer(-60, 60)) / 2.0;
    gemm->bias_f32.push_back(
        static_cast<float>(p.fill == Fill::kTies ? halves : 60.0 * random.Unit() - 30.0));
  }
}

void FillScales(const Problem& p, const reference::Operands& operands, reference::Gemm* gemm) {
  const std::vector<double> magnitudes = TypicalMagnitudes(operands, gemm->bias_s32);
  const double largest = *std::max_element(magnitudes.begin(), magnitudes.end());
  const int64_t count = p.scale == ScaleKind::kChannel ? p.n : 1;
  for (int64_t n = 0; n < count; ++n) {
    Random random(p.seed, kScaleStream, static_cast<uint64_t>(n));
    // A typical output reaches 60 to 160 from the zero point: most of the range, with some clamping.
    const double reach = 60.0 + 100.0 * random.Unit();
    const double magnitude = count == 1 ? largest : magnitudes[static_cast<size_t>(n)];
    const double tie_scale = n % 2 == 0 ? 0.5 : 0.25;
    gemm->scales.push_back(static_cast<float>(p.fill == Fill::kTies ? tie_scale : reach / magnitude));
  }
}

// Full range, uniform; with their scale they reach 20 to 60 from the zero point, in halves for kTies.
void FillResidual(const Problem& p, reference::Gemm* gemm) {
  gemm->residual_type = p.residual;
  gemm->residual_zero_point = p.zres;
  Random scale_random(p.seed, kResidualStream, 0);
  const auto scale = static_cast<float>((20.0 + 40.0 * scale_random.Unit()) / 128.0);
  gemm->residual_scale = p.fill == Fill::kTies ? 0.5f : scale;
  for (int64_t m = 0; m < p.m; ++m) {
    Random random(p.seed, kResidualStream, static_cast<uint64_t>(m) + 1);
    for (int64_t n = 0; n < p.n; ++n) {
      const auto byte = static_cast<uint8_t>(random.Integer(0, 255));
      if (p.residual != INTACT_F32) {
        gemm->residual.push_back(byte);
        continue;
      }
      const double fraction = p.fill == Fill::kTies ? 0.0 : random.Unit();
      const auto value = static_cast<float>(byte - 128 + fraction);
      const auto bytes = std::bit_cast<std::array<uint8_t, sizeof value>>(value);
      gemm->residual.insert(gemm->residual.end(), bytes.begin(), bytes.end());
    }
  }
}

}  // namespace

std::vector<uint8_t> FillActivations(const Problem& problem) {
  std::vector<uint8_t> a;
  a.reserve(static_cast<size_t>(problem.m * problem.k));
  for (int64_t m = 0; m < problem.m; ++m) {
    Random random(problem.seed, kActivationStream, static_cast<uint64_t>(m));
    const int64_t hot = problem.fill == Fill::kOneHot ? random.Integer(0, problem.k - 1) : -1;
    for (int64_t k = 0; k < problem.k; ++k) {
      const auto smallest = static_cast<uint8_t>(problem.declared_min);
      a.push_back(std::max(smallest, OneActivation(problem, m, k, hot, random)));
    }
    uint8_t* const row = &a[static_cast<size_t>(m * problem.k)];
    if (problem.fill == Fill::kBound) {
      AimRow(problem, m, problem.declared_min, problem.LargestActivation(), row);
    }
    if (problem.fill == Fill::kStray && m % kStrayRows == 0) AimRow(problem, m, 0, 255, row);
  }
  return a;
}

std::vector<int8_t> FillWeights(const Problem& problem) {
  std::vector<int8_t> b(static_cast<size_t>(problem.k * problem.n));
  for (int64_t n = 0; n < problem.n; ++n) {
    size_t at = static_cast<size_t>(n);
    for (const int64_t w : Column(problem, n)) {
      b[at] = static_cast<int8_t>(std::clamp<int64_t>(w, -128, 127));
      at += static_cast<size_t>(problem.n);
    }
  }
  return b;
}

std::vector<int32_t> FillWeightZeroPoints(const Problem& problem) {
  if (problem.zb_kind == ZeroPointKind::kTensor) {
    return problem.zb == 0 ? std::vector<int32_t>() : std::vector<int32_t>{problem.zb};
  }
  const int32_t lowest = problem.b_type == INTACT_S8 ? -128 : 0;
  std::vector<int32_t> zero_points = {problem.zb};
  for (int64_t n = 1; n < problem.n; ++n) {
    Random random(problem.seed, kZeroPointStream, static_cast<uint64_t>(n));
    const int64_t distances[] = {0, 255, random.Integer(0, 255), random.Integer(0, 255)};
    zero_points.push_back(lowest + static_cast<int32_t>(distances[random.Integer(0, 3)]));
  }
  return zero_points;
}

void FillEpilogue(const Problem& problem, reference::Gemm* gemm) {
  const reference::Operands operands(*gemm);
  if (problem.bias == BiasKind::kS32) FillBiasS32(problem, operands, gemm);
  if (problem.bias == BiasKind::kF32) FillBiasF32(problem, gemm);
  if (problem.scale != ScaleKind::kNone) FillScales(problem, operands, gemm);
  if (problem.residual != INTACT_TYPE_NONE) FillResidual(problem, gemm);
  if (problem.activation == INTACT_ACTIVATION_CLAMP) {
    Random random(problem.seed, kClampStream, 0);
    gemm->clamp_min = static_cast<float>(-60.0 * random.Unit());
    gemm->clamp_max = static_cast<float>(60.0 * random.Unit());
  }
}

}  // namespace intact::verify
