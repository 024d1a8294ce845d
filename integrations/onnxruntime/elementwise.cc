#include "elementwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <utility>

namespace intact::onnxruntime {
namespace {

inline float Read(Coding coding, uint8_t byte) {
  return static_cast<float>((byte ^ coding.shift) - coding.offset);
}

// The byte of the integer nearest to `value`.
inline uint8_t Write(Coding coding, float value) {
  const auto low = static_cast<float>(-coding.offset), high = static_cast<float>(255 - coding.offset);
  value = value < low ? low : value;
  value = value > high ? high : value;
  constexpr float kToNearest = 12582912.0f;  // 1.5·2^23: the sum's last bit is worth 1
  const int32_t rounded = std::bit_cast<int32_t>(value + kToNearest) - std::bit_cast<int32_t>(kToNearest);
  return static_cast<uint8_t>(rounded + coding.offset) ^ coding.shift;
}

// y[i] = x[i]·ratio + fixed
[[gnu::always_inline]] inline void AddConstant(Coding coding, const uint8_t* __restrict x, float ratio,
                                               float fixed, uint8_t* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = Write(coding, std::fma(Read(coding, x[i]), ratio, fixed));
}

// y[i] = value·value_ratio + (x[i]·ratio + fixed)
[[gnu::always_inline]] inline void AddToConstant(Coding coding, float value, float value_ratio,
                                                 const uint8_t* __restrict x, float ratio, float fixed,
                                                 uint8_t* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float partial = std::fma(Read(coding, x[i]), ratio, fixed);
    y[i] = Write(coding, std::fma(value, value_ratio, partial));
  }
}

// y[i] = a[i]·a_ratio + (b[i]·b_ratio + fixed)
[[gnu::always_inline]] inline void AddVectors(Coding coding, const uint8_t* __restrict a, float a_ratio,
                                              const uint8_t* __restrict b, float b_ratio, float fixed,
                                              uint8_t* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float partial = std::fma(Read(coding, b[i]), b_ratio, fixed);
    y[i] = Write(coding, std::fma(Read(coding, a[i]), a_ratio, partial));
  }
}

// y[i] = (x[i] − zero_point)·factor·ratio + fixed
[[gnu::always_inline]] inline void MulByConstant(Coding coding, const uint8_t* __restrict x, float zero_point,
                                                 float factor, float ratio, float fixed,
                                                 uint8_t* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = Write(coding, (Read(coding, x[i]) - zero_point) * factor * ratio + fixed);
}

// y[i] = (a[i] − a_zero_point)·(b[i] − b_zero_point)·ratio + fixed
[[gnu::always_inline]] inline void MulVectors(Coding coding, const uint8_t* __restrict a, float a_zero_point,
                                              const uint8_t* __restrict b, float b_zero_point, float ratio,
                                              float fixed, uint8_t* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float product = (Read(coding, a[i]) - a_zero_point) * (Read(coding, b[i]) - b_zero_point);
    y[i] = Write(coding, product * ratio + fixed);
  }
}

// The loops above, compiled for any CPU or for AVX2 and FMA.
struct Loops {
  decltype(&AddConstant) add_constant;
  decltype(&AddToConstant) add_to_constant;
  decltype(&AddVectors) add_vectors;
  decltype(&MulByConstant) mul_by_constant;
  decltype(&MulVectors) mul_vectors;
};
[[gnu::target("avx2,fma")]] void AddConstantAvx2(Coding coding, const uint8_t* __restrict x, float ratio,
                                                 float fixed, uint8_t* __restrict y, int64_t count) {
  AddConstant(coding, x, ratio, fixed, y, count);
}
[[gnu::target("avx2,fma")]] void AddToConstantAvx2(Coding coding, float value, float value_ratio,
                                                   const uint8_t* __restrict x, float ratio, float fixed,
                                                   uint8_t* __restrict y, int64_t count) {
  AddToConstant(coding, value, value_ratio, x, ratio, fixed, y, count);
}
[[gnu::target("avx2,fma")]] void AddVectorsAvx2(Coding coding, const uint8_t* __restrict a, float a_ratio,
                                                const uint8_t* __restrict b, float b_ratio, float fixed,
                                                uint8_t* __restrict y, int64_t count) {
  AddVectors(coding, a, a_ratio, b, b_ratio, fixed, y, count);
}
[[gnu::target("avx2,fma")]] void MulByConstantAvx2(Coding coding, const uint8_t* __restrict x,
                                                   float zero_point, float factor, float ratio, float fixed,
                                                   uint8_t* __restrict y, int64_t count) {
  MulByConstant(coding, x, zero_point, factor, ratio, fixed, y, count);
}
[[gnu::target("avx2,fma")]] void MulVectorsAvx2(Coding coding, const uint8_t* __restrict a,
                                                float a_zero_point, const uint8_t* __restrict b,
                                                float b_zero_point, float ratio, float fixed,
                                                uint8_t* __restrict y, int64_t count) {
  MulVectors(coding, a, a_zero_point, b, b_zero_point, ratio, fixed, y, count);
}
constexpr Loops kPortable = {AddConstant, AddToConstant, AddVectors, MulByConstant, MulVectors},
                kAvx2 = {AddConstantAvx2, AddToConstantAvx2, AddVectorsAvx2, MulByConstantAvx2,
                         MulVectorsAvx2};

