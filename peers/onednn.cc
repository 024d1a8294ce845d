// oneDNN as a peer: its matmul, inner product, convolution and deconvolution primitives, and its BLAS-like
// gemm_u8s8s32 and gemm_s8s8s32. Versions 2 and 3 have different APIs, which onednn_api.h hides.
//
//   isa=…    limits the library to an ISA, by its own names (ONEDNN_MAX_CPU_ISA)
//   gemm=…   the call that multiplies: matmul (the default), inner_product or gemm_x8s8s32
//
// oneDNN computes (sum + bias)·scale in version 2 and sum·scale + bias in version 3, then the post-operations
// in order, then adds the zero point of C. Translations:
//
//   bias_s32                version 2: bias
//                           version 3: bias, as float32 bias·scale if there are scales
//   scales                  version 2: scales of the output, one or one per column
//                           version 3: scales of the weights, one or one per column
//   bias_f32                post-operation binary_add
//   residual                post-operation sum, if its elements have the size of C's. The sum adds to C's
//                           values, so the residual is copied to C first
//   activation              post-operation eltwise_relu or eltwise_clip
//   zero points             zero points; in version 2 not for weights of convolutions
//   scales of rows of A     post-operation binary_mul, after the scale of the weights
//
// Constant weights are packed in the format that the primitive prefers. Runtime B is read as it is in memory.
// A batch is one matmul if its items have uniform strides and share scales and zero points; else there is a
// matmul for each item.
#include <omp.h>

#include <numeric>

#include "peers/onednn_api.h"
#include "peers/peer.h"

namespace intact::peers {
namespace {

using onednn::Attributes;
using onednn::ColumnMasks;
using onednn::Descriptor;
using onednn::Dimensions;
using onednn::Type;

enum class GemmCall : uint8_t { kMatmul, kInnerProduct, kBlas };

GemmCall gemm_call = GemmCall::kMatmul;
int default_threads = 1;

Type TypeOf(int32_t type) {
  switch (type) {
    case INTACT_U8:
      return Type::u8;
    case INTACT_S8:
      return Type::s8;
    case INTACT_S32:
      return Type::s32;
    case INTACT_F32:
      return Type::f32;
    case INTACT_BF16:
      return Type::bf16;
    default:
      throw Unsupported("oneDNN lacks this type");
  }
}

void SetThreads(int32_t threads) { omp_set_num_threads(threads != 0 ? threads : default_threads); }

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// A memory of `descriptor` at `pointer`. Only an output is written.
dnnl::memory MemoryAt(const Descriptor& descriptor, const void* pointer) {
  return {descriptor, Engine(), const_cast<void*>(pointer)};
}

/// The extents of a tensor: `size` in dimension `axis`, 1 in others.
Dimensions Along(size_t axis, size_t dimensions, int64_t size) {
  Dimensions extents(dimensions, 1);
  extents[axis] = size;
  return extents;
}

/// A tensor of float32 with `values` along dimension `axis`; other dimensions are 1.
dnnl::memory Broadcast(size_t dimensions, size_t axis, const float* values, int64_t size) {
  return onednn::MemoryOf<float>(Engine(), Along(axis, dimensions, size), Type::f32,
                                 {values, static_cast<size_t>(size)});
}

/// A primitive's requantization and post-operations.
struct Request {
  const intact_linear_desc& linear;
  const std::vector<float>& scales;
  const std::vector<int32_t>& b_zero_points;
  const float* a_scales;  // scales of A's rows, or null
  int64_t rows, columns;
  size_t dimensions, column_axis;  // rank of C, and the axis of its columns
  ColumnMasks column_masks;
};

Attributes AttributesOf(const Request& request) {
  const intact_linear_desc& linear = request.linear;
  Attributes result;
  onednn::SetScales(Engine(), request.scales, request.column_masks, &result);
  onednn::SetZeroPoints(Engine(), DNNL_ARG_SRC, {&linear.a_zero_point, 1}, 0, &result);
  onednn::SetZeroPoints(Engine(), DNNL_ARG_WEIGHTS, request.b_zero_points, request.column_masks.weights,
                        &result);
  onednn::SetZeroPoints(Engine(), DNNL_ARG_DST, {&linear.c_zero_point, 1}, 0, &result);

  dnnl::post_ops post_ops;
  const auto append_binary = [&](dnnl::algorithm algorithm, const dnnl::memory& operand) {
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1;
    post_ops.append_binary(algorithm, operand.get_desc());
    result.arguments.emplace(argument, operand);
  };
  if (request.a_scales != nullptr) {
    append_binary(dnnl::algorithm::binary_mul,
                  Broadcast(request.dimensions, 0, request.a_scales, request.rows));
  }
  if (linear.bias_f32 != nullptr) {
    append_binary(dnnl::algorithm::binary_add,
                  Broadcast(request.dimensions, request.column_axis, linear.bias_f32, request.columns));
  }
  if (linear.residual_type != INTACT_TYPE_NONE) {
    post_ops.append_sum(linear.residual_scale, linear.residual_zero_point, TypeOf(linear.residual_type));
  }
  if (linear.activation == INTACT_ACTIVATION_RELU) {
    onednn::AppendEltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f, &post_ops);
  } else if (linear.activation == INTACT_ACTIVATION_CLAMP) {
    onednn::AppendEltwise(dnnl::algorithm::eltwise_clip, linear.clamp_min, linear.clamp_max, &post_ops);
  }
  result.attributes.set_post_ops(post_ops);
  return result;
}

/// Copies a residual to C, because the post-operation sum adds to C. Rows of a convolution are pixels.
void PlaceResidual(const intact_linear_desc& linear, int64_t rows, int64_t columns, const void* residual,
                   int64_t residual_stride, void* c, int64_t c_stride) {
  if (linear.residual_type == INTACT_TYPE_NONE || residual == c) return;
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(Advance(c, row * c_stride, linear.c_type),
                Advance(residual, row * residual_stride, linear.residual_type),
                static_cast<size_t>(columns * BytesOf(linear.c_type)));
  }
}

