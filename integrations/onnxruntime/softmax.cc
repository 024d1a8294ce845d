#include "softmax.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

namespace intact::onnxruntime {
namespace {

constexpr size_t kRows = 8;          // added side by side: an addition waits for the one before it in its row
constexpr float kNear = 0x1p-12f;    // to a tie
constexpr float kMostFactor = 1024;  // beyond it, quotients of float32 are wrong by more than kNear

// Rows of a tensor.
struct Rows {
  const uint8_t* x;
  uint8_t* y;
  const float* table;  // QLinearSoftmax::Table
  int64_t elements;    // of a row
  float factor;
  int32_t zero_point;
  uint8_t shift;  // of the outputs
};

struct Row {
  const uint8_t* x;
  int smallest, largest;
  const float* table;  // has the exponential of x at index x
  float sum;
};

// Sets the sums of `kCount` rows.
template <size_t kCount>
void Add(int64_t elements, Row* rows) {
  std::array<const uint8_t*, kCount> x;
  std::array<const float*, kCount> table;
  std::array<float, kCount> sums{};
  for (size_t r = 0; r < kCount; ++r) x[r] = rows[r].x, table[r] = rows[r].table;
  for (int64_t i = 0; i < elements; ++i)
    for (size_t r = 0; r < kCount; ++r) sums[r] += table[r][x[r][i]];
  for (size_t r = 0; r < kCount; ++r) rows[r].sum = sums[r];
}

// The outputs of bytes [begin, end).
void Divide(const Rows& rows, const Row& row, int begin, int end, ByteTable* outputs) {
  for (int b = begin; b < end; ++b) {
    const double quotient = double{row.table[b]} * rows.factor / row.sum;
    (*outputs)[static_cast<size_t>(b)] =
        static_cast<uint8_t>(std::min(static_cast<int32_t>(std::nearbyint(quotient)) + rows.zero_point, 255));
  }
}

// Divides in float32. Quotients near a tie are divided again. May write outputs of seven bytes more.
[[gnu::target("avx2")]] void DivideAvx2(const Rows& rows, const Row& row, int begin, int end,
                                        ByteTable* outputs) {
  constexpr int kLanes = 8;
  const __m256 tie = _mm256_set1_ps(0.5f - kNear), sign = _mm256_set1_ps(-0.0f);
  const __m256 factor = _mm256_set1_ps(rows.factor), sum = _mm256_set1_ps(row.sum);
  const __m256i zero_point = _mm256_set1_epi32(rows.zero_point);
  for (int b = begin / kLanes * kLanes; b < end; b += kLanes) {
    const __m256 quotient = _mm256_div_ps(_mm256_mul_ps(_mm256_loadu_ps(row.table + b), factor), sum);
    const __m256i rounded = _mm256_cvtps_epi32(quotient);
    const __m256 error = _mm256_andnot_ps(sign, _mm256_sub_ps(quotient, _mm256_cvtepi32_ps(rounded)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(error, tie, _CMP_NLT_UQ)) != 0) {
      Divide(rows, row, b, b + kLanes, outputs);
      continue;
    }
    const __m256i sums = _mm256_add_epi32(rounded, zero_point);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(outputs->data() + b), _mm_packus_epi16(words, words));
  }
}

// Rows [begin, end), at most kRows.
void ComputeBlock(const Rows& rows, int64_t begin, int64_t end, decltype(&Divide) divide,
                  LookUpFunction look_up) {
  std::array<Row, kRows> block;
  const auto count = static_cast<size_t>(end - begin);
  for (size_t r = 0; r < count; ++r) {
    const uint8_t* const x = rows.x + (begin + static_cast<int64_t>(r)) * rows.elements;
    uint8_t smallest = 255, largest = 0;
    for (int64_t i = 0; i < rows.elements; ++i) {
      smallest = std::min(smallest, x[i]);
      largest = std::max(largest, x[i]);
    }
    block[r] = {x, smallest, largest, rows.table + 255 - largest, 0};
  }
  if (count == kRows) {
    Add<kRows>(rows.elements, block.data());
  } else {
    for (size_t r = 0; r < count; ++r) Add<1>(rows.elements, &block[r]);
  }
  ByteTable outputs{};
  for (size_t r = 0; r < count; ++r) {
    divide(rows, block[r], block[r].smallest, block[r].largest + 1, &outputs);
    if (rows.shift != 0) std::ranges::for_each(outputs, [&](uint8_t& output) { output ^= rows.shift; });
    look_up(outputs, block[r].x, rows.y + (block[r].x - rows.x), rows.elements);
  }
}

}  // namespace

