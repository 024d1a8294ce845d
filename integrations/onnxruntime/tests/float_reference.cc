// The definitions of the provider's float operators, one element after the other, written from the comments of float_softmax.h,
// float_conv.h, float_matmul.h, float_reduce.h and logarithm.h. test_float_sweep.py compares the provider with them. A definition can
// be computed with one planted fault, which the comparison must find.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "integrations/onnxruntime/logarithm.h"

namespace {

// The planted faults; test_float_sweep.py has the same numbers.
enum Fault : int32_t {
  kNone,
  kAddsInOrder,       // softmax: one sum instead of 16; convolution: one block; product: one block of depths
  kAddsLanesInOrder,  // softmax: the 16 sums from left to right
  kCoefficient,       // softmax: the last bit of one of the exponential
  kWholeTail,         // softmax: the missing elements of the last 16 are added as exponentials of 0
  kNoMaximum,         // softmax: is not subtracted
  kDividesEach,       // softmax: e / sum instead of e · (1 / sum); reduction: divides before it adds
  kCLogarithm,        // log softmax: float32(log(double(sum)))
  kFlushes,           // softmax: small exponentials become 0; convolution, product: denormal outputs do
  kRoundsProducts,    // convolution, product: no fused multiply-add
  kBiasFirst,         // convolution: the bias is where sums begin
  kTapsFirst,         // convolution: channels outside, taps inside
  kBlocksBackward,    // convolution, product: the last block first
  kPadsWithZeros,     // convolution: taps in the padding multiply zeros
  kBlockOfEight,      // convolution: 8 instead of 16, 64 instead of 128; product: half of the depths
  kKeepsMinusZero,    // convolution: a block that the channels do not fill adds no zeros
  kAddsFromFirst,     // reduction: begins with the first element, not with 0
  kAddsFour,          // reduction: four sums
};

float Exp(float x, Fault fault) {
  constexpr std::array kPolynomial = {
      0x1.694p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.55545p-3f, 0x1.fffff6p-2f, 1.0f, 1.0f};
  x = x > -103.9720840454f || std::isnan(x) ? x : -103.9720840454f;
  const float m = std::fma(x, 0x1.715476p0f, 0x1.8p23f) - 0x1.8p23f;
  const float r = std::fma(m, -1.42860677e-6f, std::fma(m, -6.93145752e-1f, x));
  float p = kPolynomial[0];
  for (size_t i = 1; i < kPolynomial.size(); ++i)
    p = std::fma(p, r, fault == kCoefficient && i == 3 ? 0x1.555452p-3f : kPolynomial[i]);
  const float e =
      std::isnan(p) ? p : static_cast<float>(std::ldexp(static_cast<double>(p), static_cast<int>(m)));
  return fault == kFlushes && e < FLT_MIN ? 0.0f : e;
}

float SumOf(std::array<float, 16> lanes, Fault fault) {
  if (fault == kAddsLanesInOrder) {
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
  }
  std::array<float, 8> half;
  for (size_t j = 0; j < 8; ++j) half[j] = lanes[j + 8] + lanes[j];
  return ((half[0] + half[1]) + (half[2] + half[3])) + ((half[4] + half[5]) + (half[6] + half[7]));
}

void SoftmaxRow(const float* x, float* y, int64_t n, bool is_log, Fault fault) {
  float largest = -FLT_MAX;
  bool is_nan = false;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, x[i]);
    is_nan = is_nan || std::isnan(x[i]) || x[i] == INFINITY;
  }
  if (is_nan) return std::fill_n(y, n, NAN), void();  // which NaN: see the tests between ISAs
  if (fault == kNoMaximum) largest = 0;
  std::array<float, 16> lanes{};
  std::vector<float> e(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    e[static_cast<size_t>(i)] = Exp(x[i] - largest, fault);
    lanes[fault == kAddsInOrder ? 0 : static_cast<size_t>(i % 16)] += e[static_cast<size_t>(i)];
  }
  if (fault == kWholeTail)
    for (int64_t i = n; i % 16 != 0; ++i) lanes[static_cast<size_t>(i % 16)] += Exp(0, fault);
  const float sum = SumOf(lanes, fault);
  const float logarithm = fault == kCLogarithm ? static_cast<float>(std::log(static_cast<double>(sum)))
                                               : intact::onnxruntime::LogOf(sum);
  for (int64_t i = 0; i < n; ++i) {
    const float of = e[static_cast<size_t>(i)];
    y[i] = is_log ? (x[i] - largest) - logarithm : fault == kDividesEach ? of / sum : (1 / sum) * of;
  }
}

float MultiplyAdd(float a, float b, float sum, Fault fault) {
  if (fault != kRoundsProducts) return std::fma(a, b, sum);
  const float product = a * b;
  return sum + product;
}

float Flushed(float y, Fault fault) { return fault == kFlushes && std::fabs(y) < FLT_MIN ? 0.0f : y; }

struct Window {
  int64_t channels, outputs, groups;  // channels and outputs of all groups
  int64_t height, width, out_height, out_width;
  int64_t kernel[2], stride[2], dilation[2], pad_begin[2], pad_end[2];
};

