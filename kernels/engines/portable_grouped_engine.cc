#include "kernels/engines/portable_grouped_engine.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/types.h"
#include "kernels/engines/portable_engine.h"

namespace intact::kernels {

Result<std::unique_ptr<const GroupedEngine>> PortableGroupedEngine::Create(const GroupedProblem& problem,
                                                                           const GroupedWeightView& weights) {
  std::unique_ptr<PortableGroupedEngine> engine(new PortableGroupedEngine(problem));
  const int64_t groups = engine->FirstGroup(problem.experts, 0);
  const int64_t given_zero_points = problem.has_b_zero_points ? groups : 0;
  const int64_t given_minimums = problem.has_b_minimums ? groups : 0;
  if (!engine->minimums_.Resize(static_cast<size_t>(given_minimums)) ||
      !engine->zero_points_.Resize(static_cast<size_t>(given_zero_points)) ||
      !engine->weights_.Resize(static_cast<size_t>(groups * engine->group_pairs())) ||
      !engine->scales_.Resize(static_cast<size_t>(groups))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for packed weights"};
  }
  engine->zero_point_ = CommonZeroPoint(problem, weights);
  engine->minimum_type_ = MinimumType(problem, weights);
  engine->Pack(weights);
  return std::unique_ptr<const GroupedEngine>(std::move(engine));
}

void PortableGroupedEngine::Pack(const GroupedWeightView& weights) {
  const int64_t groups = problem_.groups();
  std::memset(weights_.data(), 0, weights_.bytes());
  std::memset(scales_.data(), 0, scales_.bytes());
  for (int64_t i = 0; i < problem_.columns(); ++i) {
    const int64_t expert = i / problem_.n, n = i % problem_.n;
    const GroupedWeightView own = weights.Expert(expert);
    const auto column = static_cast<size_t>(n % kPanelColumns);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t place = FirstGroup(expert, n / kPanelColumns) + g;
      scales_[static_cast<size_t>(place)][column] = own.Scale(g, n);
      const int32_t zero_point = own.ZeroPoint(g, n);
      if (problem_.has_b_zero_points) {
        zero_points_[static_cast<size_t>(place)][column] = static_cast<uint8_t>(zero_point);
      }
      if (problem_.has_b_minimums) minimums_[static_cast<size_t>(place)][column] = own.Minimum(g, n);
      Pair* const pairs = weights_.data() + place * group_pairs();
      for (int64_t j = 0; j < problem_.GroupDepth(g); ++j) {
        pairs[j / 2][column][static_cast<size_t>(j % 2)] =
            static_cast<int16_t>(own.At(g * problem_.group + j, n) - zero_point);
      }
    }
  }
}

Result<std::shared_ptr<const GroupedWeights>> PortableGroupedEngine::Weights() const {
  GroupedColumns columns(problem_);
  Unpack(&columns);
  ASSIGN_OR_RETURN(std::shared_ptr<const GroupedWeights> packed,
                   GroupedWeights::Pack(problem_, columns.View(problem_), kPackingIsa));
  return packed;
}

void PortableGroupedEngine::Unpack(GroupedColumns* to) const noexcept {
  const int64_t groups = problem_.groups();
  const int scale_bytes = core::BytesOf(problem_.scale_type);
  for (int64_t i = 0; i < problem_.columns(); ++i) {
    const int64_t expert = i / problem_.n, n = i % problem_.n;
    const auto column = static_cast<size_t>(n % kPanelColumns);
    for (int64_t g = 0; g < groups; ++g) {
      const auto place = static_cast<size_t>(FirstGroup(expert, n / kPanelColumns) + g);
      core::Encode(problem_.scale_type, scales_[place][column],
                   to->scales.data() + (i * groups + g) * scale_bytes);
      if (problem_.has_b_minimums) {
        to->minimums[static_cast<size_t>(i * groups + g)] = minimums_[place][column];
      }
      int32_t zero_point = problem_.DefaultZeroPoint();
      if (problem_.has_b_zero_points) {
        const uint8_t stored = zero_points_[place][column];
        zero_point = problem_.codes().is_signed() ? int32_t{static_cast<int8_t>(stored)} : int32_t{stored};
        to->zero_points[static_cast<size_t>(i * groups + g)] = stored;
      }
      const Pair* const pairs = weights_.data() + static_cast<int64_t>(place) * group_pairs();
      for (int64_t j = 0; j < problem_.GroupDepth(g); ++j) {
        const int32_t weight = pairs[j / 2][column][static_cast<size_t>(j % 2)] + zero_point;
        problem_.StoreCode(weight, g * problem_.group + j, to->weights.data() + i * problem_.column_bytes());
      }
    }
  }
}

