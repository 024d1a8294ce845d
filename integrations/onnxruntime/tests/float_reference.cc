// The float operators of docs/arithmetic.md, one element after the other. test_float_sweep.py compares the provider with them, and
// test_vectors.py makes the test vectors with them. A definition can be computed with one planted fault, which the
// comparison must find.
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
  kCLast,             // product: beta·C is added behind the blocks
  kAlphaLast,         // product: alpha multiplies the sum of the blocks
  kTapsBackward,      // transposed convolution: the last tap first
  kIgnoresPlace,      // sum over the last axes: as if each row began a tensor
  kNoColumns,         // pool: the order (kh, kw) instead of columns; whole images too
  kCountsAll,         // average: divides by all taps
  kJoinsLast,         // maximum: of columns as of single elements
  kFusesExp,          // exponential of Elu and others: with fused multiply-adds
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

// What a product of FloatMatMul is made of.
struct Scaling {
  float alpha = 1;
  const float* c = nullptr;  // beta·C of each output; null: none
};

// Of rows of A, which are adjacent, and of columns of B.
float ProductOf(const float* a, const float* b, int64_t n, int64_t k, int64_t depths, const Scaling& scaling,
                int64_t output, Fault fault) {
  const int64_t blocks = (k + depths - 1) / depths;
  const bool has_c = scaling.c != nullptr && fault != kCLast;
  float y = has_c ? scaling.c[output] : 0;
  for (int64_t place = 0; place < blocks; ++place) {
    const int64_t begin = (fault == kBlocksBackward ? blocks - 1 - place : place) * depths;
    float sum = 0;
    for (int64_t depth = begin; depth < std::min(k, begin + depths); ++depth)
      sum = MultiplyAdd(a[depth], b[depth * n], sum, fault);
    const float alpha = fault == kAlphaLast ? 1 : scaling.alpha;
    y = place == 0 && !has_c ? sum * alpha : std::fma(sum, alpha, y);
  }
  if (fault == kAlphaLast) y *= scaling.alpha;
  if (scaling.c != nullptr && fault == kCLast) y += scaling.c[output];
  return Flushed(y, fault);
}

int64_t DepthsOf(int64_t n, int64_t k, Fault fault) {
  int64_t depths = 128;
  for (int64_t width = 128; n < k && width > 16 && width / 2 >= n; width /= 2) depths *= 2;
  if (fault == kAddsInOrder) return std::max<int64_t>(k, 1);
  return fault == kBlockOfEight ? depths / 2 : depths;
}

// The sum of the last axes of a tensor.
float SumOfLast(const float* x, int64_t n, int64_t place, Fault fault) {
  const int64_t first = fault == kIgnoresPlace ? 0 : std::min(n, (4 - place % 4) % 4);
  const int64_t whole = (n - first) / 4 * 4, eights = whole / 8 * 8;
  float sum = 0;
  if (whole == 0 || fault == kAddsInOrder) {
    for (int64_t i = 0; i < n; ++i) sum = i == 0 ? x[0] : sum + x[i];
    return sum;
  }
  std::array<float, 4> four;
  for (int64_t l = 0; l < 4; ++l) {
    std::array<float, 2> lanes{};
    for (int64_t i = l; i < eights; i += 4) {
      float& lane = lanes[static_cast<size_t>(i / 4 % 2)];
      lane = i < 8 ? x[first + i] : lane + x[first + i];
    }
    float& of_lane = four[static_cast<size_t>(l)];
    of_lane = eights == 0 ? x[first + l] : lanes[0] + lanes[1];
    if (eights > 0 && whole > eights) of_lane += x[first + eights + l];
  }
  sum = fault == kAddsFour ? ((four[0] + four[1]) + four[2]) + four[3]
                           : (four[0] + four[2]) + (four[1] + four[3]);
  for (int64_t i = 0; i < first; ++i) sum += x[i];
  for (int64_t i = first + whole; i < n; ++i) sum += x[i];
  return sum;
}

struct PoolSizes {
  int64_t height, width, out_height, out_width, kernel[2], stride[2], dilation[2], pad_begin[2], pad_end[2];
  bool is_average, counts_padding;
};

