// PyTorch's quantized operators as a peer: quantized::linear, linear_dynamic, conv1d to conv3d and
// conv_transpose1d to conv_transpose3d, with their prepack.
//
//   engine=…   qnnpack (the default) or onednn, as torch.backends.quantized.engine
//   isa=…      limits its oneDNN to an ISA (the names of ONEDNN_MAX_CPU_ISA, in lower case)
//
// Inputs and outputs have scale 1, so the scales of the weights, one or one for each channel, are intact's
// scales. Translations:
//
//   bias_f32        the bias
//   bias_s32        the bias, times the scale of its column
//   zero points     zero points
//   ReLU            …_relu; transposed convolutions have none
//   dynamic tensor  linear_dynamic without reduce_range
//
// Tensors are PyTorch's own, dense and in the memory format that it prefers, so strides are not supported. A
// problem that an operator refuses is Unsupported.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <cstdlib>

#include "peers/peer.h"

namespace intact::peers {
namespace {

int default_threads = 1;

/// Calls the operator of this name, such as "quantized::conv2d.new".
template <class... Arguments>
c10::IValue Call(const std::string& name, Arguments&&... arguments) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str());
  torch::jit::Stack stack = {c10::IValue(std::forward<Arguments>(arguments))...};
  handle.callBoxed(stack);
  return stack.at(0);
}

at::ScalarType TypeOf(int32_t type) { return type == INTACT_U8 ? at::kByte : at::kChar; }

/// A tensor over `data`. It does not own the bytes.
at::Tensor Bytes(const void* data, at::IntArrayRef sizes, int32_t type) {
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions().dtype(TypeOf(type)));  // read only
}

/// A tensor of scale 1 with these values, in their order in memory.
at::Tensor Activations(const at::Tensor& values, int32_t zero_point) {
  return at::_make_per_tensor_quantized_tensor(values, 1.0, zero_point);
}

/// Weights with the output channels on axis `axis`.
at::Tensor Weights(const at::Tensor& values, const std::vector<float>& scales,
                   const std::vector<int32_t>& zero_points, int64_t axis) {
  if (scales.size() == 1 && zero_points.size() <= 1) {
    return at::_make_per_tensor_quantized_tensor(values, static_cast<double>(scales[0]),
                                                 zero_points.empty() ? 0 : zero_points[0]);
  }
  const int64_t columns = values.size(axis);
  at::Tensor scale = at::empty({columns}, at::kDouble);
  at::Tensor zero_point = at::zeros({columns}, at::kLong);
  for (int64_t i = 0; i < columns; ++i) {
    const auto at = static_cast<size_t>(i);
    scale.data_ptr<double>()[i] = static_cast<double>(scales[scales.size() == 1 ? 0 : at]);
    if (!zero_points.empty()) {
      zero_point.data_ptr<int64_t>()[i] = zero_points[zero_points.size() == 1 ? 0 : at];
    }
  }
  return at::_make_per_channel_quantized_tensor(values, scale, zero_point, axis);
}

c10::optional<at::Tensor> BiasOf(const intact_linear_desc& linear, const std::vector<float>& scales,
                                 int64_t columns) {
  if (linear.bias_s32 == nullptr && linear.bias_f32 == nullptr) return c10::nullopt;
  if (linear.bias_s32 != nullptr && linear.bias_f32 != nullptr) throw Unsupported("two biases");
  at::Tensor bias = at::empty({columns}, at::kFloat);
  for (int64_t i = 0; i < columns; ++i) {
    bias.data_ptr<float>()[i] = linear.bias_f32 != nullptr
                                    ? linear.bias_f32[i]
                                    : static_cast<float>(linear.bias_s32[i]) *
                                          scales[scales.size() == 1 ? 0 : static_cast<size_t>(i)];
  }
  return bias;
}

