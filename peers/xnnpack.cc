// XNNPACK as a peer: its fully connected, convolution and deconvolution operators of quantized tensors.
//
//   isa=avx512skx, avx2, avx, sse41 or sse2    limits the library to an ISA. XNNPACK asks cpuinfo, so the
//                                              peer clears cpuinfo's bits of later instructions
//
// Translations:
//
//   u8×u8→u8, one scale     qu8 operators
//   s8×s8→s8, one scale     qs8 operators; weights have no zero point
//   s8×s8→s8, per channel   convolution with a scale per channel; a GEMM becomes a 1×1 convolution
//   scales                  the input's scale if there is one scale, else the kernel's; other scales are 1
//   activation              the range of the output, with bounds quantized like outputs
//   one spatial dimension   two dimensions; the first has extent 1
//
// Weights and activations are copied to the layouts that the operators read, and followed by XNN_EXTRA_BYTES,
// because the library may read beyond their end.
#include <cmath>
#include <limits>
#include <memory>

#include "peers/peer.h"
#include "peers/xnnpack_api.h"

namespace intact::peers {
namespace {

using Operator = std::unique_ptr<xnn_operator, decltype(&xnn_delete_operator)>;
using ThreadPool = std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)>;

void Check(xnn_status status, const char* call) {
  const std::string text = std::string(call) + " has status " + std::to_string(status);
  switch (status) {
    case xnn_status_success:
      return;
    case xnn_status_unsupported_parameter:
    case xnn_status_unsupported_hardware:
      throw Unsupported(text + ": unsupported");
    case xnn_status_out_of_memory:
      throw std::bad_alloc();
    default:
      throw std::runtime_error(text);
  }
}

ThreadPool Threads(int32_t threads) {
  return {threads == 1 ? nullptr : pthreadpool_create(static_cast<size_t>(threads)), pthreadpool_destroy};
}

/// Copies rows of activations, or one row of all weights, with XNN_EXTRA_BYTES after them.
std::vector<uint8_t> WithExtraBytes(const void* a, int64_t rows, int64_t columns, int64_t stride) {
  const auto* const begin = static_cast<const uint8_t*>(a);
  std::vector<uint8_t> copy(begin, begin + (rows - 1) * stride + columns);
  copy.resize(copy.size() + XNN_EXTRA_BYTES);
  return copy;
}

/// The scale that all columns share; nullopt if each column has a scale.
std::optional<float> SharedScale(const std::vector<float>& scales) {
  if (scales.size() != 1) return std::nullopt;
  return scales[0];
}

/// The arithmetic of an operator. `T`: the type of activations, weights and outputs.
template <class T>
struct Quantized {
  T a_zero_point, b_zero_point, c_zero_point, c_min, c_max;
  const int32_t* bias;
};

/// Quantizes `value`, a float bound of outputs.
template <class T>
T BoundOf(float value, int32_t zero_point) {
  using Limits = std::numeric_limits<T>;
  const double rounded = std::nearbyint(static_cast<double>(value)) + zero_point;
  return static_cast<T>(std::clamp<double>(rounded, Limits::min(), Limits::max()));
}

template <class T>
Quantized<T> QuantizedOf(const intact_linear_desc& linear, const std::vector<int32_t>& b_zero_points) {
  Quantized<T> result = {.a_zero_point = static_cast<T>(linear.a_zero_point),
                         .b_zero_point = static_cast<T>(b_zero_points.empty() ? 0 : b_zero_points[0]),
                         .c_zero_point = static_cast<T>(linear.c_zero_point),
                         .c_min = std::numeric_limits<T>::min(),
                         .c_max = std::numeric_limits<T>::max(),
                         .bias = linear.bias_s32};
  if (std::is_signed_v<T> && result.b_zero_point != 0) throw Unsupported("a zero point of s8 weights");
  if (linear.activation == INTACT_ACTIVATION_RELU) result.c_min = result.c_zero_point;
  if (linear.activation == INTACT_ACTIVATION_CLAMP) {
    result.c_min = BoundOf<T>(linear.clamp_min, linear.c_zero_point);
    result.c_max = BoundOf<T>(linear.clamp_max, linear.c_zero_point);
  }
  if (result.c_min >= result.c_max) throw Unsupported("XNNPACK's output range has at least two values");
  return result;
}

/// The geometry of a convolution, as arguments of operators.
struct Plane {
  uint32_t kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
  uint32_t pad_top, pad_right, pad_bottom, pad_left, adjustment_height, adjustment_width;
  uint32_t groups;
  size_t group_inputs, group_outputs, a_stride, c_stride;
  size_t batch, height, width;
};

Plane PlaneOf(const Convolution& conv) {
  const auto of = [](const Spatial& values, size_t from_last, int64_t otherwise) {
    return static_cast<uint32_t>(values.size() > from_last ? values[values.size() - 1 - from_last]
                                                           : otherwise);
  };
  return {.kernel_height = of(conv.kernel, 1, 1),
          .kernel_width = of(conv.kernel, 0, 1),
          .stride_height = of(conv.stride, 1, 1),
          .stride_width = of(conv.stride, 0, 1),
          .dilation_height = of(conv.dilation, 1, 1),
          .dilation_width = of(conv.dilation, 0, 1),
          .pad_top = of(conv.pad_begin, 1, 0),
          .pad_right = of(conv.pad_end, 0, 0),
          .pad_bottom = of(conv.pad_end, 1, 0),
          .pad_left = of(conv.pad_begin, 0, 0),
          .adjustment_height = of(conv.output_pad, 1, 0),
          .adjustment_width = of(conv.output_pad, 0, 0),
          .groups = static_cast<uint32_t>(conv.groups),
          .group_inputs = static_cast<size_t>(conv.input_channels / conv.groups),
          .group_outputs = static_cast<size_t>(conv.output_channels / conv.groups),
          .a_stride = static_cast<size_t>(conv.a_stride),
          .c_stride = static_cast<size_t>(conv.c_stride),
          .batch = static_cast<size_t>(conv.batch),
          .height = of(conv.input, 1, 1),
          .width = of(conv.input, 0, 1)};
}

/// Creates an operator on a plane; `with`: the arguments between the plane's and the flags.
template <class Calls, class... With>
Operator CreateOnPlane(const Calls& calls, const Plane& p, With... with) {
  xnn_operator_t made = nullptr;
  Check(xnnpack::Create(calls, &made, p.pad_top, p.pad_right, p.pad_bottom, p.pad_left, p.kernel_height,
                        p.kernel_width, p.stride_height, p.stride_width, p.dilation_height, p.dilation_width,
                        p.groups, p.group_inputs, p.group_outputs, p.a_stride, p.c_stride, with...),
        calls.name);
  return {made, xnn_delete_operator};
}

/// `T`: the type of inputs and outputs.
template <class T, class Calls>
void RunConvolution(const Calls& calls, const Operator& made, const Plane& p, const uint8_t* a, void* c,
                    int32_t threads) {
  const ThreadPool pool = Threads(threads);
  xnnpack::Workspace workspace;
  Check(xnnpack::SetUpConvolution(calls, made.get(), {p.batch, p.height, p.width},
                                  reinterpret_cast<const T*>(a), static_cast<T*>(c), pool.get(), &workspace),
        calls.name);
  Check(xnn_run_operator(made.get(), pool.get()), "xnn_run_operator");
}

template <class T, class Calls>
void RunDeconvolution(const Calls& calls, const Operator& made, const Plane& p, const uint8_t* a, void* c,
                      int32_t threads) {
  const ThreadPool pool = Threads(threads);
  Check(xnnpack::SetUpDeconvolution(calls, made.get(), {p.batch, p.height, p.width},
                                    {p.adjustment_height, p.adjustment_width}, reinterpret_cast<const T*>(a),
                                    static_cast<T*>(c), pool.get()),
        calls.name);
  Check(xnn_run_operator(made.get(), pool.get()), "xnn_run_operator");
}

/// The type of A, B and C. Throws if they differ: XNNPACK has no such operators.
int32_t TypeOf(const intact_linear_desc& linear) {
  if (linear.a_type != linear.b_type || linear.a_type != linear.c_type) {
    throw Unsupported("XNNPACK computes u8×u8→u8 and s8×s8→s8 only");
  }
  return linear.a_type;
}

/// Runs a convolution with a scale for each channel.
void ConvolveByChannels(const Plane& p, const intact_linear_desc& linear,
                        const std::vector<int32_t>& b_zero_points, const std::vector<float>& scales,
                        const void* weights, const uint8_t* a, void* c, int32_t threads) {
  if (TypeOf(linear) != INTACT_S8) throw Unsupported("XNNPACK's u8 columns share a scale");
  const auto q = QuantizedOf<int8_t>(linear, b_zero_points);
  const Operator made =
      CreateOnPlane(xnnpack::kConvolutionQc8, p, q.a_zero_point, 1.0f, scales.data(),
                    static_cast<const int8_t*>(weights), q.bias, q.c_zero_point, 1.0f, q.c_min, q.c_max);
  RunConvolution<int8_t>(xnnpack::kConvolutionQc8, made, p, a, c, threads);
}

/// Runs a fully connected operator. `scales`: its arguments between the zero point of A and the weights.
template <class T, class Calls, class... Scales>
void FullyConnect(const Calls& calls, const Product& product, const Quantized<T>& q,
                  const std::vector<uint8_t>& weights, const uint8_t* a, int32_t threads, Scales... scales) {
  xnn_operator_t made = nullptr;
  const ThreadPool pool = Threads(threads);
  Check(xnnpack::Create(calls, &made, static_cast<size_t>(product.k), static_cast<size_t>(product.n),
                        static_cast<size_t>(product.a_stride), static_cast<size_t>(product.c_stride),
                        q.a_zero_point, scales..., reinterpret_cast<const T*>(weights.data()), q.bias,
                        q.c_zero_point, 1.0f, q.c_min, q.c_max),
        calls.name);
  const Operator owner(made, xnn_delete_operator);
  Check(xnnpack::SetUpRows(calls, made, static_cast<size_t>(product.m), reinterpret_cast<const T*>(a),
                           static_cast<T*>(product.c), pool.get()),
        calls.name);
  Check(xnn_run_operator(made, pool.get()), "xnn_run_operator");
}

void FullyConnect(const Product& product, const intact_linear_desc& linear, float scale,
                  const std::vector<uint8_t>& weights, const uint8_t* a, int32_t threads) {
  if (TypeOf(linear) == INTACT_U8) {
    const auto q = QuantizedOf<uint8_t>(linear, product.b_zero_points);
    FullyConnect(xnnpack::kFullyConnectedQu8, product, q, weights, a, threads, scale, q.b_zero_point, 1.0f);
  } else {
    const auto q = QuantizedOf<int8_t>(linear, product.b_zero_points);
    FullyConnect(xnnpack::kFullyConnectedQs8, product, q, weights, a, threads, scale, 1.0f);
  }
}

/// B as N×K, with XNN_EXTRA_BYTES after it.
std::vector<uint8_t> ByColumns(const Product& product) {
  std::vector<uint8_t> columns;
  for (int64_t n = 0; n < product.n; ++n) {
    for (int64_t k = 0; k < product.k; ++k) {
      columns.push_back(
          static_cast<const uint8_t*>(product.b)[k * product.b_stride_k + n * product.b_stride_n]);
    }
  }
  columns.resize(columns.size() + XNN_EXTRA_BYTES);
  return columns;
}

intact_status Gemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                   const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return Answer(message, [&] {
    for (const Product& product : ProductsOf(*desc, *linear, b, *args)) {
      const std::vector<uint8_t> weights = ByColumns(product);
      const std::vector<uint8_t> a = WithExtraBytes(product.a, product.m, product.k, product.a_stride);
      if (const std::optional<float> scale = SharedScale(product.scales)) {
        FullyConnect(product, *linear, *scale, weights, a.data(), args->threads);
        continue;
      }
      const Convolution conv = {.transposed = false,
                                .batch = 1,
                                .input_channels = product.k,
                                .output_channels = product.n,
                                .groups = 1,
                                .input = {product.m},
                                .output = {product.m},
                                .kernel = {1},
                                .stride = {1},
                                .dilation = {1},
                                .pad_begin = {0},
                                .pad_end = {0},
                                .output_pad = {0},
                                .a_stride = product.a_stride,
                                .c_stride = product.c_stride,
                                .residual_stride = 0};
      ConvolveByChannels(PlaneOf(conv), *linear, product.b_zero_points, product.scales, weights.data(),
                         a.data(), product.c, args->threads);
    }
  });
}