// "1e-07"
std::string InDigits(float value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

// If A and B have one shape, except perhaps for the first extent, neither repeats elements along another dimension.
ElementOrder OrderOf(const Node& node) {
  const Shape a = node.ShapeOf(0), b = node.ShapeOf(3);
  const bool has_two_dimensions = !a.empty() && a.size() <= 2 && !b.empty() && b.size() <= 2;
  const bool is_of_one_shape =
      !a.empty() && a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1) &&
      std::all_of(a.begin() + 1, a.end(), [](int64_t extent) { return extent >= 0; });
  if (!has_two_dimensions && !is_of_one_shape) return ElementOrder::kBroadcast;
  return node.IsFromRun(0) && node.IsFromRun(3) ? ElementOrder::kElementwise : ElementOrder::kChannelsFirst;
}

}  // namespace

QLinearElementwise::QLinearElementwise(const Node& node, const Context& context)
    : has_avx2_(HasAvx2(context.settings)), order_(OrderOf(node)) {
  const intact_type type = node.Type(0, {INTACT_U8, INTACT_S8});
  node.Type(3, {type});
  node.OutputType({type});
  const int32_t raise = context.is_moved_to_u8 ? 128 : 0;
  const auto zero_point = [&](size_t input) {
    return static_cast<float>(node.ZeroPoint(input, type) + raise);
  };
  a_scale_ = node.Scale(1);
  b_scale_ = node.Scale(4);
  y_scale_ = node.Scale(6);
  a_zero_point_ = zero_point(2);
  b_zero_point_ = zero_point(5);
  y_zero_point_ = zero_point(7);
  coding_ = {type == INTACT_S8 ? uint8_t{128} : uint8_t{0},
             type == INTACT_S8 && !context.is_moved_to_u8 ? 128 : 0};
  for (size_t i = 0; i < 2; ++i) {
    if (node.IsFromRun(3 * i)) continue;
    const Constant constant = node.ConstantOf(3 * i, type);
    const auto elements = constant.As<uint8_t>();
    constants_[i] = {constant.shape, {elements.begin(), elements.end()}};
  }
  if (constants_[0] && constants_[1])
    throw Refusal("A: is a constant, and B too; expected one that each run gives");
}

void QLinearElementwise::CheckRange(double largest) const {
  if (!(largest < 2147483648.0))
    throw Refusal("C_scale: is " + InDigits(y_scale_) +
                  ", which makes results that leave int32; expected a larger scale");
}

QLinearAdd::QLinearAdd(const Node& node, const Context& context)
    : QLinearElementwise(node, context), a_ratio_(a_scale_ / y_scale_), b_ratio_(b_scale_ / y_scale_) {
  fixed_ = y_zero_point_ - std::fma(a_ratio_, a_zero_point_, b_ratio_ * b_zero_point_);
  exchanged_fixed_ = y_zero_point_ - std::fma(b_ratio_, b_zero_point_, a_ratio_ * a_zero_point_);
  CheckRange(255 * (std::fabs(double{a_ratio_}) + std::fabs(double{b_ratio_})) +
             std::max(std::fabs(double{fixed_}), std::fabs(double{exchanged_fixed_})));
}

QLinearMul::QLinearMul(const Node& node, const Context& context)
    : QLinearElementwise(node, context), ratio_(a_scale_ * b_scale_ / y_scale_) {
  CheckRange(255.0 * 255.0 * std::fabs(double{ratio_}) + 255);
}

std::vector<QLinearElementwise::Dimension> QLinearElementwise::DimensionsOf(const Shape& a, const Shape& b,
                                                                            Shape* output) {
  std::vector<Dimension> dimensions;
  const size_t count = std::max(a.size(), b.size());
  output->assign(count, 1);
  for (size_t i = 0; i < count; ++i) {
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      throw std::invalid_argument("B: has extent " + std::to_string(of_b) + " in dimension " +
                                  std::to_string(count - 1 - i) + " of the output; expected 1 or " +
                                  std::to_string(of_a));
    const int64_t extent = of_a == 1 ? of_b : of_a;
    (*output)[count - 1 - i] = extent;
    if (extent == 1) continue;
    const Dimension next{extent, of_a == 1 ? 0 : 1, of_b == 1 ? 0 : 1};
    if (!dimensions.empty() && dimensions.back().a_step == next.a_step &&
        dimensions.back().b_step == next.b_step) {
      dimensions.back().extent *= extent;
    } else {
      dimensions.push_back(next);
    }
  }
  if (dimensions.empty()) dimensions.push_back({1, 1, 1});
  return dimensions;
}