/// The tensors of a primitive, with their layouts in memory.
struct Tensors {
  Descriptor a, b, c;
  const void *a_data, *b_data;
  void* c_data;
};

/// Runs a primitive. If the primitive prefers another layout of the weights, they are packed first.
template <class Primitive>
void Execute(const typename Primitive::primitive_desc& description, const Tensors& tensors,
             std::unordered_map<int, dnnl::memory> arguments) {
  dnnl::stream stream(Engine());
  dnnl::memory b = MemoryAt(tensors.b, tensors.b_data);
  if (description.weights_desc() != tensors.b) {
    dnnl::memory packed(description.weights_desc(), Engine());
    dnnl::reorder(b, packed).execute(stream, b, packed);
    b = packed;
  }
  arguments.insert({{DNNL_ARG_SRC, MemoryAt(tensors.a, tensors.a_data)},
                    {DNNL_ARG_WEIGHTS, b},
                    {DNNL_ARG_DST, MemoryAt(tensors.c, tensors.c_data)}});
  Primitive(description).execute(stream, arguments);
  stream.wait();
}

/// Adds the s32 bias along the last dimension, if there is a bias. Returns its descriptor, or an empty one.
Descriptor AddBias(const intact_linear_desc& linear, const std::vector<float>& scales, size_t dimensions,
                   int64_t columns, Attributes* attributes) {
  if (linear.bias_s32 == nullptr) return {};
  return onednn::AddBias(Engine(), {linear.bias_s32, static_cast<size_t>(columns)}, scales,
                         Along(dimensions - 1, dimensions, columns), attributes);
}

/// Elements between items of a batch.
struct BatchStrides {
  int64_t a, b, c;  // b is 0 if all items share B
};