void Convolve(const Plane& p, const intact_linear_desc& linear, const std::vector<int32_t>& b_zero_points,
              float scale, const void* weights, const uint8_t* a, void* c, int32_t threads) {
  if (TypeOf(linear) == INTACT_U8) {
    const auto q = QuantizedOf<uint8_t>(linear, b_zero_points);
    const Operator made =
        CreateOnPlane(xnnpack::kConvolutionQu8, p, q.a_zero_point, scale, q.b_zero_point, 1.0f,
                      static_cast<const uint8_t*>(weights), q.bias, q.c_zero_point, 1.0f, q.c_min, q.c_max);
    RunConvolution<uint8_t>(xnnpack::kConvolutionQu8, made, p, a, c, threads);
  } else {
    const auto q = QuantizedOf<int8_t>(linear, b_zero_points);
    const Operator made =
        CreateOnPlane(xnnpack::kConvolutionQs8, p, q.a_zero_point, scale, 1.0f,
                      static_cast<const int8_t*>(weights), q.bias, q.c_zero_point, 1.0f, q.c_min, q.c_max);
    RunConvolution<int8_t>(xnnpack::kConvolutionQs8, made, p, a, c, threads);
  }
}

void Deconvolve(const Plane& p, const intact_linear_desc& linear, const std::vector<int32_t>& b_zero_points,
                float scale, const void* weights, const uint8_t* a, void* c, int32_t threads) {
  if (TypeOf(linear) == INTACT_U8) {
    const auto q = QuantizedOf<uint8_t>(linear, b_zero_points);
    const Operator made =
        CreateOnPlane(xnnpack::kDeconvolutionQu8, p, q.a_zero_point, scale, q.b_zero_point, 1.0f,
                      static_cast<const uint8_t*>(weights), q.bias, q.c_zero_point, 1.0f, q.c_min, q.c_max);
    RunDeconvolution<uint8_t>(xnnpack::kDeconvolutionQu8, made, p, a, c, threads);
  } else {
    const auto q = QuantizedOf<int8_t>(linear, b_zero_points);
    const Operator made =
        CreateOnPlane(xnnpack::kDeconvolutionQs8, p, q.a_zero_point, scale, 1.0f,
                      static_cast<const int8_t*>(weights), q.bias, q.c_zero_point, 1.0f, q.c_min, q.c_max);
    RunDeconvolution<int8_t>(xnnpack::kDeconvolutionQs8, made, p, a, c, threads);
  }
}