// The part of one output: the channels [first, first + 16) or fewer of a group's image.
float PartOf(const Window& w, const float* x, const float* weights, int64_t out_h, int64_t out_w,
             int64_t first, int64_t last, bool lacks_channels, float begin, Fault fault) {
  float part = begin;
  const int64_t taps = w.kernel[0] * w.kernel[1], count = last - first;
  for (int64_t step = 0; step < taps * count; ++step) {
    const int64_t tap = fault == kTapsFirst ? step % taps : step / count;
    const int64_t c = first + (fault == kTapsFirst ? step / taps : step % count);
    const int64_t h = out_h * w.stride[0] - w.pad_begin[0] + tap / w.kernel[1] * w.dilation[0];
    const int64_t v = out_w * w.stride[1] - w.pad_begin[1] + tap % w.kernel[1] * w.dilation[1];
    const bool is_inside = h >= 0 && h < w.height && v >= 0 && v < w.width;
    if (!is_inside && fault != kPadsWithZeros) continue;
    part = MultiplyAdd(is_inside ? x[(c * w.height + h) * w.width + v] : 0.0f, weights[c * taps + tap], part,
                       fault);
    // The missing channels of a block are zeros behind the others.
    if (lacks_channels && c == last - 1 && fault != kKeepsMinusZero) part += 0.0f;
  }
  return part;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

/// Rows of `n` elements.
void intact_softmax_reference(const float* x, float* y, int64_t rows, int64_t n, int32_t is_log,
                              int32_t fault) {
  for (int64_t row = 0; row < rows; ++row)
    SoftmaxRow(x + row * n, y + row * n, n, is_log != 0, static_cast<Fault>(fault));
}

/// `sizes`: the fields of Window. Tensors in NCHW; `bias` may be null.
void intact_conv_reference(const float* x, const float* weights, const float* bias, float* y, int64_t batch,
                           const int64_t* sizes, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  const Window w = {sizes[0],
                    sizes[1],
                    sizes[2],
                    sizes[3],
                    sizes[4],
                    sizes[5],
                    sizes[6],
                    {sizes[7], sizes[8]},
                    {sizes[9], sizes[10]},
                    {sizes[11], sizes[12]},
                    {sizes[13], sizes[14]},
                    {sizes[15], sizes[16]}};
  const int64_t channels = w.channels / w.groups, outputs = w.outputs / w.groups;
  const bool is_padded = w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] > 0;
  const bool is_pointwise = w.kernel[0] * w.kernel[1] == 1 && !is_padded;
  int64_t block = w.groups == 1 && channels < 16 ? 1 : is_pointwise ? 128 : 16;
  const bool fills = block == 16;
  if (fault == kBlockOfEight && block > 1) block /= 2;
  if (fault == kAddsInOrder) block = channels;
  const int64_t blocks = (channels + block - 1) / block;
  for (int64_t i = 0; i < batch * w.outputs * w.out_height * w.out_width; ++i) {
    const int64_t out_w = i % w.out_width, out_h = i / w.out_width % w.out_height;
    const int64_t output = i / w.out_width / w.out_height % w.outputs,
                  image = i / w.out_width / w.out_height / w.outputs;
    const float* const of_group = x + (image * w.channels + output / outputs * channels) * w.height * w.width;
    const float* const of_output = weights + output * channels * w.kernel[0] * w.kernel[1];
    const bool begins_with_bias = fault == kBiasFirst && bias != nullptr;
    float sum = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = (fault == kBlocksBackward ? blocks - 1 - b : b) * block;
      const int64_t last = std::min(channels, first + block);
      const float part =
          PartOf(w, of_group, of_output, out_h, out_w, first, last, fills && last - first < block,
                 b == 0 && begins_with_bias ? bias[output] : 0.0f, fault);
      sum = b == 0 ? part : part + sum;
    }
    y[i] = Flushed(bias == nullptr || begins_with_bias ? sum : sum + bias[output], fault);
  }
}

/// A (m, k) times B (k, n), in blocks of `depths`.
void intact_matmul_reference(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
                             int64_t depths, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  if (fault == kAddsInOrder) depths = std::max<int64_t>(k, 1);
  if (fault == kBlockOfEight) depths /= 2;
  const int64_t blocks = (k + depths - 1) / depths;
  for (int64_t i = 0; i < m * n; ++i) {
    float output = 0;
    for (int64_t place = 0; place < blocks; ++place) {
      const int64_t begin = (fault == kBlocksBackward ? blocks - 1 - place : place) * depths;
      float sum = 0;
      for (int64_t depth = begin; depth < std::min(k, begin + depths); ++depth)
        sum = MultiplyAdd(a[i / n * k + depth], b[depth * n + i % n], sum, fault);
      output = place == 0 ? sum : output + sum;
    }
    c[i] = Flushed(output, fault);
  }
}

/// (items, count, inner) to (items, inner).
void intact_reduce_reference(const float* x, float* y, int64_t items, int64_t count, int64_t inner,
                             int32_t is_mean, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  const auto divisor = static_cast<float>(count);
  for (int64_t i = 0; i < items * inner; ++i) {
    const float* const from = x + i / inner * count * inner + i % inner;
    std::array<float, 4> sums{};
    for (int64_t j = 0; j < count; ++j) {
      const float value = fault == kDividesEach && is_mean != 0 ? from[j * inner] / divisor : from[j * inner];
      float& sum = sums[fault == kAddsFour ? static_cast<size_t>(j % 4) : 0];
      sum = j == 0 && fault == kAddsFromFirst ? value : sum + value;
    }
    const float sum = fault == kAddsFour ? (sums[0] + sums[1]) + (sums[2] + sums[3]) : sums[0];
    y[i] = is_mean != 0 && fault != kDividesEach ? sum / divisor : sum;
  }
}

/// ln of `count` floats from the bits `first` on, `step` apart: LogOf() and the C library's.
void intact_logarithms(uint32_t first, uint32_t step, int64_t count, float* own, float* of_library) {
  for (int64_t i = 0; i < count; ++i) {
    const auto x = std::bit_cast<float>(first + static_cast<uint32_t>(i) * step);
    own[i] = intact::onnxruntime::LogOf(x);
    of_library[i] = std::log(x);
  }
}

}  // extern "C"
#pragma GCC visibility pop