// ⊕ and ⊗ of docs/arithmetic.md.
float Joined(float a, float b, bool is_average) { return is_average ? a + b : a > b ? a : b; }
float JoinedLast(float a, float b, bool is_average) { return is_average ? a + b : a < b ? b : a; }

float PoolOf(const PoolSizes& p, const float* x, int64_t out_h, int64_t out_w, Fault fault) {
  const float first = p.is_average ? 0.0f : -FLT_MAX;
  const int64_t h0 = out_h * p.stride[0] - p.pad_begin[0], w0 = out_w * p.stride[1] - p.pad_begin[1];
  const bool is_dilated = p.dilation[0] > 1 || p.dilation[1] > 1;
  const int64_t padding = p.pad_begin[0] + p.pad_begin[1] + p.pad_end[0] + p.pad_end[1];
  const bool is_whole = p.kernel[0] == p.height && p.kernel[1] == p.width && p.stride[0] == 1 &&
                        p.stride[1] == 1 && padding == 0 && !is_dilated;
  const bool has_columns = !is_whole && !is_dilated && p.stride[1] <= 2 && p.kernel[0] <= 32 &&
                           p.kernel[1] <= 32 && p.pad_begin[1] + p.width + p.pad_end[1] <= 2045;
  float y = first;
  int64_t count = 0;
  if (is_whole && fault != kNoColumns) {
    const int64_t all = p.height * p.width, fours = all / 4 * 4;
    std::array<float, 4> lanes;
    lanes.fill(first);
    for (int64_t i = 0; i < fours; ++i) {
      float& lane = lanes[static_cast<size_t>(i % 4)];
      lane = Joined(lane, x[i], p.is_average);
    }
    y = Joined(Joined(lanes[0], lanes[2], p.is_average), Joined(lanes[1], lanes[3], p.is_average),
               p.is_average);
    for (int64_t i = fours; i < all; ++i) y = JoinedLast(y, x[i], p.is_average);
    count = all;
  } else if (has_columns && fault != kNoColumns) {
    bool is_first = true;
    for (int64_t w = w0; w < w0 + p.kernel[1]; ++w) {
      const bool is_inside = w >= 0 && w < p.width;
      const auto join = w < p.width / 4 * 4 && fault != kJoinsLast ? Joined : JoinedLast;
      float column = first;
      for (int64_t h = std::max<int64_t>(h0, 0), begin = h;
           is_inside && h < std::min(p.height, h0 + p.kernel[0]); ++h, ++count)
        column = h == begin ? x[h * p.width + w] : join(column, x[h * p.width + w], p.is_average);
      y = is_first ? column : Joined(y, column, p.is_average);
      is_first = false;
    }
  } else {
    for (int64_t i = 0; i < p.kernel[0] * p.kernel[1]; ++i) {
      const int64_t h = h0 + i / p.kernel[1] * p.dilation[0], w = w0 + i % p.kernel[1] * p.dilation[1];
      if (h < 0 || h >= p.height || w < 0 || w >= p.width) continue;
      y = is_dilated && count == 0 ? x[h * p.width + w] : JoinedLast(y, x[h * p.width + w], p.is_average);
      ++count;
    }
  }
  if (p.counts_padding || fault == kCountsAll) count = p.kernel[0] * p.kernel[1];
  return p.is_average ? y / static_cast<float>(count) : y;
}

// ln x as Eigen's plog_float() has it for four adjacent elements; float_function.cc.
float EigenLog(float x, Fault fault) {
  if (!(x >= 0)) return NAN;
  if (x == 0) return -INFINITY;
  if (x == INFINITY) return x;
  int exponent = 0;
  float m = std::frexp(x, &exponent);
  const bool is_small = m < 0x1.6a09e6p-1f;
  auto e = static_cast<float>(exponent);
  if (is_small) e -= 1;
  const float r = is_small ? (m - 1) + m : m - 1;
  const float given = 0.18256296349849254f,
              last = fault == kCoefficient ? std::nextafter(given, 1.0f) : given;
  const auto step = [&](float a, float b, float c) {
    return fault == kRoundsProducts ? std::fma(a, b, c)
                                    : a * b + c;  // here the definition has no fused multiply-add
  };
  const float p = r * step(r, step(r, last, 1.0000000190281063f), 1.0000000190281136f);
  const float q =
      step(r, step(r, step(r, 0.049616247954120038f, 0.59923249590823520f), 1.4999999999999927f), 1.0f);
  return step(e, 0.693147180559945309f, p / q);
}