intact_status Conv(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                   const intact_conv_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return Answer(message, [&] {
    const Convolution conv = ConvolutionOf(*desc, *args);
    for (size_t i = 0; i < conv.stride.size(); ++i) {
      if (conv.transposed && conv.output_pad[i] >= conv.stride[i])
        throw Unsupported("XNNPACK's adjustments must be less than a stride");
    }
    const Plane plane = PlaneOf(conv);
    const int64_t pixels = static_cast<int64_t>(plane.batch * plane.height * plane.width);
    const std::vector<uint8_t> a = WithExtraBytes(args->a, pixels, conv.input_channels, conv.a_stride);
    const int64_t taps = static_cast<int64_t>(plane.kernel_height) * plane.kernel_width;
    const int64_t size = conv.output_channels * static_cast<int64_t>(plane.group_inputs) * taps;
    const std::vector<uint8_t> b = WithExtraBytes(weights, 1, size, size);
    const std::vector<float> scales(linear->scales, linear->scales + linear->scale_count);
    const std::vector<int32_t> b_zero_points(linear->b_zero_points,
                                             linear->b_zero_points + linear->b_zero_point_count);
    const std::optional<float> scale = SharedScale(scales);
    if (!scale) {
      if (conv.transposed) throw Unsupported("XNNPACK's deconvolutions have one scale for all channels");
      ConvolveByChannels(plane, *linear, b_zero_points, scales, b.data(), a.data(), args->c, args->threads);
    } else if (conv.transposed) {
      Deconvolve(plane, *linear, b_zero_points, *scale, b.data(), a.data(), args->c, args->threads);
    } else {
      Convolve(plane, *linear, b_zero_points, *scale, b.data(), a.data(), args->c, args->threads);
    }
  });
}

