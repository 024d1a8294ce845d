#include "bench/cases/suites.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "bench/cases/networks.h"

namespace intact::bench {
namespace {

template <size_t kCount>
constexpr std::array<Layer, kCount> Gemms(const Shape (&shapes)[kCount]) {
  std::array<Layer, kCount> layers = {};
  for (size_t i = 0; i < kCount; ++i) layers[i].shape = shapes[i];
  return layers;
}

struct WeightShape {
  int64_t n, k;
};

/// All weights with each m.
template <size_t kMs, size_t kWeightShapes>
constexpr auto ForEachM(const int64_t (&ms)[kMs], const WeightShape (&weights)[kWeightShapes]) {
  std::array<Layer, kMs* kWeightShapes> layers = {};
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].shape = {ms[i % kMs], weights[i / kMs].n, weights[i / kMs].k};
  }
  return layers;
}

/// 4 and 8 bits in blocks of 32 and 128 depths.
template <size_t kGemms>
constexpr auto InBlocks(const std::array<Layer, kGemms>& gemms) {
  std::array<Layer, 4 * kGemms> layers = {};
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = gemms[i % kGemms];
    layers[i].shape.blocks = Blocks{i / kGemms < 2 ? INTACT_U4 : INTACT_S8, i / kGemms % 2 == 0 ? 32 : 128};
  }
  return layers;
}

/// `times` convolutions of c_in channels of size×size pixels.
constexpr Layer Conv(int times, int64_t c_in, int64_t size, int64_t c_out, int64_t kernel, int64_t stride = 1,
                     int64_t groups = 1) {
  return {Shape::Of({size, size, c_in, c_out, kernel, stride, groups, 1}), times};
}

/// A transposed convolution to stride·size × stride·size pixels.
constexpr Layer Transposed(int64_t c_in, int64_t size, int64_t c_out, int64_t kernel, int64_t stride,
                           int64_t groups = 1) {
  return {Shape::Of({size, size, c_in, c_out, kernel, stride, groups, 1, true})};
}

constexpr Layer Depthwise(int times, int64_t channels, int64_t size, int64_t stride = 1) {
  return Conv(times, channels, size, channels, 3, stride, channels);
}

// GEMMs, all as m, n, k: B is K×N.

constexpr auto kFigures = Gemms({
    {1, 4096, 4096},
    {8, 4096, 4096},
    {32, 4096, 4096},
    {64, 1024, 1024},
    {128, 768, 768},
    {128, 3072, 768},
    {128, 768, 3072},
    {196, 256, 2304},
    {784, 128, 1152},
    {3136, 64, 576},
    {1024, 1024, 1024},
    {2048, 2048, 2048},
});

// One sequence of 128 or 384 tokens: a projection; Q, K and V at once; the two layers of the feed-forward
// network. Hidden sizes 768 (base) and 1024 (large).
constexpr auto kBert = Gemms({
    {128, 768, 768},
    {128, 2304, 768},
    {128, 3072, 768},
    {128, 768, 3072},
    {384, 768, 768},
    {384, 2304, 768},
    {384, 3072, 768},
    {384, 768, 3072},
    {384, 1024, 1024},
    {384, 3072, 1024},
    {384, 4096, 1024},
    {384, 1024, 4096},
});

// One sample, and a few.
constexpr auto kSmallM = ForEachM({1, 2, 4, 8, 16}, {{768, 768}, {1024, 4096}, {4096, 4096}});

// Layers of a decoder of 7 billion weights.
constexpr auto kLlm = ForEachM({1, 8, 32, 128}, {{4096, 4096}, {11008, 4096}, {4096, 11008}});

constexpr auto kBlocks = InBlocks(ForEachM({1, 4, 16, 128}, {{4096, 4096}}));

// Decoders of 8 to 70 billion weights.
constexpr auto kLlmBlocks = InBlocks(
    ForEachM({1, 4, 16, 128, 512},
             {{4096, 4096}, {11008, 4096}, {14336, 4096}, {4096, 11008}, {8192, 8192}, {28672, 8192}}));

