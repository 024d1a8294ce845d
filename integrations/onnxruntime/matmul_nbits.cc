#include "matmul_nbits.h"

#include <intact/grouped.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace intact::onnxruntime {
namespace {

constexpr int64_t kInt8 = 4;  // the accuracy level of quantized activations

// An attribute that the operator requires.
int64_t Extent(const Node& node, const char* attribute) {
  const int64_t value = node.Integer(attribute, 0);
  if (value < 1)
    throw Refusal(std::string(attribute) + ": is " + std::to_string(value) + "; expected at least 1");
  return value;
}

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

}  // namespace

MatMulNBits::MatMulNBits(const Node& node, const Context& context)
    : n_(Extent(node, "N")), k_(Extent(node, "K")) {
  const Settings& settings = context.settings;
  if (settings.is_like_avx2)
    throw Refusal("like: ONNX Runtime's bytes of this operator depend on the CPU, the rows and the column");
  if (const int64_t level = node.Integer("accuracy_level", 0);
      level != kInt8 && !settings.quantizes_activations)
    throw Refusal("accuracy_level: is " + std::to_string(level) +
                  "; expected 4, or the option quantize_activations");
  if (node.Has(4)) throw Refusal("g_idx: is given; expected none: a block has adjacent depths");
  if (node.Integer("weight_prepacked", 0) != 0) throw Refusal("weight_prepacked: is not 0; expected 0");
  const int64_t bits = node.Integer("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8)
    throw Refusal("bits: is " + std::to_string(bits) + "; expected 2, 4 or 8");
  const intact_type a = node.Type(0, {INTACT_F32, INTACT_F16});

  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = n_;
  desc.k = k_;
  desc.group = Extent(node, "block_size");
  desc.a_source_type = desc.scale_type = desc.c_type = a;
  desc.a_granularity = INTACT_GRANULARITY_GROUPS;
  desc.b_type = bits == 8 ? static_cast<int32_t>(INTACT_U8) : static_cast<int32_t>(INTACT_U4);
  desc.max_isa = settings.max_isa;
  const int64_t groups = (k_ + desc.group - 1) / desc.group;
  const int64_t bytes = groups * (desc.group * bits / 8);  // of a column
  const Constant b = Elements(node, 1, INTACT_U8, n_ * bytes);
  const auto* weights = static_cast<const uint8_t*>(b.data);
  std::vector<uint8_t> wide, zero_points;
  if (bits == 2) {
    wide = Widened(weights, b.count);
    weights = wide.data();
  }
  desc.b_stride_n = bits == 2 ? 2 * bytes : bytes;
  desc.b_scales = Elements(node, 2, a, n_ * groups).data;
  if (node.Has(3)) {
    const int64_t in_byte = 8 / bits;
    const Constant packed = Elements(node, 3, INTACT_U8, n_ * ((groups + in_byte - 1) / in_byte));
    zero_points = Unpacked(static_cast<const uint8_t*>(packed.data), static_cast<int>(bits), n_, groups);
  } else if (bits == 2) {
    zero_points.assign(static_cast<size_t>(n_ * groups), 2);
  }
  if (!zero_points.empty()) desc.b_zero_points = zero_points.data();
  std::vector<float> bias;
  if (node.Has(5)) bias = Elements(node, 5, a, n_).Floats();
  if (!bias.empty()) desc.bias_f32 = bias.data();
  plan_ = MakeGroupedPlan(desc, weights);
}

void MatMulNBits::Compute(Run& run) const {
  const auto a = run.Input(0);
  Shape shape = a.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.empty() || shape.back() != k_)
    throw std::invalid_argument("A: has rows of " + std::to_string(shape.empty() ? 0 : shape.back()) +
                                " elements; expected " + std::to_string(k_));
  shape.back() = n_;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = CountOf(shape) / n_;
  args.a = a.GetTensorRawData();
  args.c = run.Output(shape);
  if (args.m == 0) return;
  run.Compute(*plan_, args, static_cast<double>(args.m) * static_cast<double>(n_) * static_cast<double>(k_));
}

}  // namespace intact::onnxruntime
