// gemmlowp as a peer: GemmWithOutputPipelinePC, u8×u8. gemmlowp chooses its instructions at compile time, so
// this file is compiled three times: gemmlowp (plain C++), gemmlowp_sse4 and gemmlowp_avx2.
//
// The product is transposed, as in TensorFlow Lite: N×K weights on the left, K×M activations on the right.
// Translations:
//
//   zero points    offsets, with the sign inverted: for each column, and for each row for s32 outputs
//   bias_s32       OutputStageBiasAddition
//   scales         OutputStageScaleInt32ByFixedPointAndExponent, or …PC by columns; multipliers have 31 bits.
//                  They also add the output's zero point
//   activation     OutputStageClamp, between bounds that are quantized like outputs
//
// With SSE4 the library has no scales by columns and no s8 outputs: the stages for them do not compile.
#include <gemmlowp/public/gemmlowp.h>
#include <cmath>
#include <limits>
#include <tuple>

#include "peers/peer.h"

namespace intact::peers {
namespace {

using gemmlowp::MapOrder;
using gemmlowp::MatrixMap;
using gemmlowp::VectorShape;
template <VectorShape shape>
using Vector = gemmlowp::VectorMap<const int32_t, shape>;

#ifdef GEMMLOWP_AVX2_64
constexpr const char* kName = "gemmlowp, avx2";
constexpr bool kHasAllStages = true;
bool IsRunnable() { return __builtin_cpu_supports("avx2") != 0; }
#elif defined(GEMMLOWP_SSE4_64)
constexpr const char* kName = "gemmlowp, sse4";
constexpr bool kHasAllStages = false;
bool IsRunnable() { return __builtin_cpu_supports("sse4.1") != 0; }
#else
constexpr const char* kName = "gemmlowp, plain C++";
constexpr bool kHasAllStages = true;
bool IsRunnable() { return true; }
#endif

/// A scale as multiplier·2^(exponent − 31).
struct FixedPoint {
  int32_t multiplier, exponent;
};

FixedPoint FixedPointOf(float scale) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(scale), &exponent);  // in [½, 1): 24 bits
  return {static_cast<int32_t>(std::ldexp(fraction, 31)), exponent};
}

/// `count` offsets. `given`: the number of zero points: `count`, 1 (for all), or 0 (offsets are 0).
std::vector<int32_t> OffsetsOf(const int32_t* zero_points, size_t given, int64_t count) {
  std::vector<int32_t> offsets(static_cast<size_t>(count));
  for (size_t i = 0; i < offsets.size() && given != 0; ++i) offsets[i] = -zero_points[given == 1 ? 0 : i];
  return offsets;
}

/// The operands of a product, except its matrices.
struct Vectors {
  std::vector<int32_t> a_offsets, b_offsets, bias, multipliers, exponents;
};

/// Computes one product with weights in `order`, through the stages of `pipeline`.
template <MapOrder order, class C, class Pipeline>
void Multiply(gemmlowp::GemmContext* context, const Product& product, const Vectors& vectors,
              const Pipeline& pipeline) {
  const auto m = static_cast<int>(product.m);
  const auto n = static_cast<int>(product.n);
  const auto k = static_cast<int>(product.k);
  const int64_t b_stride = order == MapOrder::RowMajor ? product.b_stride_n : product.b_stride_k;
  const MatrixMap<const uint8_t, order> weights(static_cast<const uint8_t*>(product.b), n, k,
                                                static_cast<int>(b_stride));
  const MatrixMap<const uint8_t, MapOrder::ColMajor> activations(static_cast<const uint8_t*>(product.a), k, m,
                                                                 static_cast<int>(product.a_stride));
  MatrixMap<C, MapOrder::ColMajor> result(static_cast<C*>(product.c), n, m,
                                          static_cast<int>(product.c_stride));
  gemmlowp::GemmWithOutputPipelinePC<uint8_t, C, gemmlowp::DefaultL8R8BitDepthParams>(
      context, weights, activations, &result, Vector<VectorShape::Col>(vectors.b_offsets.data(), n),
      Vector<VectorShape::Row>(vectors.a_offsets.data(), m), pipeline);
}

template <class C, class Pipeline>
void MultiplyInOrder(gemmlowp::GemmContext* context, const Product& product, const Vectors& vectors,
                     const Pipeline& pipeline) {
  if (product.b_stride_n == 1) {
    Multiply<MapOrder::ColMajor, C>(context, product, vectors, pipeline);
  } else if (product.b_stride_k == 1) {
    Multiply<MapOrder::RowMajor, C>(context, product, vectors, pipeline);
  } else {
    throw Unsupported("neither stride of B is 1");
  }
}