// exp x as Eigen's pexp_float() has it for four adjacent elements; float_function.cc.
float EigenExp(float x, Fault fault) {
  const auto step = [&](float a, float b, float c) {
    return fault == kFusesExp ? std::fma(a, b, c) : a * b + c;
  };
  if (std::isnan(x)) return x;
  if (x < -104) return 0;
  const float clamped = std::min(x, 88.723f);
  const float m = std::floor(step(clamped, 1.44269504088896341f, 0.5f));
  const float r = step(m, 2.12194440e-4f, step(m, -0.693359375f, clamped));
  const float q = r * r;
  const float even = step(q, step(q, 1.37449637986719608306884765625e-3f, 4.166965186595916748046875e-2f),
                          0.49999988079071044921875f);
  const float odd = step(q, 8.36894474923610687255859375e-3f, 0.16666518151760101318359375f);
  const float y = step(q, step(r, odd, even), r + 1);
  return std::max(static_cast<float>(std::ldexp(static_cast<double>(y), static_cast<int>(m))), x);
}

float EigenLog1p(float x) {
  const float sum = x + 1, log = EigenLog(sum, kNone);
  return sum == 1 || sum == log ? x : x * (log / (sum - 1));
}

// The operators of float_function.cc, in the order of their names.
enum Function : int32_t { kCelu, kElu, kLog, kSelu, kSoftplus };

float FunctionOf(Function function, float x, float alpha, float gamma, Fault fault) {
  const auto above = [](float value) { return value < 0 ? 0.0f : value; };
  const auto below = [](float value) { return value > 0 ? 0.0f : value; };
  switch (function) {
    case kCelu:
      return above(x) + below(alpha * (EigenExp(x / alpha, fault) - 1));
    case kElu:
      return x >= 0 ? x : alpha * (EigenExp(x, fault) - 1);
    case kSelu:
      return gamma * above(x) + below(gamma * alpha * (EigenExp(x, fault) - 1));
    case kSoftplus:
      return x > 0 ? x + EigenLog1p(EigenExp(0 - x, fault)) : EigenLog1p(EigenExp(x, fault));
    case kLog:
      break;
  }
  return EigenLog(x, fault);
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

/// alpha·A·B + C of A (m, k) and B (k, n). `c`: beta·C of each output; null: none.
void intact_matmul_reference(const float* a, const float* b, float alpha, const float* c, float* y, int64_t m,
                             int64_t n, int64_t k, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  for (int64_t i = 0; i < m * n; ++i)
    y[i] = ProductOf(a + i / n * k, b + i % n, n, k, DepthsOf(n, k, fault), {alpha, c}, i, fault);
}

/// `sizes`: the fields of Window, where out_height and out_width belong to Y. Weights are (channels, outputs of a group, taps).
void intact_conv_transpose_reference(const float* x, const float* weights, const float* bias, float* y,
                                     int64_t batch, const int64_t* sizes, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  const int64_t groups = sizes[2], k = sizes[0] / groups, outputs = sizes[1] / groups, height = sizes[3],
                width = sizes[4], out_height = sizes[5], out_width = sizes[6], taps = sizes[7] * sizes[8],
                pixels = height * width, out_pixels = out_height * out_width;
  const int64_t depths = outputs * taps == 1 ? 128 : DepthsOf(pixels, k, fault);
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t plane = 0; plane < batch * sizes[1]; ++plane) {
    const int64_t group = plane / outputs % groups, output = plane % outputs;
    const float* const image = x + plane / outputs * k * pixels;
    float* const to = y + plane * out_pixels;
    std::fill_n(to, out_pixels, fault == kBiasFirst && bias != nullptr ? bias[plane % sizes[1]] : 0.0f);
    for (int64_t i = 0; i < taps; ++i) {
      const int64_t tap = fault == kTapsBackward ? taps - 1 - i : i;
      for (int64_t c = 0; c < k; ++c)
        row[static_cast<size_t>(c)] = weights[((group * k + c) * outputs + output) * taps + tap];
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        const int64_t h = pixel / width * sizes[9] - sizes[13] + tap / sizes[8] * sizes[11];
        const int64_t w = pixel % width * sizes[10] - sizes[14] + tap % sizes[8] * sizes[12];
        if (h < 0 || h >= out_height || w < 0 || w >= out_width) continue;
        to[h * out_width + w] += ProductOf(row.data(), image + pixel, pixels, k, depths, {}, 0, fault);
      }
    }
    for (int64_t i = 0; bias != nullptr && fault != kBiasFirst && i < out_pixels; ++i)
      to[i] += bias[plane % sizes[1]];
  }
}