bool QLinearElementwise::IsExchanged(const Shape& a, const Shape& b) {
  const auto extent = [](const Shape& shape, size_t from_last) {
    return from_last < shape.size() ? shape[shape.size() - 1 - from_last] : 1;
  };
  const size_t count = std::max<size_t>(std::min(a.size(), b.size()), 1);
  for (size_t i = 0; i < count; ++i)
    if (extent(a, i) != 1 || extent(b, i) != 1) return extent(a, i) == 1;
  return true;
}

void QLinearAdd::ComputeSpan(const Dimension& span, bool is_exchanged, const uint8_t* a, const uint8_t* b,
                             uint8_t* y, int64_t count) const {
  struct Operand {
    const uint8_t* elements;
    float ratio;
    int64_t step;
  };
  Operand outer{a, a_ratio_, span.a_step}, inner{b, b_ratio_, span.b_step};
  if (is_exchanged) std::swap(outer, inner);
  const float fixed = is_exchanged ? exchanged_fixed_ : fixed_;
  const Loops& loops = has_avx2_ ? kAvx2 : kPortable;
  if (inner.step == 0) {
    loops.add_constant(coding_, outer.elements, outer.ratio,
                       std::fma(Read(coding_, *inner.elements), inner.ratio, fixed), y, count);
  } else if (outer.step == 0) {
    loops.add_to_constant(coding_, Read(coding_, *outer.elements), outer.ratio, inner.elements, inner.ratio,
                          fixed, y, count);
  } else {
    loops.add_vectors(coding_, outer.elements, outer.ratio, inner.elements, inner.ratio, fixed, y, count);
  }
}

void QLinearMul::ComputeSpan(const Dimension& span, bool, const uint8_t* a, const uint8_t* b, uint8_t* y,
                             int64_t count) const {
  const Loops& loops = has_avx2_ ? kAvx2 : kPortable;
  if (span.a_step != 0 && span.b_step != 0) {
    loops.mul_vectors(coding_, a, a_zero_point_, b, b_zero_point_, ratio_, y_zero_point_, y, count);
  } else if (span.a_step != 0) {
    loops.mul_by_constant(coding_, a, a_zero_point_, Read(coding_, *b) - b_zero_point_, ratio_, y_zero_point_,
                          y, count);
  } else {
    loops.mul_by_constant(coding_, b, b_zero_point_, Read(coding_, *a) - a_zero_point_, ratio_, y_zero_point_,
                          y, count);
  }
}

void QLinearElementwise::Compute(Run& run) const {
  std::array<Shape, 2> shapes;
  std::array<const uint8_t*, 2> operands;
  for (size_t i = 0; i < 2; ++i) {
    if (constants_[i]) {
      shapes[i] = constants_[i]->shape;
      operands[i] = constants_[i]->elements.data();
    } else {
      const auto given = run.Input(3 * i);
      shapes[i] = given.GetTensorTypeAndShapeInfo().GetShape();
      operands[i] = static_cast<const uint8_t*>(given.GetTensorRawData());
    }
  }
  const auto& [a_shape, b_shape] = shapes;
  const uint8_t* const a = operands[0];
  const uint8_t* const b = operands[1];
  Shape shape;
  const std::vector<Dimension> dimensions = DimensionsOf(a_shape, b_shape, &shape);
  auto* const y = static_cast<uint8_t*>(run.Output(shape));
  const int64_t elements = CountOf(shape);
  if (elements == 0) return;

  const Dimension& span = dimensions.front();
  const bool is_exchanged = IsExchanged(a_shape, b_shape);
  const int64_t parts = (elements + kElementsOfPart - 1) / kElementsOfPart;
  run.ForEach(parts, [&](int64_t part) {
    const int64_t end = std::min((part + 1) * kElementsOfPart, elements);
    for (int64_t at = part * kElementsOfPart; at < end;) {
      // Output `at` is element `inside` of a span; the outer dimensions say where its operands begin.
      const int64_t inside = at % span.extent;
      int64_t outer = at / span.extent;
      int64_t a_begin = inside * span.a_step, b_begin = inside * span.b_step;
      int64_t a_size = span.a_step != 0 ? span.extent : 1, b_size = span.b_step != 0 ? span.extent : 1;
      for (const Dimension& dimension : std::span(dimensions).subspan(1)) {
        const int64_t index = outer % dimension.extent;
        outer /= dimension.extent;
        if (dimension.a_step != 0) a_begin += index * std::exchange(a_size, a_size * dimension.extent);
        if (dimension.b_step != 0) b_begin += index * std::exchange(b_size, b_size * dimension.extent);
      }
      const int64_t count = std::min(span.extent - inside, end - at);
      ComputeSpan(span, is_exchanged, a + a_begin, b + b_begin, y + at, count);
      at += count;
    }
  });
}

}  // namespace intact::onnxruntime