/// Computes `items` products, from `first` on.
void Matmul(const intact_linear_desc& linear, const Product& first, int64_t items, const BatchStrides& batch,
            bool is_b_constant, const float* a_scales) {
  const bool is_batch = items > 1;
  const auto matrix = [is_batch](int64_t count, int64_t rows, int64_t columns, int32_t type,
                                 const Dimensions& strides) {
    return Descriptor(is_batch ? Dimensions{count, rows, columns} : Dimensions{rows, columns}, TypeOf(type),
                      is_batch ? strides : Dimensions{strides[1], strides[2]});
  };
  const int64_t b_items = batch.b == 0 ? 1 : items;
  const Tensors tensors = {
      .a = matrix(items, first.m, first.k, linear.a_type, {batch.a, first.a_stride, 1}),
      .b = matrix(b_items, first.k, first.n, linear.b_type,
                  {b_items == 1 ? first.k * first.n : batch.b, first.b_stride_k, first.b_stride_n}),
      .c = matrix(items, first.m, first.n, linear.c_type, {batch.c, first.c_stride, 1}),
      .a_data = first.a,
      .b_data = first.b,
      .c_data = first.c};
  const size_t dimensions = is_batch ? 3 : 2;
  Attributes with = AttributesOf({.linear = linear,
                                  .scales = first.scales,
                                  .b_zero_points = first.b_zero_points,
                                  .a_scales = a_scales,
                                  .rows = first.m,
                                  .columns = first.n,
                                  .dimensions = dimensions,
                                  .column_axis = dimensions - 1,
                                  .column_masks = onednn::MatmulColumns(dimensions)});
  const Descriptor bias = AddBias(linear, first.scales, dimensions, first.n, &with);
  const Descriptor b = is_b_constant ? onednn::InAnyLayout(tensors.b) : tensors.b;
  const auto description =
      onednn::Describe<dnnl::matmul>(Engine(), with.attributes, tensors.a, b, bias, tensors.c);
  Execute<dnnl::matmul>(description, tensors, std::move(with.arguments));
}

void InnerProduct(const intact_linear_desc& linear, const Product& product, bool is_b_constant,
                  const float* a_scales) {
  const Tensors tensors = {
      .a = {{product.m, product.k}, TypeOf(linear.a_type), Dimensions{product.a_stride, 1}},
      .b = {{product.n, product.k},
            TypeOf(linear.b_type),
            Dimensions{product.b_stride_n, product.b_stride_k}},
      .c = {{product.m, product.n}, TypeOf(linear.c_type), Dimensions{product.c_stride, 1}},
      .a_data = product.a,
      .b_data = product.b,
      .c_data = product.c};
  Attributes with = AttributesOf({.linear = linear,
                                  .scales = product.scales,
                                  .b_zero_points = product.b_zero_points,
                                  .a_scales = a_scales,
                                  .rows = product.m,
                                  .columns = product.n,
                                  .dimensions = 2,
                                  .column_axis = 1,
                                  .column_masks = onednn::InnerProductColumns()});
  const Descriptor bias = AddBias(linear, product.scales, 1, product.n, &with);
  const Descriptor b = is_b_constant ? onednn::InAnyLayout(tensors.b) : tensors.b;
  const auto description = onednn::Describe<dnnl::inner_product_forward>(
      Engine(), with.attributes, dnnl::prop_kind::forward_inference, tensors.a, b, bias, tensors.c);
  Execute<dnnl::inner_product_forward>(description, tensors, std::move(with.arguments));
}

