#include "float_conv.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "avx512.h"

namespace intact::onnxruntime {
namespace {

constexpr int64_t kPanel = 16;                   // outputs
constexpr double kMultiplyAddsOfTask = 1 << 20;  // fewer take about as long as waking a thread

// One block of channels of adjacent output pixels of a line, and of some panels of their outputs.
struct Tile {
  const float* x;        // the block's first channel of the first pixel of an image
  int64_t first_tap;     // from `x` to the first tap of the first pixel; may lie outside of the image
  const float* weights;  // of the first panel and the block
  const float* bias;     // of the first panel; null except of the last block of a convolution with a bias
  float* y;              // the first pixel's first output
  int64_t outputs;       // of a pixel: of the last panel only some may exist
  int64_t channels;      // of the block
  bool is_first;         // of the blocks
  bool lacks_channels;   // of a block of 16
  int64_t h_begin, h_end, w_begin, w_end;  // the taps that lie in the image, for all pixels

  // The same for all tiles of a convolution, in elements.
  int64_t kernel_w;
  int64_t x_step, y_step;  // from a pixel to the next one
  int64_t h_step, w_step;  // from a tap to the next one
  int64_t panel_step;      // from a panel of weights to the next one
  int64_t block_step;      // from a block of weights to the next one

  // 1, or the blocks of one channel that a tile of single channels adds, and the distance of these channels.
  int64_t blocks, channel_step;

  // Of a Relu or Clip behind the last block.
  bool clamps;
  float least, most;
};

using TileFunction = void (*)(const Tile& tile);

// The definition: one output after the other.
template <size_t, size_t kPixels>
void ComputeTilePortable(const Tile& tile) {
  for (int64_t pixel = 0; pixel < static_cast<int64_t>(kPixels); ++pixel)
    for (int64_t o = 0; o < tile.outputs; ++o) {
      const float* const weights = tile.weights + o / kPanel * tile.panel_step + o % kPanel;
      float part = 0;
      for (int64_t h = tile.h_begin; h < tile.h_end; ++h)
        for (int64_t w = tile.w_begin; w < tile.w_end; ++w) {
          const float* const x =
              tile.x + tile.first_tap + pixel * tile.x_step + h * tile.h_step + w * tile.w_step;
          const float* const of_tap = weights + (h * tile.kernel_w + w) * tile.channels * kPanel;
          for (int64_t i = 0; i < tile.channels; ++i) part = std::fma(x[i], of_tap[i * kPanel], part);
          if (tile.lacks_channels) part += 0.0f;  // −0 becomes 0
        }
      float& y = tile.y[pixel * tile.y_step + o];
      if (!tile.is_first) part += y;
      if (tile.bias != nullptr) part += tile.bias[o];
      if (tile.clamps) {
        part = part < tile.least ? tile.least : part;  // a NaN stays one
        part = part > tile.most ? tile.most : part;
      }
      y = part;
    }
}

#define INTACT_UNROLL _Pragma("GCC unroll 12")

// The pixels of a tile, three from each pointer, so that the address of each pixel is a pointer and a multiple of the step that an
// instruction can add.
template <size_t kPixels>
struct PixelPointers {
  static constexpr size_t kThrees = (kPixels + 2) / 3;
  const float* of_three[kThrees];