enum Level : uint8_t { kSse2, kSse41, kAvx, kAvx2, kAvx512Skx };

constexpr std::array<std::pair<std::string_view, Level>, 5> kLevels = {
    {{"sse2", kSse2}, {"sse41", kSse41}, {"avx", kAvx}, {"avx2", kAvx2}, {"avx512skx", kAvx512Skx}}};

/// Makes cpuinfo report no more than `level`. Returns false if the CPU lacks `level`.
bool Confine(Level level) {
  cpuinfo_x86_isa& isa = cpuinfo_isa;
  const std::array<bool, 5> has = {true, isa.sse4_1, isa.avx, isa.avx2,
                                   isa.avx512f && isa.avx512bw && isa.avx512dq && isa.avx512vl};
  if (!has.at(level)) return false;
  isa.xop = false;
  xnnpack::RemoveNewerThanSkx(&isa);
  if (level < kAvx512Skx) isa.avx512f = false;
  if (level < kAvx2) isa.avx2 = isa.fma3 = isa.f16c = false;
  if (level < kAvx) isa.avx = false;
  if (level < kSse41) isa.sse4_1 = isa.ssse3 = false;
  return true;
}

std::string NameAsConfigured(const char* text) {
  std::string name = "XNNPACK";
  Options options(text);
  if (!cpuinfo_initialize()) throw std::runtime_error("cpuinfo does not know this CPU");
  if (const auto isa = options.Take("isa", kLevels)) {
    if (!Confine(isa->second)) throw std::runtime_error("this CPU lacks " + isa->first);
    name += ", " + isa->first;
  }
  options.End();
  Check(xnn_initialize(nullptr), "xnn_initialize");
  return name;
}