/// Answer() with PyTorch's errors. An error means that PyTorch does not support the problem, unless PyTorch
/// calls it internal.
template <class Function>
intact_status AnswerOf(char message[INTACT_TARGET_MESSAGE_BYTES], const Function& run) {
  return Answer(message, [&run] {
    try {
      const at::NoGradGuard no_grad;
      run();
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      if (text.find("INTERNAL ASSERT") != std::string::npos) throw std::runtime_error(text);
      throw Unsupported(text);
    }
  });
}

void SetThreads(int32_t threads) { at::set_num_threads(threads != 0 ? threads : default_threads); }

std::string WithRelu(const std::string& name, const intact_linear_desc& linear) {
  return linear.activation == INTACT_ACTIVATION_RELU ? name + "_relu" : name;
}

at::Tensor Multiply(const Product& product, const intact_linear_desc& linear) {
  // B as N×K.
  const at::Tensor columns =
      at::from_blob(const_cast<void*>(product.b), {product.n, product.k},
                    {product.b_stride_n, product.b_stride_k}, at::TensorOptions().dtype(at::kChar))
          .contiguous();
  const at::Tensor weights = Weights(columns, product.scales, product.b_zero_points, 0);
  const c10::IValue packed =
      Call("quantized::linear_prepack", weights, BiasOf(linear, product.scales, product.n));
  if (linear.a_quantization != INTACT_QUANTIZATION_STATIC) {
    const at::Tensor a = at::from_blob(const_cast<void*>(product.a), {product.m, product.k}, at::kFloat);
    const std::string name =
        linear.activation == INTACT_ACTIVATION_RELU ? "linear_relu_dynamic" : "linear_dynamic";
    return Call("quantized::" + name, a, packed, false).toTensor();
  }
  const at::Tensor a =
      Activations(Bytes(product.a, {product.m, product.k}, linear.a_type), linear.a_zero_point);
  return Call(WithRelu("quantized::linear", linear), a, packed, 1.0, int64_t{linear.c_zero_point}).toTensor();
}

/// Refuses a combination of types that no engine's operators have.
void CheckLinear(const intact_linear_desc& linear) {
  const bool is_dynamic = linear.a_quantization != INTACT_QUANTIZATION_STATIC;
  if (is_dynamic && (linear.c_type != INTACT_F32 || linear.a_source_type != INTACT_F32)) {
    throw Unsupported("PyTorch's linear_dynamic takes and returns float32");
  }
  if (is_dynamic && linear.a_type != INTACT_U8) throw Unsupported("PyTorch's linear_dynamic quantizes to u8");
  if (!is_dynamic && linear.c_type != linear.a_type) {
    throw Unsupported("PyTorch's outputs have the type of its inputs");
  }
}

intact_status Gemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                   const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return AnswerOf(message, [&] {
    CheckLinear(*linear);
    SetThreads(args->threads);
    std::vector<Product> products = ProductsOf(*desc, *linear, b, *args);
    if (linear->a_quantization != INTACT_QUANTIZATION_STATIC && products.size() > 1) {
      throw Unsupported("PyTorch quantizes each item of a batch by itself");
    }
    for (const Product& product : products) {
      const at::Tensor c = Multiply(product, *linear).contiguous();
      std::memcpy(product.c, c.data_ptr(),
                  static_cast<size_t>(product.m * product.n * BytesOf(linear->c_type)));
    }
  });
}

/// The axes of a tensor of rank `rank`, with the channels moved from the end to place `to`.
std::vector<int64_t> ChannelsTo(int64_t to, int64_t rank) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i + 1 < rank; ++i) axes.push_back(i);
  axes.insert(axes.begin() + to, rank - 1);
  return axes;
}

/// Converts weights from O…I to PyTorch's order: [O][I of a group][…], or transposed [I][O of a group][…].
at::Tensor Filter(const Convolution& conv, const void* weights) {
  const int64_t inputs = conv.input_channels / conv.groups;
  std::vector<int64_t> sizes = {conv.groups, conv.output_channels / conv.groups};
  sizes.insert(sizes.end(), conv.kernel.begin(), conv.kernel.end());
  sizes.push_back(inputs);
  const at::Tensor stored = Bytes(weights, sizes, INTACT_S8);
  // The groups, then the inputs or the outputs of each.
  const at::Tensor ordered = stored.permute(ChannelsTo(conv.transposed ? 1 : 2, stored.dim()));
  return ordered.flatten(0, 1).contiguous();
}