  PixelPointers(const float* x, int64_t step) {
    for (size_t q = 0; q < kThrees; ++q) of_three[q] = x + static_cast<int64_t>(3 * q) * step;
  }
  const float* Of(size_t pixel, int64_t step) const {
    return of_three[pixel / 3] + static_cast<int64_t>(pixel % 3) * step;
  }
  void Advance(int64_t distance) {
    for (size_t q = 0; q < kThrees; ++q) {
      of_three[q] += distance;
      asm("" : "+r"(of_three[q]));  // else GCC computes the address of each pixel anew
    }
  }
};

// A NaN stays one: these instructions return their second operand then.
[[gnu::target("avx2,fma")]] __m256 Clamped(__m256 values, const Tile& tile) {
  return _mm256_min_ps(_mm256_set1_ps(tile.most), _mm256_max_ps(_mm256_set1_ps(tile.least), values));
}
INTACT_BEGIN_AVX512
[[INTACT_AVX512]] __m512 Clamped(__m512 values, const Tile& tile) {
  return _mm512_min_ps(_mm512_set1_ps(tile.most), _mm512_max_ps(_mm512_set1_ps(tile.least), values));
}
INTACT_END_AVX512

// One panel: two vectors.
template <size_t, size_t kPixels>
[[gnu::target("avx2,fma")]] void ComputeTileAvx2(const Tile& tile) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(tile.outputs));
  const __m256i masks[] = {_mm256_cmpgt_epi32(all, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                           _mm256_cmpgt_epi32(all, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  const int64_t step = tile.x_step, w_step = tile.w_step, channels = tile.channels;
  __m256 parts[kPixels][2];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) parts[p][0] = parts[p][1] = _mm256_setzero_ps();
  for (int64_t h = tile.h_begin; h < tile.h_end; ++h) {
    const float* of_tap = tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * w_step;
    const float* weights = tile.weights + (h * tile.kernel_w + tile.w_begin) * channels * kPanel;
    for (int64_t w = tile.w_begin; w < tile.w_end; ++w, of_tap += w_step) {
      PixelPointers<kPixels> x(of_tap, step);
      for (int64_t i = channels; i > 0; --i, weights += kPanel, x.Advance(1)) {
        const __m256 low = _mm256_loadu_ps(weights), high = _mm256_loadu_ps(weights + 8);
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m256 value = _mm256_broadcast_ss(x.Of(p, step));
          parts[p][0] = _mm256_fmadd_ps(value, low, parts[p][0]);
          parts[p][1] = _mm256_fmadd_ps(value, high, parts[p][1]);
        }
      }
      if (!tile.lacks_channels) continue;
      INTACT_UNROLL
      for (size_t p = 0; p < kPixels; ++p)
        for (__m256& part : parts[p]) part = _mm256_add_ps(part, _mm256_setzero_ps());
    }
  }
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < 2; ++v) {
    float* const y = tile.y + static_cast<int64_t>(p) * tile.y_step + 8 * v;
    if (!tile.is_first) parts[p][v] = _mm256_add_ps(parts[p][v], _mm256_maskload_ps(y, masks[v]));
    if (tile.bias != nullptr) parts[p][v] = _mm256_add_ps(parts[p][v], _mm256_loadu_ps(tile.bias + 8 * v));
    if (tile.clamps) parts[p][v] = Clamped(parts[p][v], tile);
    _mm256_maskstore_ps(y, masks[v], parts[p][v]);
  }
}

// All blocks of one channel each. So the sums stay in registers.
template <size_t, size_t kPixels>
[[gnu::target("avx2,fma")]] void ComputeSinglesAvx2(const Tile& tile) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(tile.outputs));
  const __m256i masks[] = {_mm256_cmpgt_epi32(all, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                           _mm256_cmpgt_epi32(all, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  __m256 sums[kPixels][2];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) sums[p][0] = sums[p][1] = _mm256_set1_ps(-0.0f);  // x + −0 is x
  for (int64_t c = 0; c < tile.blocks; ++c) {
    __m256 parts[kPixels][2];
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) parts[p][0] = parts[p][1] = _mm256_setzero_ps();
    for (int64_t h = tile.h_begin; h < tile.h_end; ++h) {
      const float* x =
          tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * tile.w_step + c * tile.channel_step;
      const float* weights = tile.weights + c * tile.block_step + (h * tile.kernel_w + tile.w_begin) * kPanel;
      for (int64_t w = tile.w_begin; w < tile.w_end; ++w, x += tile.w_step, weights += kPanel) {
        const __m256 low = _mm256_loadu_ps(weights), high = _mm256_loadu_ps(weights + 8);
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m256 value = _mm256_broadcast_ss(x + static_cast<int64_t>(p) * tile.x_step);
          parts[p][0] = _mm256_fmadd_ps(value, low, parts[p][0]);
          parts[p][1] = _mm256_fmadd_ps(value, high, parts[p][1]);
        }
      }
    }
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
    for (size_t v = 0; v < 2; ++v) sums[p][v] = _mm256_add_ps(parts[p][v], sums[p][v]);
  }
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < 2; ++v) {
    if (tile.bias != nullptr) sums[p][v] = _mm256_add_ps(sums[p][v], _mm256_loadu_ps(tile.bias + 8 * v));
    if (tile.clamps) sums[p][v] = Clamped(sums[p][v], tile);
    _mm256_maskstore_ps(tile.y + static_cast<int64_t>(p) * tile.y_step + 8 * v, masks[v], sums[p][v]);
  }
}