constexpr auto kSquare = Gemms({
    {64, 64, 64},
    {128, 128, 128},
    {256, 256, 256},
    {512, 512, 512},
    {1024, 1024, 1024},
    {2048, 2048, 2048},
});

// Float32 matrices times quantized weights of BERT-base and of a decoder of 7 billion weights, with 1 to 128
// rows. Then attention over 128 tokens, 12 heads of 64: queries times keys, which are N×K in memory, and
// probabilities times values, which are K×N.
constexpr auto kTransformer = [] {
  constexpr auto kDynamic = ForEachM(
      {1, 8, 32, 128}, {{768, 768}, {3072, 768}, {768, 3072}, {4096, 4096}, {11008, 4096}, {4096, 11008}});
  constexpr int64_t kHeads = 12, kTokens = 128, kHead = 64;
  constexpr std::array kAttention = {
      Layer{{kTokens, kTokens, kHead, std::nullopt, Batch{kHeads, INTACT_U8, true}}},
      Layer{{kTokens, kTokens, kHead, std::nullopt, Batch{kHeads, INTACT_S8, true}}},
      Layer{{kTokens, kHead, kTokens, std::nullopt, Batch{kHeads, INTACT_U8, false}}},
      Layer{{kTokens, kHead, kTokens, std::nullopt, Batch{kHeads, INTACT_S8, false}}},
  };
  std::array<Layer, kDynamic.size() + kAttention.size()> layers = {};
  std::ranges::copy(kAttention, std::ranges::copy(kDynamic, layers.begin()).out);
  for (size_t i = 0; i < kDynamic.size(); ++i) layers[i].shape.is_dynamic = true;
  return layers;
}();

// Convolutions, batch 1.

constexpr std::array kConv = {
    Conv(1, 64, 56, 64, 3),          Conv(1, 3, 224, 64, 7, 2), Conv(1, 64, 56, 256, 1),
    Conv(1, 128, 28, 128, 3),        Conv(1, 256, 14, 256, 3),  Conv(1, 1024, 14, 256, 1),
    Conv(1, 512, 7, 512, 3),         Depthwise(1, 32, 112),     Depthwise(1, 192, 28),
    Conv(1, 256, 28, 256, 3, 1, 32),
};

// Typical for U-Net, pose estimators, generators and segmentation networks.
constexpr std::array kTransposed = {
    Transposed(512, 14, 256, 2, 2), Transposed(128, 56, 64, 2, 2),    Transposed(256, 16, 256, 4, 2),
    Transposed(2048, 8, 256, 4, 2), Transposed(128, 16, 64, 4, 2),    Transposed(128, 28, 64, 3, 2),
    Transposed(64, 32, 3, 4, 2),    Transposed(64, 28, 64, 4, 2, 64),
};

// ResNet-50 (v1.5: the 3×3 convolution has the stride).
constexpr std::array kResNet50 = {
    Conv(1, 3, 224, 64, 7, 2),
    // 56×56
    Conv(1, 64, 56, 64, 1),
    Conv(3, 64, 56, 64, 3),
    Conv(4, 64, 56, 256, 1),
    Conv(2, 256, 56, 64, 1),
    Conv(1, 256, 56, 128, 1),
    // to 28×28
    Conv(1, 128, 56, 128, 3, 2),
    Conv(1, 256, 56, 512, 1, 2),
    Conv(4, 128, 28, 512, 1),
    Conv(3, 512, 28, 128, 1),
    Conv(3, 128, 28, 128, 3),
    Conv(1, 512, 28, 256, 1),
    // to 14×14
    Conv(1, 256, 28, 256, 3, 2),
    Conv(1, 512, 28, 1024, 1, 2),
    Conv(6, 256, 14, 1024, 1),
    Conv(5, 1024, 14, 256, 1),
    Conv(5, 256, 14, 256, 3),
    Conv(1, 1024, 14, 512, 1),
    // to 7×7
    Conv(1, 512, 14, 512, 3, 2),
    Conv(1, 1024, 14, 2048, 1, 2),
    Conv(3, 512, 7, 2048, 1),
    Conv(2, 2048, 7, 512, 1),
    Conv(2, 512, 7, 512, 3),
};