/// The bounds of a quantized output.
template <class C>
gemmlowp::OutputStageClamp ClampOf(const intact_linear_desc& linear) {
  const auto bound = [&linear](float value) {
    using Limits = std::numeric_limits<C>;
    const double rounded = std::nearbyint(static_cast<double>(value)) + linear.c_zero_point;
    return static_cast<int32_t>(std::clamp<double>(rounded, Limits::min(), Limits::max()));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (linear.activation) {
    case INTACT_ACTIVATION_RELU:
      return {bound(0), bound(kInfinity)};
    case INTACT_ACTIVATION_CLAMP:
      return {bound(linear.clamp_min), bound(linear.clamp_max)};
    default:
      return {bound(-kInfinity), bound(kInfinity)};
  }
}

/// Computes a product with 8-bit outputs. `Cast` is the last stage.
template <class C, class Cast>
void MultiplyAndScale(gemmlowp::GemmContext* context, const Product& product,
                      const intact_linear_desc& linear, Vectors vectors) {
  for (const float scale : product.scales) {
    const FixedPoint fixed = FixedPointOf(scale);
    vectors.multipliers.push_back(fixed.multiplier);
    vectors.exponents.push_back(fixed.exponent);
  }
  const auto n = static_cast<int>(product.n);
  using Columns = Vector<VectorShape::Col>;
  const gemmlowp::OutputStageBiasAddition<Columns> bias = {Columns(vectors.bias.data(), n)};
  const gemmlowp::OutputStageClamp clamp = ClampOf<C>(linear);
  if (product.scales.size() == 1) {
    const gemmlowp::OutputStageScaleInt32ByFixedPointAndExponent scale = {
        vectors.multipliers[0], vectors.exponents[0], linear.c_zero_point};
    MultiplyInOrder<C>(context, product, vectors, std::make_tuple(bias, scale, clamp, Cast()));
  } else if constexpr (kHasAllStages) {
    const gemmlowp::OutputStageScaleInt32ByFixedPointAndExponentPC<VectorShape::Col> scale = {
        Columns(vectors.multipliers.data(), n), Columns(vectors.exponents.data(), n), linear.c_zero_point};
    MultiplyInOrder<C>(context, product, vectors, std::make_tuple(bias, scale, clamp, Cast()));
  }
}

void Run(gemmlowp::GemmContext* context, const Product& product, const intact_linear_desc& linear,
         const int32_t* a_zero_points) {
  Vectors vectors = {
      .a_offsets = a_zero_points != nullptr
                       ? OffsetsOf(a_zero_points, static_cast<size_t>(product.m), product.m)
                       : OffsetsOf(&linear.a_zero_point, 1, product.m),
      .b_offsets = OffsetsOf(product.b_zero_points.data(), product.b_zero_points.size(), product.n),
      .bias = std::vector<int32_t>(static_cast<size_t>(product.n)),
      .multipliers = {},
      .exponents = {}};
  if (linear.bias_s32 != nullptr) vectors.bias.assign(linear.bias_s32, linear.bias_s32 + product.n);
  switch (linear.c_type) {
    case INTACT_S32: {
      using Columns = Vector<VectorShape::Col>;
      const gemmlowp::OutputStageBiasAddition<Columns> bias = {
          Columns(vectors.bias.data(), static_cast<int>(product.n))};
      MultiplyInOrder<int32_t>(context, product, vectors, std::make_tuple(bias));
      break;
    }
    case INTACT_U8:
      MultiplyAndScale<uint8_t, gemmlowp::OutputStageSaturatingCastToUint8>(context, product, linear,
                                                                            std::move(vectors));
      break;
    default:
      if constexpr (kHasAllStages) {
        MultiplyAndScale<int8_t, gemmlowp::OutputStageSaturatingCastToInt8>(context, product, linear,
                                                                            std::move(vectors));
      }
  }
}

intact_status Gemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                   const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return Answer(message, [&] {
    if (args->a_scales != nullptr) throw Unsupported("gemmlowp has no scales of rows");
    static gemmlowp::GemmContext context;
    context.set_max_num_threads(args->threads);
    const int32_t* a_zero_points = args->a_zero_points;
    for (const Product& product : ProductsOf(*desc, *linear, b, *args)) {
      Run(&context, product, *linear, a_zero_points);
      if (a_zero_points != nullptr) a_zero_points += product.m;
    }
  });
}

constexpr uint64_t kSupported = Supports(
    INTACT_TARGET_A_U8, INTACT_TARGET_B_U8, INTACT_TARGET_C_S32, INTACT_TARGET_C_U8,
    INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_B_ZERO_POINT, INTACT_TARGET_B_ZERO_POINTS,
    INTACT_TARGET_C_ZERO_POINT, INTACT_TARGET_BIAS_S32, INTACT_TARGET_RELU, INTACT_TARGET_CLAMP,
    INTACT_TARGET_STRIDES, INTACT_TARGET_B_LAYOUTS, INTACT_TARGET_RUNTIME_B, INTACT_TARGET_BATCH,
    INTACT_TARGET_BATCH_POINTERS, INTACT_TARGET_ROW_QUANTIZATION, INTACT_TARGET_THREADS, INTACT_TARGET_GEMM);
constexpr uint64_t kOfAllStages = Supports(INTACT_TARGET_C_S8, INTACT_TARGET_CHANNEL_SCALES);

const intact_target* Open(const char* options) {
  if (!IsRunnable()) throw std::runtime_error(std::string("this CPU lacks the instructions of ") + kName);
  Options(options).End();
  static const intact_target kTarget = {.struct_size = sizeof(intact_target),
                                        .name = kName,
                                        .supports = kSupported | (kHasAllStages ? kOfAllStages : 0),
                                        .arithmetic = "any",
                                        .gemm = Gemm,
                                        .conv = nullptr,
                                        .grouped = nullptr,
                                        .conv_supports = 0,
                                        .grouped_supports = 0};
  return &kTarget;
}

}  // namespace
}  // namespace intact::peers

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return intact::peers::Opened(abi, message, [options] { return intact::peers::Open(options); });
}