template <size_t kPanels, size_t kPixels>
[[INTACT_AVX512]] void ComputeSinglesAvx512(const Tile& tile) {
  __m512 sums[kPixels][kPanels];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < kPanels; ++v) sums[p][v] = _mm512_set1_ps(-0.0f);  // x + −0 is x
  for (int64_t c = 0; c < tile.blocks; ++c) {
    __m512 parts[kPixels][kPanels];
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
    for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_setzero_ps();
    for (int64_t h = tile.h_begin; h < tile.h_end; ++h) {
      const float* x =
          tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * tile.w_step + c * tile.channel_step;
      const float* weights = tile.weights + c * tile.block_step + (h * tile.kernel_w + tile.w_begin) * kPanel;
      for (int64_t w = tile.w_begin; w < tile.w_end; ++w, x += tile.w_step, weights += kPanel) {
        __m512 columns[kPanels];
        INTACT_UNROLL
        for (size_t v = 0; v < kPanels; ++v)
          columns[v] = _mm512_loadu_ps(weights + static_cast<int64_t>(v) * tile.panel_step);
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m512 value = _mm512_set1_ps(x[static_cast<int64_t>(p) * tile.x_step]);
          INTACT_UNROLL
          for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_fmadd_ps(value, columns[v], parts[p][v]);
        }
      }
    }
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
    for (size_t v = 0; v < kPanels; ++v) sums[p][v] = _mm512_add_ps(parts[p][v], sums[p][v]);
  }
  INTACT_UNROLL
  for (size_t v = 0; v < kPanels; ++v) {
    const int64_t left = tile.outputs - static_cast<int64_t>(v) * kPanel;
    const auto mask = static_cast<__mmask16>(left >= kPanel ? 0xffff : (1 << left) - 1);
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) {
      if (tile.bias != nullptr)
        sums[p][v] = _mm512_add_ps(sums[p][v], _mm512_loadu_ps(tile.bias + v * kPanel));
      if (tile.clamps) sums[p][v] = Clamped(sums[p][v], tile);
      _mm512_mask_storeu_ps(tile.y + static_cast<int64_t>(p) * tile.y_step + v * kPanel, mask, sums[p][v]);
    }
  }
}

template <size_t kPanels, size_t kPixels>
[[INTACT_AVX512]] void ComputeTileAvx512(const Tile& tile) {
  const int64_t step = tile.x_step, panel_step = tile.panel_step;
  const int64_t w_step = tile.w_step, channels = tile.channels;
  __m512 parts[kPixels][kPanels];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_setzero_ps();
  for (int64_t h = tile.h_begin; h < tile.h_end; ++h) {
    const float* of_tap = tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * w_step;
    PixelPointers<kPanels> weights(tile.weights + (h * tile.kernel_w + tile.w_begin) * channels * kPanel,
                                   panel_step);
    for (int64_t w = tile.w_begin; w < tile.w_end; ++w, of_tap += w_step) {
      PixelPointers<kPixels> x(of_tap, step);
      for (int64_t i = channels; i > 0; --i, weights.Advance(kPanel), x.Advance(1)) {
        __m512 columns[kPanels];
        INTACT_UNROLL
        for (size_t v = 0; v < kPanels; ++v) columns[v] = _mm512_loadu_ps(weights.Of(v, panel_step));
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m512 value = _mm512_set1_ps(*x.Of(p, step));
          INTACT_UNROLL
          for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_fmadd_ps(value, columns[v], parts[p][v]);
        }
      }
      if (!tile.lacks_channels) continue;
      INTACT_UNROLL
      for (size_t p = 0; p < kPixels; ++p)
        for (__m512& part : parts[p]) part = _mm512_add_ps(part, _mm512_setzero_ps());
    }
  }
  INTACT_UNROLL
  for (size_t v = 0; v < kPanels; ++v) {
    const int64_t left = tile.outputs - static_cast<int64_t>(v) * kPanel;
    const auto mask = static_cast<__mmask16>(left >= kPanel ? 0xffff : (1 << left) - 1);
    INTACT_UNROLL
    for (size_t p = 0; p < kPixels; ++p) {
      float* const y = tile.y + static_cast<int64_t>(p) * tile.y_step + v * kPanel;
      if (!tile.is_first) parts[p][v] = _mm512_add_ps(parts[p][v], _mm512_maskz_loadu_ps(mask, y));
      if (tile.bias != nullptr)
        parts[p][v] = _mm512_add_ps(parts[p][v], _mm512_loadu_ps(tile.bias + v * kPanel));
      if (tile.clamps) parts[p][v] = Clamped(parts[p][v], tile);
      _mm512_mask_storeu_ps(y, mask, parts[p][v]);
    }
  }
}

}  // namespace