PortableGroupedEngine::Panel<int32_t> PortableGroupedEngine::GroupSums(const uint8_t* a, int32_t a_zero_point,
                                                                       const Pair* pairs) const noexcept {
  const auto centered = [&](int64_t i) {
    return static_cast<uint32_t>(core::DecodeInt8(problem_.a_type, a[i]) - a_zero_point);
  };
  Panel<int32_t> sums = {};
  const int64_t count = group_pairs();
  for (int64_t pair = 0; pair < count; ++pair) {
    const uint32_t both = (centered(2 * pair) & 0xffff) | centered(2 * pair + 1) << 16;
    const __m128i activations = _mm_set1_epi32(static_cast<int>(both));
    for (size_t i = 0; i < sums.size(); i += 4) {
      auto* const vector = reinterpret_cast<__m128i*>(&sums[i]);
      const __m128i products =
          _mm_madd_epi16(activations, _mm_load_si128(reinterpret_cast<const __m128i*>(&pairs[pair][i])));
      _mm_storeu_si128(vector, _mm_add_epi32(_mm_loadu_si128(vector), products));
    }
  }
  return sums;
}

void PortableGroupedEngine::Run(const GroupedRows& rows, int64_t expert, int64_t column_begin,
                                int64_t column_end, uint8_t* c, int64_t c_stride_bytes,
                                uint8_t* /*scratch*/) const noexcept {
  const int64_t groups = problem_.groups();
  const float* const bias = problem_.Bias(expert);
  for (int64_t column = column_begin; column < column_end; column += kPanelColumns) {
    const int64_t first = FirstGroup(expert, column / kPanelColumns);
    const auto columns = static_cast<size_t>(std::min<int64_t>(kPanelColumns, column_end - column));
    for (int64_t row = 0; row < rows.count; ++row) {
      Panel<float> f = {};
      for (int64_t g = 0; problem_.has_b_minimums && g < groups; ++g) {
        const GroupedValues& own = rows.values[row * groups + g];
        const float factor = own.scale * own.float_sum;
        const Panel<float>& minimums = minimums_[static_cast<size_t>(first + g)];
        for (size_t i = 0; i < columns; ++i) f[i] = std::fma(factor, minimums[i], f[i]);
      }
      for (int64_t g = 0; g < groups; ++g) {
        const GroupedValues& own = rows.values[row * groups + g];
        const Panel<int32_t> sums = GroupSums(rows.a + row * rows.stride_bytes + g * problem_.group,
                                              own.zero_point, weights_.data() + (first + g) * group_pairs());
        const Panel<float>& scales = scales_[static_cast<size_t>(first + g)];
        for (size_t i = 0; i < columns; ++i) {
          const float scale = own.scale * scales[i];
          f[i] = std::fma(static_cast<float>(sums[i]), scale, f[i]);
        }
      }
      for (size_t i = 0; i < columns; ++i) {
        f[i] *= rows.scales[row];
        if (bias != nullptr) f[i] += bias[static_cast<size_t>(column) + i];
        StoreFloat(problem_.c_type, ClampTo(problem_.bounds, f[i]), i,
                   c + row * c_stride_bytes + column * core::BytesOf(problem_.c_type));
      }
    }
  }
}

}  // namespace intact::kernels