/// The input as a tensor with channels before space. In memory channels are last, except with one spatial
/// dimension.
at::Tensor Input(const Convolution& conv, const intact_linear_desc& linear, const void* a) {
  std::vector<int64_t> sizes = {conv.batch};
  sizes.insert(sizes.end(), conv.input.begin(), conv.input.end());
  sizes.push_back(conv.input_channels);
  const at::Tensor ordered =
      Bytes(a, sizes, linear.a_type).permute(ChannelsTo(1, static_cast<int64_t>(sizes.size())));
  const size_t dims = conv.input.size();
  const at::MemoryFormat format = dims == 1   ? at::MemoryFormat::Contiguous
                                  : dims == 2 ? at::MemoryFormat::ChannelsLast
                                              : at::MemoryFormat::ChannelsLast3d;
  const at::ScalarType type = linear.a_type == INTACT_U8 ? at::kQUInt8 : at::kQInt8;
  at::Tensor quantized = at::_empty_affine_quantized(ordered.sizes(), at::TensorOptions().dtype(type), 1.0,
                                                     linear.a_zero_point, format);
  const at::Tensor values = ordered.contiguous(format);
  std::memcpy(quantized.data_ptr(), values.data_ptr(), static_cast<size_t>(values.numel()));
  return quantized;
}

at::Tensor Convolve(const Convolution& conv, const intact_linear_desc& linear, const void* weights,
                    const void* a) {
  const std::vector<float> scales(linear.scales, linear.scales + linear.scale_count);
  const std::vector<int32_t> zero_points(linear.b_zero_points,
                                         linear.b_zero_points + linear.b_zero_point_count);
  const std::string dims = std::to_string(conv.input.size()) + "d";
  const at::Tensor filter = Weights(Filter(conv, weights), scales, zero_points, conv.transposed ? 1 : 0);
  const c10::optional<at::Tensor> bias = BiasOf(linear, scales, conv.output_channels);
  const at::Tensor input = Input(conv, linear, a);
  const int64_t zero_point = linear.c_zero_point;
  if (conv.transposed) {
    if (linear.activation != INTACT_ACTIVATION_NONE) throw Unsupported("PyTorch has no conv_transpose_relu");
    const std::string name = "quantized::conv_transpose" + dims;
    const c10::IValue packed = Call(name + "_prepack", filter, bias, conv.stride, conv.pad_begin,
                                    conv.output_pad, conv.dilation, conv.groups);
    return Call(name, input, packed, 1.0, zero_point).toTensor();
  }
  const c10::IValue packed = Call("quantized::conv" + dims + "_prepack", filter, bias, conv.stride,
                                  conv.pad_begin, conv.dilation, conv.groups);
  const std::string overload = conv.input.size() == 1 ? "" : ".new";
  return Call(WithRelu("quantized::conv" + dims, linear) + overload, input, packed, 1.0, zero_point)
      .toTensor();
}

intact_status Conv(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                   const intact_conv_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return AnswerOf(message, [&] {
    CheckLinear(*linear);
    if (linear->a_quantization != INTACT_QUANTIZATION_STATIC) {
      throw Unsupported("PyTorch's convolutions do not quantize their input");
    }
    SetThreads(args->threads);
    const Convolution conv = ConvolutionOf(*desc, *args);
    const at::Tensor output = Convolve(conv, *linear, weights, args->a);
    std::vector<int64_t> channels_last = {0};
    for (int64_t i = 2; i < output.dim(); ++i) channels_last.push_back(i);
    channels_last.push_back(1);
    const at::Tensor c = output.int_repr().permute(channels_last).contiguous();
    if (c.numel() != conv.OutputPixels() * conv.output_channels) {
      throw std::runtime_error("the output has " + std::to_string(c.numel()) + " elements");
    }
    std::memcpy(args->c, c.data_ptr(), static_cast<size_t>(c.numel()));
  });
}