// The functions for tiles of 1 to most_panels panels and 1 to most_pixels pixels.
struct FloatConv::Kernels {
  static constexpr size_t kMostPanels = 4, kMostPixels = 12;
  const char* name;
  int64_t most_panels, most_pixels;
  bool adds_blocks;  // of one channel each: a tile computes all of them
  std::array<std::array<TileFunction, kMostPixels>, kMostPanels> tiles;
};

namespace {

// A template cannot take a template of functions, and a macro's argument in parentheses cannot have template arguments.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define INTACT_THREE_TILES(function, panels, first) \
  function<(panels), (first)>, function<(panels), (first) + 1>, function<(panels), (first) + 2>
#define INTACT_TILES(function, panels)                                               \
  std::array<TileFunction, 12> {                                                     \
    INTACT_THREE_TILES(function, panels, 1), INTACT_THREE_TILES(function, panels, 4) \
  }
#define INTACT_LONG_TILES(function, panels)                                               \
  std::array<TileFunction, 12> {                                                          \
    INTACT_THREE_TILES(function, panels, 1), INTACT_THREE_TILES(function, panels, 4),     \
        INTACT_THREE_TILES(function, panels, 7), INTACT_THREE_TILES(function, panels, 10) \
  }
// NOLINTEND(bugprone-macro-parentheses)
const FloatConv::Kernels kPortable = {
    "conv_f32_portable", 1, 6, false, {INTACT_TILES(ComputeTilePortable, 1)}};
const FloatConv::Kernels kAvx2 = {"conv_f32_avx2", 1, 6, false, {INTACT_TILES(ComputeTileAvx2, 1)}};
const FloatConv::Kernels kAvx512 = {"conv_f32_avx512",
                                    4,
                                    6,
                                    false,
                                    {INTACT_TILES(ComputeTileAvx512, 1), INTACT_TILES(ComputeTileAvx512, 2),
                                     INTACT_TILES(ComputeTileAvx512, 3), INTACT_TILES(ComputeTileAvx512, 4)}};
const FloatConv::Kernels kNarrowAvx512 = {
    "conv_f32_avx512",
    2,
    12,
    false,
    {INTACT_LONG_TILES(ComputeTileAvx512, 1), INTACT_LONG_TILES(ComputeTileAvx512, 2)}};
const FloatConv::Kernels kSinglesAvx2 = {"conv_f32_avx2", 1, 3, true, {INTACT_TILES(ComputeSinglesAvx2, 1)}};
const FloatConv::Kernels kSinglesAvx512 = {
    "conv_f32_avx512",
    2,
    6,
    true,
    {INTACT_TILES(ComputeSinglesAvx512, 1), INTACT_TILES(ComputeSinglesAvx512, 2)}};

// `is_of_singles`: whether blocks have one channel. `panels`: of a group.
const FloatConv::Kernels& ChooseKernels(const Settings& settings, bool is_of_singles, int64_t panels) {
  if (HasAvx512(settings)) return is_of_singles ? kSinglesAvx512 : panels <= 2 ? kNarrowAvx512 : kAvx512;
  if (!HasAvx2(settings)) return kPortable;
  return is_of_singles ? kSinglesAvx2 : kAvx2;
}

// The taps [first, second) of a dimension that lie in the image, for the output at `place`.
std::pair<int64_t, int64_t> TapsInside(const intact_conv_desc& desc, size_t i, int64_t place,
                                       int64_t extent) {
  const int64_t first = place * desc.stride[i] - desc.pad_begin[i], step = desc.dilation[i];
  const int64_t begin = first < 0 ? (-first + step - 1) / step : 0;
  const int64_t end = first < extent ? std::min(desc.kernel[i], (extent - 1 - first) / step + 1) : 0;
  return {std::min(begin, end), end};
}

}  // namespace

