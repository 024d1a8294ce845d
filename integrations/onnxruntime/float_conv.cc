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

  // 1, or the blocks of one channel that a tile of single channels adds.
  int64_t blocks;
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
      y = tile.bias == nullptr ? part : part + tile.bias[o];
    }
}

#define INTACT_UNROLL _Pragma("GCC unroll 12")

// One panel: two vectors.
template <size_t, size_t kPixels>
[[gnu::target("avx2,fma")]] void ComputeTileAvx2(const Tile& tile) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(tile.outputs));
  const __m256i masks[] = {_mm256_cmpgt_epi32(all, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                           _mm256_cmpgt_epi32(all, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  __m256 parts[kPixels][2];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) parts[p][0] = parts[p][1] = _mm256_setzero_ps();
  for (int64_t h = tile.h_begin; h < tile.h_end; ++h)
    for (int64_t w = tile.w_begin; w < tile.w_end; ++w) {
      const float* const x = tile.x + tile.first_tap + h * tile.h_step + w * tile.w_step;
      const float* const of_tap = tile.weights + (h * tile.kernel_w + w) * tile.channels * kPanel;
      for (int64_t i = 0; i < tile.channels; ++i) {
        const __m256 low = _mm256_loadu_ps(of_tap + i * kPanel);
        const __m256 high = _mm256_loadu_ps(of_tap + i * kPanel + 8);
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m256 value = _mm256_broadcast_ss(x + static_cast<int64_t>(p) * tile.x_step + i);
          parts[p][0] = _mm256_fmadd_ps(value, low, parts[p][0]);
          parts[p][1] = _mm256_fmadd_ps(value, high, parts[p][1]);
        }
      }
      if (!tile.lacks_channels) continue;
      INTACT_UNROLL
      for (size_t p = 0; p < kPixels; ++p)
        for (__m256& part : parts[p]) part = _mm256_add_ps(part, _mm256_setzero_ps());
    }
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < 2; ++v) {
    float* const y = tile.y + static_cast<int64_t>(p) * tile.y_step + 8 * v;
    if (!tile.is_first) parts[p][v] = _mm256_add_ps(parts[p][v], _mm256_maskload_ps(y, masks[v]));
    if (tile.bias != nullptr) parts[p][v] = _mm256_add_ps(parts[p][v], _mm256_loadu_ps(tile.bias + 8 * v));
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
      const float* x = tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * tile.w_step + c;
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
      const float* x = tile.x + tile.first_tap + h * tile.h_step + tile.w_begin * tile.w_step + c;
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
      _mm512_mask_storeu_ps(tile.y + static_cast<int64_t>(p) * tile.y_step + v * kPanel, mask, sums[p][v]);
    }
  }
}