constexpr std::array<std::pair<std::string_view, at::QEngine>, 2> kEngines = {
    {{"qnnpack", at::QEngine::QNNPACK}, {"onednn", at::QEngine::ONEDNN}}};

constexpr std::array<std::pair<std::string_view, const char*>, 6> kIsas = {
    {{"sse41", "SSE41"},
     {"avx2", "AVX2"},
     {"avx2_vnni", "AVX2_VNNI"},
     {"avx512_core", "AVX512_CORE"},
     {"avx512_core_vnni", "AVX512_CORE_VNNI"},
     {"avx512_core_bf16", "AVX512_CORE_BF16"}}};

struct Configuration {
  std::string name;
  bool is_onednn;
};

Configuration Configure(const char* text) {
  Options options(text);
  const auto engine = options.Take("engine", kEngines);
  const std::string engine_name = engine ? engine->first : "qnnpack";
  Configuration result = {.name = std::string("PyTorch ") + TORCH_VERSION + ", " + engine_name,
                          .is_onednn = engine_name == "onednn"};
  if (const auto isa = options.Take("isa", kIsas)) {
    if (!result.is_onednn)
      throw std::runtime_error("isa= needs engine=onednn: qnnpack has only SSE2 kernels");
    setenv("ONEDNN_MAX_CPU_ISA", isa->second, 1);
    result.name += ", " + isa->first;
  }
  options.End();
  at::globalContext().setQEngine(engine ? engine->second : at::QEngine::QNNPACK);
  return result;
}

const intact_target* Open(const char* options) {
  static const Configuration kConfiguration = Configure(options);
  constexpr uint64_t kOfBoth = Supports(
      INTACT_TARGET_A_U8, INTACT_TARGET_B_S8, INTACT_TARGET_C_U8, INTACT_TARGET_C_F32,
      INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_C_ZERO_POINT, INTACT_TARGET_BIAS_S32, INTACT_TARGET_BIAS_F32,
      INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_RELU, INTACT_TARGET_B_LAYOUTS, INTACT_TARGET_RUNTIME_B,
      INTACT_TARGET_BATCH, INTACT_TARGET_BATCH_POINTERS, INTACT_TARGET_DYNAMIC_TENSOR,
      INTACT_TARGET_DYNAMIC_NAN, INTACT_TARGET_THREADS, INTACT_TARGET_CONV_1D, INTACT_TARGET_CONV_2D,
      INTACT_TARGET_CONV_3D, INTACT_TARGET_CONV_GROUPS, INTACT_TARGET_CONV_DEPTHWISE,
      INTACT_TARGET_CONV_PADDING, INTACT_TARGET_CONV_STRIDE, INTACT_TARGET_CONV_DILATION,
      INTACT_TARGET_CONV_TRANSPOSED, INTACT_TARGET_GEMM);
  constexpr uint64_t kOfQnnpack = Supports(INTACT_TARGET_A_S8, INTACT_TARGET_C_S8, INTACT_TARGET_B_ZERO_POINT,
                                           INTACT_TARGET_B_ZERO_POINTS);
  static const intact_target kTarget = {.struct_size = sizeof(intact_target),
                                        .name = kConfiguration.name.c_str(),
                                        .supports = kOfBoth | (kConfiguration.is_onednn ? 0 : kOfQnnpack),
                                        .arithmetic = "any",
                                        .gemm = Gemm,
                                        .conv = Conv,
                                        .grouped = nullptr,
                                        .conv_supports = 0,
                                        .grouped_supports = 0};
  default_threads = at::get_num_threads();
  return &kTarget;
}

}  // namespace
}  // namespace intact::peers

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return intact::peers::Opened(abi, message, [options] { return intact::peers::Open(options); });
}