FloatConv::FloatConv(const Node& node, const Context& context)
    : geometry_(node, node.ShapeOf(1)),
      neighbors_(context.neighbors),
      is_input_nchw_(!geometry_.channels_last || neighbors_.has_input_transpose),
      is_output_nchw_(!geometry_.channels_last || neighbors_.has_output_transpose) {
  context.RequireReproducible();
  node.Type(0, {INTACT_F32});
  const Constant w = node.Weights(1, INTACT_F32);
  const intact_conv_desc& desc = geometry_.desc;
  if (HasOneOrder(w.shape, desc.groups))
    throw Refusal("W: has " + std::to_string(w.shape[1]) + " channels and " +
                  std::to_string(w.shape[0] / desc.groups) +
                  " outputs in each group, where ONNX Runtime adds in one order on every CPU; expected "
                  "multiples of 8");
  channels_ = w.shape[1];
  outputs_ = w.shape[0] / desc.groups;
  const bool is_pointwise = desc.kernel[0] * desc.kernel[1] == 1 &&
                            desc.pad_begin[0] + desc.pad_begin[1] + desc.pad_end[0] + desc.pad_end[1] == 0;
  block_ = desc.groups == 1 && channels_ < kPanel ? 1 : is_pointwise ? 8 * kPanel : kPanel;
  panels_ = (outputs_ + kPanel - 1) / kPanel;
  kernels_ = &ChooseKernels(context.settings, block_ == 1, panels_);
  const std::vector<float> bias = Bias<float>(node, 2, INTACT_F32, w.shape[0]);
  if (!bias.empty()) bias_.resize(static_cast<size_t>(desc.groups * panels_ * kPanel));
  for (size_t o = 0; o < bias.size(); ++o) {
    const auto output = static_cast<int64_t>(o);
    bias_[static_cast<size_t>(output / outputs_ * panels_ * kPanel + output % outputs_)] = bias[o];
  }
  Pack(w);
}

bool FloatConv::HasOneOrder(const Shape& weights, int64_t groups) {
  return weights.size() == 4 && groups > 1 && (weights[1] % 8 != 0 || weights[0] / groups % 8 != 0);
}

std::string FloatConv::Kernel() const { return kernels_->name; }

void FloatConv::Pack(const Constant& w) {
  const int64_t groups = geometry_.desc.groups, taps = w.shape[2] * w.shape[3];
  weights_.resize(static_cast<size_t>(groups * panels_ * channels_ * taps));
  const float* const source = w.As<float>().data();
  float* target = weights_.data()->weights.data();
  for (int64_t panel = 0; panel < groups * panels_; ++panel) {
    const int64_t first = panel % panels_ * kPanel, of_group = panel / panels_ * outputs_;
    for (int64_t c = 0; c < channels_; c += block_)
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t i = c; i < std::min(c + block_, channels_); ++i)
          for (int64_t o = first; o < first + kPanel; ++o)
            *target++ = o < outputs_ ? source[((of_group + o) * channels_ + i) * taps + tap] : 0.0f;
  }
}

std::vector<FloatConv::Pixels> FloatConv::PixelsOfLine(int64_t in_width, int64_t out_width) const {
  std::vector<Pixels> runs, line;
  for (int64_t pixel = 0; pixel < out_width; ++pixel) {
    const auto [begin, end] = TapsInside(geometry_.desc, 1, pixel, in_width);
    if (!runs.empty() && runs.back().w_begin == begin && runs.back().w_end == end) {
      ++runs.back().count;
    } else {
      runs.push_back({pixel, 1, begin, end, false});
    }
  }
  constexpr int64_t kFew = 2;
  for (const Pixels& run : runs) {
    const bool are_few = run.count <= kFew;
    const int64_t parts = are_few ? run.count : (run.count - 1) / kernels_->most_pixels + 1;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t begin = run.count * i / parts, end = run.count * (i + 1) / parts;
      line.push_back({run.first + begin, end - begin, run.w_begin, run.w_end, are_few});
    }
  }
  return line;
}