/// gemm_u8s8s32 or gemm_s8s8s32: row-major, with an offset of A, an offset of B, and offsets of C's columns
/// as bias.
void Blas(const intact_linear_desc& linear, const Product& product) {
  if (linear.c_type != INTACT_S32 || linear.b_type != INTACT_S8 || product.b_zero_points.size() > 1) {
    throw Unsupported("oneDNN's gemm_x8s8s32 takes s8 weights with one zero point, and returns s32");
  }
  const bool is_transposed = product.b_stride_n != 1;
  if (is_transposed && product.b_stride_k != 1) throw Unsupported("neither stride of B is 1");
  const auto zero_b = static_cast<int8_t>(product.b_zero_points.empty() ? 0 : product.b_zero_points[0]);
  const int32_t no_bias = 0;
  const auto multiply = [&]<class Activation>(auto* call, Activation /*type*/) {
    return call('N', is_transposed ? 'T' : 'N', linear.bias_s32 != nullptr ? 'R' : 'F', product.m, product.n,
                product.k, 1.0f, static_cast<const Activation*>(product.a), product.a_stride,
                static_cast<Activation>(linear.a_zero_point), static_cast<const int8_t*>(product.b),
                is_transposed ? product.b_stride_n : product.b_stride_k, zero_b, 0.0f,
                static_cast<int32_t*>(product.c), product.c_stride,
                linear.bias_s32 != nullptr ? linear.bias_s32 : &no_bias);
  };
  const dnnl_status_t status = linear.a_type == INTACT_U8 ? multiply(dnnl_gemm_u8s8s32, uint8_t())
                                                          : multiply(dnnl_gemm_s8s8s32, int8_t());
  dnnl::error::wrap_c_api(status, "gemm_x8s8s32 failed");
}

/// Answer() with oneDNN's errors. What oneDNN does not implement is Unsupported.
template <class Function>
intact_status AnswerOf(char message[INTACT_TARGET_MESSAGE_BYTES], const Function& run) {
  return Answer(message, [&run] {
    try {
      run();
    } catch (const dnnl::error& error) {
      const std::string text = std::string("oneDNN: ") + error.what();
      if (error.status == dnnl_unimplemented) throw Unsupported(text);
      throw std::runtime_error(text + (error.status == dnnl_invalid_arguments ? ": invalid arguments" : ""));
    }
  });
}

void CheckLinear(const intact_linear_desc& linear) {
  if (linear.residual_type != INTACT_TYPE_NONE && BytesOf(linear.residual_type) != BytesOf(linear.c_type)) {
    throw Unsupported("oneDNN's sum adds to C: the residual's elements must have the size of C's");
  }
}

intact_status Gemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                   const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return AnswerOf(message, [&] {
    CheckLinear(*linear);
    if (args->a_zero_points != nullptr) throw Unsupported("oneDNN has no zero points of A's rows");
    SetThreads(args->threads);
    const std::vector<Product> products = ProductsOf(*desc, *linear, b, *args);
    for (const Product& product : products) {
      PlaceResidual(*linear, product.m, product.n, product.residual, product.residual_stride, product.c,
                    product.c_stride);
    }
    const bool is_b_constant = desc->runtime_b == 0;
    const bool has_own = args->a_items != nullptr || args->c_items != nullptr || args->b_items != nullptr ||
                         args->b_scales != nullptr || args->b_zero_points != nullptr ||
                         args->a_scales != nullptr;
    if (gemm_call == GemmCall::kMatmul && products.size() > 1 && !has_own) {
      const auto distance = [](const void* from, const void* to, int32_t type) {
        return (static_cast<const uint8_t*>(to) - static_cast<const uint8_t*>(from)) / BytesOf(type);
      };
      const BatchStrides batch = {.a = distance(products[0].a, products[1].a, linear->a_type),
                                  .b = distance(products[0].b, products[1].b, linear->b_type),
                                  .c = distance(products[0].c, products[1].c, linear->c_type)};
      Matmul(*linear, products[0], std::ssize(products), batch, is_b_constant, nullptr);
      return;
    }
    const float* a_scales = args->a_scales;
    for (const Product& product : products) {
      switch (gemm_call) {
        case GemmCall::kMatmul:
          Matmul(*linear, product, 1, {}, is_b_constant, a_scales);
          break;
        case GemmCall::kInnerProduct:
          InnerProduct(*linear, product, is_b_constant, a_scales);
          break;
        case GemmCall::kBlas:
          Blas(*linear, product);
          break;
      }
      if (a_scales != nullptr) a_scales += args->m;
    }
  });
}

