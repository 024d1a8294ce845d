#include "matmul_nbits.h"

#include <intact/grouped.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "items.h"

namespace intact::onnxruntime {
namespace {

constexpr int64_t kInt8 = 4;  // the accuracy level of quantized activations

// A constant of `count` elements.
Constant Elements(const Node& node, size_t input, intact_type type, int64_t count) {
  Constant constant = node.ConstantOf(input, type);
  if (constant.count != count)
    throw Refusal(std::string(node.Name(input)) + ": has " + std::to_string(constant.count) +
                  " elements; expected " + std::to_string(count));
  return constant;
}

// `count` numbers of `bits` bits from rows of whole bytes; the first number of a byte is in its low bits.
std::vector<uint8_t> Unpacked(const uint8_t* bytes, int bits, int64_t rows, int64_t count) {
  const int64_t in_byte = 8 / bits, row_bytes = (count + in_byte - 1) / in_byte;
  std::vector<uint8_t> numbers(static_cast<size_t>(rows * count));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i)
      numbers[static_cast<size_t>(row * count + i)] = static_cast<uint8_t>(
          bytes[row * row_bytes + i / in_byte] >> (i % in_byte * bits) & ((1 << bits) - 1));
  return numbers;
}

// Weights of 2 bits as weights of 4 bits.
std::vector<uint8_t> Widened(const uint8_t* bytes, int64_t count) {
  std::vector<uint8_t> wide(static_cast<size_t>(2 * count));
  for (size_t i = 0; i < wide.size(); ++i) {
    const int pair = bytes[i / 2] >> (i % 2 * 4);
    wide[i] = static_cast<uint8_t>((pair & 3) | (pair & 12) << 2);
  }
  return wide;
}

// A descriptor without weights.
intact_grouped_desc DescOf(const Settings& settings, intact_type a, int64_t n, int64_t k, int64_t block) {
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = n;
  desc.k = k;
  desc.group = block;
  desc.a_source_type = desc.scale_type = desc.c_type = a;
  desc.a_granularity = INTACT_GRANULARITY_GROUPS;
  desc.max_isa = settings.max_isa;
  return desc;
}

// Element i of a packed tensor.
uint8_t ElementOf(const void* data, int bits, int64_t i) {
  const auto* const bytes = static_cast<const uint8_t*>(data);
  return bits == 8 ? bytes[i] : static_cast<uint8_t>(bytes[i / 2] >> (i % 2 * 4) & 15);
}

// The value of column j and block g of a tensor with one value, one for each column, or one for each block and column.
int64_t PlaceOf(int64_t count, int64_t n, int64_t g, int64_t j) {
  return count == 1 ? 0 : count == n ? j : g * n + j;
}

std::vector<uint8_t> ColumnsOf(const void* data, int bits, int64_t n, int64_t k) {
  constexpr int64_t kTile = 64;  // columns, so that the lines that a tile writes stay in the cache
  const int64_t stride = bits == 8 ? k : (k + 1) / 2;
  std::vector<uint8_t> columns(static_cast<size_t>(n * stride));
  for (int64_t begin = 0; begin < n; begin += kTile)
    for (int64_t depth = 0; depth < k; ++depth)
      for (int64_t j = begin; j < std::min(begin + kTile, n); ++j) {
        const uint8_t element = ElementOf(data, bits, depth * n + j);
        uint8_t& byte = columns[static_cast<size_t>(j * stride + (bits == 8 ? depth : depth / 2))];
        byte = static_cast<uint8_t>(byte | element << (bits == 8 ? 0 : depth % 2 * 4));
      }
  return columns;
}

}  // namespace

int64_t PositiveOf(const Node& node, const char* attribute) {
  const int64_t value = node.Integer(attribute, 0);
  if (value < 1)
    throw Refusal(std::string(attribute) + ": is " + std::to_string(value) + "; expected at least 1");
  return value;
}

void CheckIsQuantized(const Settings& settings, const char* name, int64_t level) {
  if (settings.is_like_avx2)
    throw Refusal("like: ONNX Runtime's bytes of this operator depend on the CPU, the rows and the column");
  if (level != kInt8 && !settings.quantizes_activations)
    throw Refusal(std::string(name) + ": is " + std::to_string(level) +
                  "; expected 4, or the option quantize_activations");
}

GroupedPlan MakePlanOfBlocks(const Node& node, const Settings& settings, const Blocks& blocks, intact_type a,
                             intact_type scale_type, intact_type c) {
  const int64_t bits = blocks.bits, columns = blocks.experts * blocks.n;
  if (bits != 2 && bits != 4 && bits != 8)
    throw Refusal("bits: is " + std::to_string(bits) + "; expected 2, 4 or 8");
  intact_grouped_desc desc = DescOf(settings, a, blocks.n, blocks.k, blocks.block);
  desc.experts = blocks.experts;
  desc.scale_type = scale_type;
  desc.c_type = c;
  desc.b_type = bits == 8 ? static_cast<int32_t>(INTACT_U8) : static_cast<int32_t>(INTACT_U4);
  const int64_t groups = (desc.k + desc.group - 1) / desc.group;
  const int64_t bytes = groups * (desc.group * bits / 8);  // of a column
  const Constant b = Elements(node, blocks.b, INTACT_U8, columns * bytes);
  const auto weights = b.As<uint8_t>();
  std::vector<uint8_t> zero_points;
  desc.b_stride_n = bits == 2 ? 2 * bytes : bytes;
  desc.b_scales = Elements(node, blocks.scales, scale_type, columns * groups).data;
  if (node.Has(blocks.zero_points)) {
    const int64_t in_byte = 8 / bits;
    const Constant packed =
        Elements(node, blocks.zero_points, INTACT_U8, columns * ((groups + in_byte - 1) / in_byte));
    zero_points = Unpacked(static_cast<const uint8_t*>(packed.data), static_cast<int>(bits), columns, groups);
  } else if (bits == 2) {
    zero_points.assign(static_cast<size_t>(columns * groups), 2);
  }
  if (!zero_points.empty()) desc.b_zero_points = zero_points.data();
  std::vector<float> bias;
  if (node.Has(blocks.bias)) bias = Elements(node, blocks.bias, scale_type, columns).Floats();
  if (!bias.empty()) desc.bias_f32 = bias.data();
  return MakeGroupedPlan(desc, bits == 2 ? StoredWeights::kTwoBits : StoredWeights::kColumns, weights,
                         [&] { return Widened(weights.data(), b.count); });
}