std::vector<int64_t> FloatConv::LinesOfColumns(int64_t in_height, int64_t out_height) const {
  std::vector<int64_t> lines(static_cast<size_t>(out_height), 1);
  int64_t first = -1;  // of the lines with all taps that are computed together
  for (int64_t line = 0; line < out_height; ++line) {
    const auto [begin, end] = TapsInside(geometry_.desc, 0, line, in_height);
    if (begin != 0 || end != geometry_.desc.kernel[0]) {
      first = -1;
    } else if (first < 0 || line - first == kernels_->most_pixels) {
      first = line;
    } else {
      ++lines[static_cast<size_t>(first)];
      lines[static_cast<size_t>(line)] = 0;
    }
  }
  return lines;
}

void FloatConv::ComputeLine(const Images& images, const Lines& lines, int64_t line,
                            const Target& target) const {
  const intact_conv_desc& desc = geometry_.desc;
  const Shape& in = images.in;
  const int64_t panels = std::min(kernels_->most_panels, panels_ - lines.panel);
  const int64_t taps = desc.kernel[0] * desc.kernel[1];
  const int64_t first_line = line * desc.stride[0] - desc.pad_begin[0];
  const int64_t line_step = in[2] * images.x_pixel_step;
  const float* const bias =
      bias_.empty() ? nullptr : bias_.data() + (lines.group * panels_ + lines.panel) * kPanel;
  const auto& functions = kernels_->tiles[static_cast<size_t>(panels - 1)];
  Tile tile{};
  std::tie(tile.h_begin, tile.h_end) = TapsInside(desc, 0, line, in[1]);
  tile.outputs = std::min(panels * kPanel, outputs_ - lines.panel * kPanel);
  tile.kernel_w = desc.kernel[1];
  tile.h_step = desc.dilation[0] * line_step;
  tile.w_step = desc.dilation[1] * images.x_pixel_step;
  tile.panel_step = channels_ * taps * kPanel;
  tile.block_step = taps * kPanel;
  tile.channel_step = images.x_channel_step;
  tile.blocks = kernels_->adds_blocks ? channels_ : 1;
  const int64_t channels_of_tile = block_ * tile.blocks;
  for (int64_t c = 0; c < channels_; c += channels_of_tile) {
    tile.x = images.x + lines.image * in[1] * in[2] * in[3] +
             (lines.group * channels_ + c) * images.x_channel_step;
    tile.weights = weights_.data()->weights.data() + (lines.group * panels_ + lines.panel) * tile.panel_step +
                   c * taps * kPanel;
    tile.channels = std::min(block_, channels_ - c);
    tile.is_first = c == 0;
    tile.lacks_channels = block_ == kPanel && tile.channels < kPanel;
    if (c + channels_of_tile >= channels_) {
      tile.bias = bias;
      tile.clamps = neighbors_.clamp.has_value();
      if (tile.clamps) std::tie(tile.least, tile.most) = *neighbors_.clamp;
    }
    for (const Pixels& each : images.pixels) {
      tile.w_begin = each.w_begin;
      tile.w_end = each.w_end;
      tile.first_tap =
          first_line * line_step + (each.first * desc.stride[1] - desc.pad_begin[1]) * images.x_pixel_step;
      tile.x_step = each.is_of_column ? desc.stride[0] * line_step : desc.stride[1] * images.x_pixel_step;
      tile.y_step = each.is_of_column ? target.line_step : target.pixel_step;
      tile.y = target.y + each.first * target.pixel_step;
      const int64_t count = each.is_of_column ? images.lines[static_cast<size_t>(line)] : each.count;
      if (count > 0) functions[static_cast<size_t>(count - 1)](tile);
    }
  }
}