/// Strides of dense dimensions, the last the fastest, with `pixel` elements between pixels.
Dimensions PixelStrides(const Spatial& extents, int64_t pixel) {
  Dimensions strides(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    strides[i] = pixel;
    pixel *= extents[i];
  }
  return strides;
}

/// [batch][channels][spatial…], channels last.
Descriptor ChannelsLast(int64_t batch, int64_t channels, const Spatial& extents, int64_t pixel,
                        int32_t type) {
  const int64_t image = std::accumulate(extents.begin(), extents.end(), pixel, std::multiplies<>());
  Dimensions dimensions = {batch, channels};
  Dimensions strides = {image, 1};
  dimensions.insert(dimensions.end(), extents.begin(), extents.end());
  const Dimensions spatial = PixelStrides(extents, pixel);
  strides.insert(strides.end(), spatial.begin(), spatial.end());
  return {dimensions, TypeOf(type), strides};
}

/// [groups, if several][outputs of a group][inputs of a group][spatial…], stored O…I.
Descriptor Filter(const Convolution& conv, int32_t type) {
  const int64_t inputs = conv.input_channels / conv.groups;
  const int64_t outputs = conv.output_channels / conv.groups;
  const int64_t output = std::accumulate(conv.kernel.begin(), conv.kernel.end(), inputs, std::multiplies<>());
  Dimensions dimensions = {outputs, inputs};
  Dimensions strides = {output, 1};
  dimensions.insert(dimensions.end(), conv.kernel.begin(), conv.kernel.end());
  const Dimensions spatial = PixelStrides(conv.kernel, inputs);
  strides.insert(strides.end(), spatial.begin(), spatial.end());
  if (conv.groups > 1) {
    dimensions.insert(dimensions.begin(), conv.groups);
    strides.insert(strides.begin(), outputs * output);
  }
  return {dimensions, TypeOf(type), strides};
}

template <class Primitive>
void Convolve(dnnl::algorithm algorithm, const Convolution& conv, const intact_linear_desc& linear,
              const Tensors& tensors) {
  const std::vector<float> scales(linear.scales, linear.scales + linear.scale_count);
  const std::vector<int32_t> b_zero_points(linear.b_zero_points,
                                           linear.b_zero_points + linear.b_zero_point_count);
  Attributes with = AttributesOf({.linear = linear,
                                  .scales = scales,
                                  .b_zero_points = b_zero_points,
                                  .a_scales = nullptr,
                                  .rows = 0,
                                  .columns = conv.output_channels,
                                  .dimensions = conv.input.size() + 2,
                                  .column_axis = 1,
                                  .column_masks = onednn::ConvolutionColumns(conv.groups > 1)});
  const Descriptor bias = AddBias(linear, scales, 1, conv.output_channels, &with);
  // oneDNN has no output_pad: a deconvolution gets a smaller padding at the end instead, since its output's
  // extents are given. In oneDNN, dilation 0 means not dilated.
  Dimensions pad_end = conv.pad_end;
  Dimensions dilation = conv.dilation;
  for (size_t i = 0; i < pad_end.size(); ++i) {
    pad_end[i] -= conv.output_pad[i];
    if (pad_end[i] < -conv.stride[i]) throw Unsupported("oneDNN's output_pad cannot exceed a stride");
    dilation[i] -= 1;
  }
  const auto description = onednn::Describe<Primitive>(
      Engine(), with.attributes, dnnl::prop_kind::forward_inference, algorithm, tensors.a,
      onednn::InAnyLayout(tensors.b), bias, tensors.c, conv.stride, dilation, conv.pad_begin, pad_end);
  Execute<Primitive>(description, tensors, std::move(with.arguments));
}