// MobileNet v2 at width 1.0 and 224×224, block by block: expansion, depthwise convolution, projection.
constexpr std::array kMobileNetV2 = {
    Conv(1, 3, 224, 32, 3, 2),
    Depthwise(1, 32, 112),
    Conv(1, 32, 112, 16, 1),
    Conv(1, 16, 112, 96, 1),
    Depthwise(1, 96, 112, 2),
    // 56×56
    Conv(1, 96, 56, 24, 1),
    Conv(2, 24, 56, 144, 1),
    Depthwise(1, 144, 56),
    Conv(1, 144, 56, 24, 1),
    Depthwise(1, 144, 56, 2),
    // 28×28
    Conv(1, 144, 28, 32, 1),
    Conv(3, 32, 28, 192, 1),
    Depthwise(2, 192, 28),
    Conv(2, 192, 28, 32, 1),
    Depthwise(1, 192, 28, 2),
    // 14×14
    Conv(1, 192, 14, 64, 1),
    Conv(4, 64, 14, 384, 1),
    Depthwise(4, 384, 14),
    Conv(3, 384, 14, 64, 1),
    Conv(1, 384, 14, 96, 1),
    Conv(3, 96, 14, 576, 1),
    Depthwise(2, 576, 14),
    Conv(2, 576, 14, 96, 1),
    Depthwise(1, 576, 14, 2),
    // 7×7
    Conv(1, 576, 7, 160, 1),
    Conv(3, 160, 7, 960, 1),
    Depthwise(3, 960, 7),
    Conv(2, 960, 7, 160, 1),
    Conv(1, 960, 7, 320, 1),
    Conv(1, 320, 7, 1280, 1),
};

constexpr std::array kShort = {
    Layer{{1, 4096, 4096}},    Layer{{8, 4096, 4096}},          Layer{{128, 768, 768}},
    Layer{{128, 3072, 768}},   Layer{{128, 768, 3072}},         Layer{{784, 128, 1152}},
    Layer{{196, 256, 2304}},   Layer{{256, 256, 256}},          Layer{{1024, 1024, 1024}},
    Conv(1, 3, 224, 64, 7, 2), Conv(1, 64, 56, 64, 3),          Conv(1, 64, 56, 256, 1),
    Depthwise(1, 192, 28),     Conv(1, 256, 28, 256, 3, 1, 32),
};

// GEMMs from small to large M and from narrow to wide, where the choice among kernels changes.
constexpr auto kTuneGemms =
    ForEachM({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128},
             {{768, 768}, {3072, 768}, {1024, 4096}, {256, 64}, {64, 32}, {1000, 16}});

constexpr std::array kTuneConvs = {
    Conv(1, 3, 112, 32, 3, 2),      Conv(1, 64, 28, 64, 3),          Conv(1, 128, 28, 128, 3, 2),
    Conv(1, 256, 7, 256, 3),        Conv(1, 64, 28, 256, 1),         Conv(1, 24, 28, 144, 1),
    Conv(1, 512, 7, 512, 1),        Conv(1, 256, 28, 128, 1, 2),     Conv(1, 128, 28, 128, 3, 1, 32),
    Conv(1, 128, 28, 128, 3, 1, 4), Conv(1, 64, 28, 64, 1, 1, 8),    Depthwise(1, 192, 28),
    Transposed(64, 28, 64, 4, 2),   Transposed(64, 28, 64, 4, 2, 8),
};

constexpr auto kTune = [] {
  std::array<Layer, kTuneGemms.size() + kTuneConvs.size()> layers = {};
  std::ranges::copy(kTuneConvs, std::ranges::copy(kTuneGemms, layers.begin()).out);
  return layers;
}();

// Traps, each with its neighbour and its target.