const intact_target* Open(const char* options) {
  static const std::string kName = NameAsConfigured(options);
  static const intact_target kTarget = {
      .struct_size = sizeof(intact_target),
      .name = kName.c_str(),
      .supports = Supports(
          INTACT_TARGET_A_U8, INTACT_TARGET_A_S8, INTACT_TARGET_B_S8, INTACT_TARGET_B_U8, INTACT_TARGET_C_U8,
          INTACT_TARGET_C_S8, INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_B_ZERO_POINT,
          INTACT_TARGET_C_ZERO_POINT, INTACT_TARGET_BIAS_S32, INTACT_TARGET_CHANNEL_SCALES,
          INTACT_TARGET_RELU, INTACT_TARGET_CLAMP, INTACT_TARGET_STRIDES, INTACT_TARGET_B_LAYOUTS,
          INTACT_TARGET_BATCH, INTACT_TARGET_BATCH_POINTERS, INTACT_TARGET_THREADS, INTACT_TARGET_CONV_1D,
          INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_GROUPS, INTACT_TARGET_CONV_DEPTHWISE,
          INTACT_TARGET_CONV_PADDING, INTACT_TARGET_CONV_PADDING_ENDS, INTACT_TARGET_CONV_STRIDE,
          INTACT_TARGET_CONV_DILATION, INTACT_TARGET_CONV_TRANSPOSED, INTACT_TARGET_GEMM),
      .arithmetic = "any",
      .gemm = Gemm,
      .conv = Conv,
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