intact_status Conv(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                   const intact_conv_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return AnswerOf(message, [&] {
    CheckLinear(*linear);
    SetThreads(args->threads);
    const Convolution conv = ConvolutionOf(*desc, *args);
    PlaceResidual(*linear, conv.OutputPixels(), conv.output_channels, args->residual, conv.residual_stride,
                  args->c, conv.c_stride);
    const Tensors tensors = {
        .a = ChannelsLast(conv.batch, conv.input_channels, conv.input, conv.a_stride, linear->a_type),
        .b = Filter(conv, linear->b_type),
        .c = ChannelsLast(conv.batch, conv.output_channels, conv.output, conv.c_stride, linear->c_type),
        .a_data = args->a,
        .b_data = weights,
        .c_data = args->c};
    if (conv.transposed) {
      Convolve<dnnl::deconvolution_forward>(dnnl::algorithm::deconvolution_direct, conv, *linear, tensors);
    } else {
      Convolve<dnnl::convolution_forward>(dnnl::algorithm::convolution_direct, conv, *linear, tensors);
    }
  });
}

constexpr std::array<std::pair<std::string_view, GemmCall>, 3> kGemmCalls = {
    {{"matmul", GemmCall::kMatmul},
     {"inner_product", GemmCall::kInnerProduct},
     {"gemm_x8s8s32", GemmCall::kBlas}}};

/// Applies the user's options to the library. Returns its name with the options.
std::string NameAsConfigured(const char* text) {
  const dnnl_version_t& version = *dnnl_version();
  std::string name = "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                     std::to_string(version.patch);
  Options options(text);
  if (const auto isa = options.Take("isa", onednn::kIsaNames)) {
    if (dnnl::set_max_cpu_isa(isa->second) != dnnl::status::success ||
        dnnl::get_effective_cpu_isa() != isa->second) {
      throw std::runtime_error("oneDNN cannot be limited to " + isa->first + ": this CPU lacks it");
    }
    name += ", " + isa->first;
  }
  if (const auto call = options.Take("gemm", kGemmCalls)) {
    gemm_call = call->second;
    name += ", " + call->first;
  }
  options.End();
  return name;
}

const intact_target* Open(const char* options) {
  static const std::string kName = NameAsConfigured(options);
  static const intact_target kTarget = {
      .struct_size = sizeof(intact_target),
      .name = kName.c_str(),
      .supports = Supports(
          INTACT_TARGET_A_U8, INTACT_TARGET_A_S8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S32,
          INTACT_TARGET_C_F32, INTACT_TARGET_C_U8, INTACT_TARGET_C_S8, INTACT_TARGET_C_BF16,
          INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_B_ZERO_POINT, INTACT_TARGET_C_ZERO_POINT,
          INTACT_TARGET_BIAS_S32, INTACT_TARGET_BIAS_F32, INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_RELU,
          INTACT_TARGET_CLAMP, INTACT_TARGET_RESIDUAL, INTACT_TARGET_RESIDUAL_IN_PLACE, INTACT_TARGET_STRIDES,
          INTACT_TARGET_B_LAYOUTS, INTACT_TARGET_RUNTIME_B, INTACT_TARGET_BATCH, INTACT_TARGET_BATCH_POINTERS,
          INTACT_TARGET_ROW_QUANTIZATION, INTACT_TARGET_THREADS, INTACT_TARGET_CONV_1D, INTACT_TARGET_CONV_2D,
          INTACT_TARGET_CONV_3D, INTACT_TARGET_CONV_GROUPS, INTACT_TARGET_CONV_DEPTHWISE,
          INTACT_TARGET_CONV_PADDING, INTACT_TARGET_CONV_PADDING_ENDS, INTACT_TARGET_CONV_STRIDE,
          INTACT_TARGET_CONV_DILATION, INTACT_TARGET_CONV_TRANSPOSED, INTACT_TARGET_GEMM),
      .arithmetic = "any",
      .gemm = Gemm,
      .conv = Conv,
      .grouped = nullptr,
      .conv_supports = 0,
      .grouped_supports = 0};
  default_threads = omp_get_max_threads();
  return &kTarget;
}

}  // namespace
}  // namespace intact::peers

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  return intact::peers::Opened(abi, message, [options] { return intact::peers::Open(options); });
}