constexpr Neighbour Beside(const Layer& layer, const Format& format = kU8) {
  return {Neighbour::Kind::kShape, layer.shape, format};
}
constexpr Neighbour kNaiveLoop = {Neighbour::Kind::kNaive};
constexpr Neighbour kLowerCaps = {Neighbour::Kind::kLowerCaps};

constexpr Layer Convolution(const Geometry& geometry) { return {Shape::Of(geometry)}; }

constexpr Shape kShortRows = {10000, 16, 16, std::nullopt, std::nullopt, true};

constexpr double kNoSlower = 1.05;  // equal, as far as turns can tell

constexpr std::array kTraps = [] {
  // Depthwise with a channel multiplier; the same number of outputs with a multiplier of 1.
  constexpr Layer kDoubled = Conv(1, 64, 56, 128, 3, 2, 64), kTripled = Conv(1, 32, 28, 96, 3, 1, 32),
                  kMany = Conv(1, 16, 28, 128, 3, 1, 16);
  // Kernels that mostly see padding; the taps that are inside.
  constexpr Layer kOnePixel = Conv(1, 256, 1, 256, 7),
                  kFarTaps = Convolution({8, 8, 256, 256, 3, 1, 1, 1, false, 36});
  // One to four outputs of few inputs.
  constexpr Layer kOneToOne = Conv(1, 1, 512, 1, 1), kTwoToTwo = Conv(1, 2, 256, 2, 3),
                  kToOne = Conv(1, 64, 112, 1, 3), kToTwo = Conv(1, 64, 112, 2, 3),
                  kToFour = Conv(1, 64, 112, 4, 3);
  constexpr Shape kColumn = {65536, 1, 8};
  // Depthwise of H×1; the same bytes as 1×W.
  constexpr Layer kHigh = Convolution({1000, 1, 64, 64, {3, 1}, 1, 64}),
                  kWide = Convolution({1, 1000, 64, 64, {1, 3}, 1, 64});
  // Channels that do not fill their last quad; one channel more.
  constexpr Layer kOdd = Conv(1, 15, 56, 16, 1), kEven = Conv(1, 16, 56, 16, 1);
  // One input channel; two groups of one channel, or taps side by side.
  constexpr Layer kLoneChannel = Conv(1, 1, 56, 1, 3),
                  kApart = Convolution({56, 56, 1, 32, 3, 1, 1, 1, false, 2});
  // Few channels at stride 2; four times the outputs.
  constexpr Layer kStrided = Depthwise(1, 8, 56, 2);
  constexpr Shape kRuntimeB = {1, 4096, 4096, std::nullopt, Batch{}};
  constexpr auto kCall = [](double microseconds) {
    return Neighbour{Neighbour::Kind::kTime, {}, {}, microseconds};
  };
  return std::to_array<Trap>({
      {1, kDoubled.shape, kU8, Beside(Depthwise(1, 128, 56, 2)), 2},
      {1, kTripled.shape, kU8, Beside(Depthwise(1, 96, 28)), 2},
      {1, kMany.shape, kU8, Beside(Depthwise(1, 128, 28)), 2},
      {2, kOnePixel.shape, kU8, Beside(Conv(1, 256, 1, 256, 1)), kNoSlower},
      {2, kFarTaps.shape, kU8, Beside(Conv(1, 256, 8, 256, 1)), kNoSlower},
      {3, kShortRows, kByTensor, Beside({kShortRows}, kF32), 3},
      {3, kShortRows, kByRow, Beside({kShortRows}, kF32), 3},
      {4, kOneToOne.shape, kU8, kNaiveLoop, 1},
      {4, kTwoToTwo.shape, kU8, kNaiveLoop, 1},
      {4, kColumn, kU8, kNaiveLoop, 1},
      {4, kOneToOne.shape, kU8, kLowerCaps, kNoSlower},
      {4, kTwoToTwo.shape, kU8, kLowerCaps, kNoSlower},
      {4, kColumn, kU8, kLowerCaps, kNoSlower},
      {4, kToOne.shape, kU8, kLowerCaps, kNoSlower},
      {4, kToTwo.shape, kU8, kLowerCaps, kNoSlower},
      {4, kToFour.shape, kU8, kLowerCaps, kNoSlower},
      {5, kRuntimeB, kS32, {Neighbour::Kind::kReadB}, 2},
      {7, kHigh.shape, kU8, Beside(kWide), kNoSlower},
      {8, {1, 12, 64}, kU8, kCall(0.15), 1},
      {8, {1, 1, 1}, kS32, kCall(0.15), 1},
      {8, Conv(1, 1, 1, 1, 1).shape, kU8, kCall(0.15), 1},
      {9, {1, 12, 64}, kU8, kCall(0.06), 1, true},
      {9, Conv(1, 1, 1, 1, 1).shape, kU8, kCall(0.06), 1, true},
      {10, kOdd.shape, kU8, Beside(kEven), 1.5},
      {11, kLoneChannel.shape, kU8, Beside(Depthwise(1, 2, 56)), 1},
      {11, kApart.shape, kU8, Beside(Conv(1, 1, 56, 32, 3)), 1.5},
      {12, kStrided.shape, kU8, Beside(Depthwise(1, 8, 56)), 1},
  });
}();