std::unique_ptr<Layer> MakeMatMulNBits(const Node& node, const Context& context) {
  CheckIsQuantized(context.settings, "accuracy_level", node.Integer("accuracy_level", 0));
  if (node.Has(4)) throw Refusal("g_idx: is given; expected none: a block has adjacent depths");
  if (node.Integer("weight_prepacked", 0) != 0) throw Refusal("weight_prepacked: is not 0; expected 0");
  const int64_t n = PositiveOf(node, "N"), k = PositiveOf(node, "K");
  const intact_type a = node.Type(0, {INTACT_F32, INTACT_F16});
  const Blocks blocks = {.b = 1,
                         .scales = 2,
                         .zero_points = 3,
                         .bias = 5,
                         .bits = node.Integer("bits", 4),
                         .experts = 1,
                         .n = n,
                         .k = k,
                         .block = PositiveOf(node, "block_size")};
  return std::make_unique<ProductOfBlocks>(MakePlanOfBlocks(node, context.settings, blocks, a, a, a), n, k);
}

std::unique_ptr<Layer> MakeProductOfBlocks(const Node& node, const Context& context) {
  CheckIsQuantized(context.settings, "session.qdq_matmulnbits_accuracy_level", context.settings.nbits_level);
  const ONNXTensorElementDataType type = node.ElementType(1);
  const bool is_signed =
      type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
  const int bits =
      type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4 ? 4 : 8;
  const auto b = node.FindConstant(1), points = node.FindConstant(3);
  if (!b || b->shape.size() != 2) throw Refusal("x: is no constant matrix; expected K×N constant weights");
  const int64_t k = b->shape[0], n = b->shape[1], stated = node.Integer("block_size", 0);
  const int64_t block = stated == 0 ? context.settings.nbits_block : stated;
  if (block < 16)
    throw Refusal("session.qdq_matmulnbits_block_size: is " + std::to_string(block) +
                  "; expected 0, 16, 32, 64, 128 or 256");
  intact_grouped_desc desc = DescOf(context.settings, INTACT_F32, n, k, block);
  const int64_t groups = (k + desc.group - 1) / desc.group;
  const Constant scales = node.ConstantOf(2, INTACT_F32);
  if (stated == 0 ? scales.count != 1 && scales.count != n : scales.count != groups * n)
    throw Refusal("x_scale: has " + std::to_string(scales.count) + " values; expected " +
                  std::to_string(stated == 0 ? n : groups * n));
  if (points && points->count != scales.count)
    throw Refusal("x_zero_point: has " + std::to_string(points->count) + " values; expected " +
                  std::to_string(scales.count));
  std::vector<float> scales_of_blocks;
  std::vector<uint8_t> zero_points;  // of unsigned weights 0, unless they are given
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t place = PlaceOf(scales.count, n, g, j);
      scales_of_blocks.push_back(scales.As<float>()[static_cast<size_t>(place)]);
      const uint8_t point = points ? ElementOf(points->data, bits, place) : 0;
      zero_points.push_back(is_signed && bits == 4 && point > 7 ? static_cast<uint8_t>(point | 0xf0) : point);
    }
  desc.b_type = bits == 4 ? (is_signed ? int32_t{INTACT_S4} : int32_t{INTACT_U4})
                          : (is_signed ? int32_t{INTACT_S8} : int32_t{INTACT_U8});
  desc.b_stride_n = bits == 8 ? k : (k + 1) / 2;
  desc.b_scales = scales_of_blocks.data();
  desc.b_zero_points = zero_points.data();
  desc.scale_type = INTACT_F32;
  desc.scale_stride_n = 1;
  desc.scale_stride_g = n;
  const std::vector<float> bias = Bias<float>(node, 4, INTACT_F32, n);
  if (!bias.empty()) desc.bias_f32 = bias.data();
  const std::span weights(static_cast<const uint8_t*>(b->data),
                          static_cast<size_t>(bits == 8 ? n * k : (n * k + 1) / 2));
  return std::make_unique<ProductOfBlocks>(
      MakeGroupedPlan(desc, StoredWeights::kRows, weights, [&] { return ColumnsOf(b->data, bits, n, k); }), n,
      k);
}

void ProductOfBlocks::Compute(Run& run) const {
  const auto a = run.Input(0);
  Shape shape = a.GetTensorTypeAndShapeInfo().GetShape();
  CheckRows(shape, k_);
  shape.back() = n_;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = CountOf(shape) / n_;
  args.a = a.GetTensorRawData();
  args.c = run.Output(shape);
  if (args.m == 0) return;
  run.Compute(*plan_, args, {args.m, n_, k_});
}

}  // namespace intact::onnxruntime