/// As intact_conv_reference(), as FloatMatrixConv defines convolutions of one dimension: heights are 1.
void intact_matrix_conv_reference(const float* x, const float* weights, const float* bias, float* y,
                                  int64_t batch, const int64_t* sizes, int32_t which) {
  const auto fault = static_cast<Fault>(which);
  const int64_t channels = sizes[0] / sizes[2], outputs = sizes[1] / sizes[2], width = sizes[4],
                pixels = sizes[6], taps = sizes[8], k = channels * taps;
  std::vector<float> row(static_cast<size_t>(k)), column(static_cast<size_t>(k));
  for (int64_t i = 0; i < batch * sizes[1] * pixels; ++i) {
    const int64_t pixel = i % pixels, plane = i / pixels, output = plane % sizes[1];
    const float* const image = x + plane / outputs * channels * width;
    for (int64_t depth = 0; depth < k; ++depth) {
      const int64_t c = fault == kTapsFirst ? depth % channels : depth / taps;
      const int64_t tap = fault == kTapsFirst ? depth / channels : depth % taps;
      const int64_t w = pixel * sizes[10] - sizes[14] + tap * sizes[12];
      row[static_cast<size_t>(depth)] = weights[(output * channels + c) * taps + tap];
      column[static_cast<size_t>(depth)] = w >= 0 && w < width ? image[c * width + w] : 0.0f;
    }
    const bool begins_with_bias = fault == kBiasFirst && bias != nullptr;
    y[i] = ProductOf(row.data(), column.data(), 1, k, DepthsOf(pixels, k, fault),
                     {1, begins_with_bias ? bias + output : nullptr}, 0, fault);
    if (bias != nullptr && !begins_with_bias) y[i] = Flushed(y[i] + bias[output], fault);
  }
}

/// `planes` images. `sizes`: the extents of PoolSizes; of a window that is the whole image, its extents.
void intact_pool_reference(const float* x, float* y, int64_t planes, const int64_t* sizes, int32_t is_average,
                           int32_t counts_padding, int32_t which) {
  const PoolSizes p = {sizes[0],
                       sizes[1],
                       sizes[2],
                       sizes[3],
                       {sizes[4], sizes[5]},
                       {sizes[6], sizes[7]},
                       {sizes[8], sizes[9]},
                       {sizes[10], sizes[11]},
                       {sizes[12], sizes[13]},
                       is_average != 0,
                       counts_padding != 0};
  for (int64_t i = 0; i < planes * p.out_height * p.out_width; ++i)
    y[i] = PoolOf(p, x + i / p.out_width / p.out_height * p.height * p.width, i / p.out_width % p.out_height,
                  i % p.out_width, static_cast<Fault>(which));
}

/// Celu, Elu, Log, Selu or Softplus.
void intact_function_reference(const float* x, float* y, int64_t count, int32_t function, float alpha,
                               float gamma, int32_t which) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = FunctionOf(static_cast<Function>(function), x[i], alpha, gamma, static_cast<Fault>(which));
}

/// The last axes of (items, count).
void intact_reduce_last_reference(const float* x, float* y, int64_t items, int64_t count, int32_t is_mean,
                                  int32_t which) {
  for (int64_t i = 0; i < items; ++i) {
    y[i] = SumOfLast(x + i * count, count, i * count, static_cast<Fault>(which));
    if (is_mean != 0) y[i] /= static_cast<float>(count);
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