template <size_t kPanels, size_t kPixels>
[[INTACT_AVX512]] void ComputeTileAvx512(const Tile& tile) {
  __m512 parts[kPixels][kPanels];
  INTACT_UNROLL
  for (size_t p = 0; p < kPixels; ++p) INTACT_UNROLL
  for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_setzero_ps();
  for (int64_t h = tile.h_begin; h < tile.h_end; ++h)
    for (int64_t w = tile.w_begin; w < tile.w_end; ++w) {
      const float* const x = tile.x + tile.first_tap + h * tile.h_step + w * tile.w_step;
      const float* const of_tap = tile.weights + (h * tile.kernel_w + w) * tile.channels * kPanel;
      for (int64_t i = 0; i < tile.channels; ++i) {
        __m512 columns[kPanels];
        INTACT_UNROLL
        for (size_t v = 0; v < kPanels; ++v)
          columns[v] = _mm512_loadu_ps(of_tap + i * kPanel + static_cast<int64_t>(v) * tile.panel_step);
        INTACT_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const __m512 value = _mm512_set1_ps(x[static_cast<int64_t>(p) * tile.x_step + i]);
          INTACT_UNROLL
          for (size_t v = 0; v < kPanels; ++v) parts[p][v] = _mm512_fmadd_ps(value, columns[v], parts[p][v]);
        }
      }
      if (!tile.lacks_channels) continue;
      INTACT_UNROLL
      for (size_t p = 0; p < kPixels; ++p)
        for (__m512& part : parts[p]) part = _mm512_add_ps(part, _mm512_setzero_ps());
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

FloatConv::FloatConv(const Node& node, const Context& context) : geometry_(node, node.ShapeOf(1)) {
  if (!context.settings.is_reproducible)
    throw Refusal("operator: computes floats; expected quantized tensors, or the option reproducible");
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

// `row`: of (image, group, tile of panels, line of outputs).
void FloatConv::ComputeRow(const float* x, float* y, const Shape& in, const Shape& out,
                           std::span<const Pixels> pixels, std::span<const int64_t> lines,
                           int64_t row) const {
  const intact_conv_desc& desc = geometry_.desc;
  const int64_t tiles = (panels_ + kernels_->most_panels - 1) / kernels_->most_panels;
  const int64_t line = row % out[1], panel = row / out[1] % tiles * kernels_->most_panels;
  const int64_t group = row / out[1] / tiles % desc.groups, image = row / out[1] / tiles / desc.groups;
  const int64_t panels = std::min(kernels_->most_panels, panels_ - panel);
  const int64_t taps = desc.kernel[0] * desc.kernel[1];
  const int64_t first_line = line * desc.stride[0] - desc.pad_begin[0];
  const float* const bias = bias_.empty() ? nullptr : bias_.data() + (group * panels_ + panel) * kPanel;
  float* const target = y + (image * out[1] + line) * out[2] * out[3] + group * outputs_ + panel * kPanel;
  const auto& functions = kernels_->tiles[static_cast<size_t>(panels - 1)];
  Tile tile{};
  std::tie(tile.h_begin, tile.h_end) = TapsInside(desc, 0, line, in[1]);
  tile.outputs = std::min(panels * kPanel, outputs_ - panel * kPanel);
  tile.kernel_w = desc.kernel[1];
  tile.h_step = desc.dilation[0] * in[2] * in[3];
  tile.w_step = desc.dilation[1] * in[3];
  tile.panel_step = channels_ * taps * kPanel;
  tile.block_step = taps * kPanel;
  tile.blocks = kernels_->adds_blocks ? channels_ : 1;
  const int64_t channels_of_tile = block_ * tile.blocks;
  for (int64_t c = 0; c < channels_; c += channels_of_tile) {
    tile.x = x + image * in[1] * in[2] * in[3] + group * channels_ + c;
    tile.weights =
        weights_.data()->weights.data() + (group * panels_ + panel) * tile.panel_step + c * taps * kPanel;
    tile.channels = std::min(block_, channels_ - c);
    tile.is_first = c == 0;
    tile.lacks_channels = block_ == kPanel && tile.channels < kPanel;
    tile.bias = c + channels_of_tile >= channels_ ? bias : nullptr;
    for (const Pixels& each : pixels) {
      tile.w_begin = each.w_begin;
      tile.w_end = each.w_end;
      tile.first_tap = (first_line * in[2] + each.first * desc.stride[1] - desc.pad_begin[1]) * in[3];
      tile.x_step = each.is_of_column ? desc.stride[0] * in[2] * in[3] : desc.stride[1] * in[3];
      tile.y_step = each.is_of_column ? out[2] * out[3] : out[3];
      tile.y = target + each.first * out[3];
      const int64_t count = each.is_of_column ? lines[static_cast<size_t>(line)] : each.count;
      if (count > 0) functions[static_cast<size_t>(count - 1)](tile);
    }
  }
}

void FloatConv::Compute(Run& run) const {
  const auto input = run.Input(0);
  Shape in = input.GetTensorTypeAndShapeInfo().GetShape();
  Shape out = geometry_.OutputShape(in);
  auto* const output = static_cast<float*>(run.Output(out));
  if (CountOf(out) == 0) return;
  const auto* x = static_cast<const float*>(input.GetTensorRawData());
  float* y = output;
  if (!geometry_.channels_last) {
    auto* const pixels = static_cast<float*>(run.Allocate(static_cast<size_t>(CountOf(in)) * sizeof(float)));
    run.Transpose(x, pixels, sizeof(float), in[0], in[1], in[2] * in[3]);
    x = pixels;
    y = static_cast<float*>(run.Allocate(static_cast<size_t>(CountOf(out)) * sizeof(float)));
    std::rotate(in.begin() + 1, in.begin() + 2, in.end());
    std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  }
  const int64_t tiles = (panels_ + kernels_->most_panels - 1) / kernels_->most_panels;
  const int64_t rows = out[0] * geometry_.desc.groups * tiles * out[1];
  const double multiply_adds =
      static_cast<double>(out[0] * out[1] * out[2]) * static_cast<double>(weights_.size()) * kPanel;
  const auto tasks = static_cast<int64_t>(
      std::min<double>(static_cast<double>(rows), multiply_adds / kMultiplyAddsOfTask + 1));
  const std::vector<Pixels> pixels = PixelsOfLine(in[2], out[2]);
  const std::vector<int64_t> lines = LinesOfColumns(in[1], out[1]);
  run.ForEach(tasks, [&](int64_t task) {
    for (int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
      ComputeRow(x, y, in, out, pixels, lines, row);
  });
  if (!geometry_.channels_last) run.Transpose(y, output, sizeof(float), out[0], out[1] * out[2], out[3]);
}

}  // namespace intact::onnxruntime