void FloatConv::ComputeLines(const Images& images, const Lines& lines) const {
  const Shape& out = images.out;
  const int64_t count = images.lines[static_cast<size_t>(lines.first)];
  const int64_t first_output = lines.group * outputs_ + lines.panel * kPanel;
  const int64_t outputs = std::min(kernels_->most_panels * kPanel, outputs_ - lines.panel * kPanel);
  if (!is_output_nchw_) {
    const Target target = {images.y + (lines.image * out[1] + lines.first) * out[2] * out[3] + first_output,
                           out[3], out[2] * out[3]};
    for (int64_t i = 0; i < count; ++i)
      ComputeLine(images, lines, lines.first + i,
                  {target.y + i * target.line_step, target.pixel_step, target.line_step});
    return;
  }
  // Outputs of a pixel are adjacent while they are computed.
  thread_local std::vector<float> pixels;
  pixels.resize(static_cast<size_t>(count * out[2] * outputs));
  for (int64_t i = 0; i < count; ++i)
    ComputeLine(images, lines, lines.first + i,
                {pixels.data() + i * out[2] * outputs, outputs, out[2] * outputs});
  Transpose(pixels.data(), outputs,
            images.y + ((lines.image * out[3] + first_output) * out[1] + lines.first) * out[2],
            out[1] * out[2], count * out[2], outputs);
}

FloatConv::Images FloatConv::ImagesOf(Run& run) const {
  const auto input = run.Input(0);
  Images images;
  images.x = static_cast<const float*>(input.GetTensorRawData());
  images.in = input.GetTensorTypeAndShapeInfo().GetShape();
  Shape& in = images.in;
  if (in.size() == 4 && is_input_nchw_ && geometry_.channels_last)
    std::rotate(in.begin() + 1, in.begin() + 2, in.end());
  Shape& out = images.out = geometry_.OutputShape(in);
  if (!geometry_.channels_last) {
    std::rotate(in.begin() + 1, in.begin() + 2, in.end());
    std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  }
  images.y =
      static_cast<float*>(run.Output(is_output_nchw_ ? Shape{out[0], out[3], out[1], out[2]} : Shape(out)));
  if (CountOf(out) == 0) return images;
  images.x_channel_step = 1;
  images.x_pixel_step = in[3];
  if (is_input_nchw_ && block_ == 1) {  // the tiles read one channel after the other
    images.x_channel_step = in[1] * in[2];
    images.x_pixel_step = 1;
  } else if (is_input_nchw_) {
    auto* const pixels = static_cast<float*>(run.Allocate(static_cast<size_t>(CountOf(in)) * sizeof(float)));
    run.Transpose(images.x, pixels, sizeof(float), in[0], in[3], in[1] * in[2]);
    images.x = pixels;
  }
  images.pixels = PixelsOfLine(in[2], out[2]);
  images.lines = LinesOfColumns(in[1], out[1]);
  for (int64_t line = 0; line < out[1]; line += images.lines[static_cast<size_t>(line)])
    images.first_lines.push_back(line);
  return images;
}

void FloatConv::Compute(Run& run) const {
  const Images images = ImagesOf(run);
  const Shape& out = images.out;
  if (CountOf(out) == 0) return;
  const int64_t tiles = (panels_ + kernels_->most_panels - 1) / kernels_->most_panels;
  const auto of_tile = static_cast<int64_t>(images.first_lines.size());
  const int64_t groups = geometry_.desc.groups, all = out[0] * groups * tiles * of_tile;
  const double multiply_adds =
      static_cast<double>(out[0] * out[1] * out[2]) * static_cast<double>(weights_.size()) * kPanel;
  const auto tasks = static_cast<int64_t>(
      std::min<double>(static_cast<double>(all), multiply_adds / kMultiplyAddsOfTask + 1));
  run.ForEach(tasks, [&](int64_t task) {
    for (int64_t i = all * task / tasks; i < all * (task + 1) / tasks; ++i)
      ComputeLines(images, {.image = i / of_tile / tiles / groups,
                            .group = i / of_tile / tiles % groups,
                            .panel = i / of_tile % tiles * kernels_->most_panels,
                            .first = images.first_lines[static_cast<size_t>(i % of_tile)]});
  });
}

}  // namespace intact::onnxruntime