constexpr std::array kSuites = {
    Suite{"short", "a few shapes of figures, square and conv, in less than a minute", kShort},
    Suite{"figures", "twelve GEMMs from one row to square", kFigures},
    Suite{"small-m", "M = 1, 2, 4, 8, 16 on weights K×N 768×768, 4096×1024, 4096×4096", kSmallM},
    Suite{"bert", "BERT base and large, 128 and 384 tokens", kBert},
    Suite{"llm", "M = 1, 8, 32, 128 on weights K×N 4096×4096, 4096×11008, 11008×4096", kLlm},
    Suite{"transformer", "float32 matrices of BERT-base and a 7B decoder, M = 1 to 128, and attention",
          kTransformer},
    Suite{"blocks", "M = 1, 4, 16, 128 on weights of 4 and 8 bits in blocks of depths, K×N 4096×4096",
          kBlocks},
    Suite{"llm-blocks", "the shapes of decoders, M = 1 to 512, on such weights; takes many minutes",
          kLlmBlocks},
    Suite{"square", "M = N = K from 64 to 2048", kSquare},
    Suite{"conv", "ten convolutions: dense, first layer, grouped, depthwise", kConv},
    Suite{"transposed", "eight transposed convolutions, as in upsampling networks", kTransposed},
    Suite{"resnet50", "ResNet-50's 53 convolutions and the sum of their times, batch 1", kResNet50},
    Suite{"mobilenet_v2", "MobileNet v2's 52 convolutions and the sum of their times, batch 1", kMobileNetV2},
    Suite{"segmentation", "119 layers of a segmentation network, 1024×1024, and their sum; takes minutes",
          kSegmentation},
    Suite{"text_detection", "62 layers of a text detection network, 640×640, and their sum", kTextDetection},
    Suite{"text_recognition", "44 layers of a text recognition network, 48×320, and their sum",
          kTextRecognition},
    Suite{"tune", "GEMMs of 1 to 128 rows and convolutions, where the choice of kernels changes", kTune},
};

}  // namespace

Weights DefaultWeights(const Layer& layer) {
  if (layer.shape.blocks) return kWeights.back();  // uniform
  return layer.weights ? Weights{kTrained, kLaplace.fill, layer.weights} : kLaplace;
}

bool Suite::HasBlocks() const {
  return std::ranges::any_of(layers, [](const Layer& layer) { return layer.shape.blocks.has_value(); });
}

std::span<const Suite> Suites() { return kSuites; }

std::span<const Trap> Traps() { return kTraps; }

const Suite* FindSuite(std::string_view name) {
  const auto* const found = std::ranges::find(kSuites, name, &Suite::name);
  return found == kSuites.end() ? nullptr : found;
}

}  // namespace intact::bench