QLinearSoftmax::QLinearSoftmax(const Node& node, const Context& context, int64_t since_version)
    : has_avx2_(HasAvx2(context.settings)),
      look_up_(ChooseLookUp(context.settings)),
      axis_(node.Integer("axis", since_version < 13 ? 1 : -1)),
      x_scale_(node.Scale(1)),
      y_factor_(std::floor(1 / node.Scale(3))) {
  const intact_type type = node.Type(0, {INTACT_U8, INTACT_S8});
  node.OutputType({type});
  y_zero_point_ = node.ZeroPoint(4, type);
  if (type == INTACT_S8) {
    if (!context.is_moved_to_u8 || !context.is_output_moved_to_u8)
      throw Refusal("X: is int8, and ONNX Runtime does not move it and the output to uint8; expected uint8");
    shift_ = 128;
    y_zero_point_ += 128;
  }
  const auto dimensions = static_cast<int64_t>(node.ShapeOf(0).size());
  if (dimensions == 0)
    throw Refusal("X: has an unknown number of dimensions; expected it known before the run");
  if (axis_ < 0) axis_ += dimensions;
  if (since_version >= 13 && axis_ != dimensions - 1)
    throw Refusal("axis: is " + std::to_string(axis_) + "; expected the last of " +
                  std::to_string(dimensions) + " dimensions");
  if (axis_ < 0 || axis_ >= dimensions)
    throw Refusal("axis: is " + std::to_string(axis_) + "; expected one of " + std::to_string(dimensions) +
                  " dimensions");
  if (!(x_scale_ > 0))
    throw Refusal("X_scale: is " + std::to_string(x_scale_) + "; expected a positive number");
  if (!(y_factor_ >= 0 && y_factor_ <= kMostFactor))
    throw Refusal("y_scale: is " + std::to_string(node.Scale(3)) + "; expected at least 1/1024");
}

QLinearSoftmax::Table QLinearSoftmax::TableOf(int64_t row_elements) const {
  const double scale = x_scale_;
  const double most = std::log(std::numeric_limits<float>::max() / static_cast<float>(row_elements));
  const double shift = std::max(0.0, most - 5) / scale;
  Table table{};
  for (size_t b = 0; b < 256; ++b)
    table[b] = static_cast<float>(std::exp((static_cast<double>(b) - 255 + shift) * scale));
  return table;
}

void QLinearSoftmax::Compute(Run& run) const {
  const auto x = run.Input(0);
  const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
  auto* const y = static_cast<uint8_t*>(run.Output(shape));
  const int64_t elements = CountOf(shape);
  if (elements == 0) return;
  if (axis_ >= std::ssize(shape))
    throw std::invalid_argument("X: has " + std::to_string(shape.size()) +
                                " dimensions; expected more than " + std::to_string(axis_));
  const int64_t of_row = CountOf(std::span(shape).subspan(static_cast<size_t>(axis_)));
  const Table table = TableOf(of_row);
  const auto* const source = static_cast<const uint8_t*>(x.GetTensorRawData());
  uint8_t* const moved =
      shift_ == 0 ? nullptr : static_cast<uint8_t*>(run.Allocate(static_cast<size_t>(elements)));
  const Rows rows{
      moved == nullptr ? source : moved, y, table.data(), of_row, y_factor_, y_zero_point_, shift_};
  const int64_t count = elements / of_row;
  constexpr auto kBlock = static_cast<int64_t>(kRows);
  run.ForEach((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(count, begin + kBlock);
    if (moved != nullptr) {
      std::transform(source + begin * of_row, source + end * of_row, moved + begin * of_row,
                     [&](uint8_t byte) { return static_cast<uint8_t>(byte ^ shift_); });
    }
    ComputeBlock(rows, begin, end, has_avx2_ ? DivideAvx2 : Divide, look_up_);
  });
}

}  // namespace intact::onnxruntime
