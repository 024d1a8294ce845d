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
                                                                           const GroupedWeights& packed) {
  std::unique_ptr<PortableGroupedEngine> engine(new PortableGroupedEngine(problem));
  const int64_t groups = engine->FirstGroup(problem.experts, 0);
  const int64_t given_minimums = problem.has_b_minimums ? groups : 0;
  if (!engine->minimums_.Resize(static_cast<size_t>(given_minimums)) ||
      !engine->weights_.Resize(static_cast<size_t>(groups * engine->group_pairs())) ||
      !engine->scales_.Resize(static_cast<size_t>(groups))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for packed weights"};
  }
  const GroupedColumns columns = packed.Unpacked(problem);
  engine->Pack(columns.View(problem));
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
      if (problem_.has_b_minimums) minimums_[static_cast<size_t>(place)][column] = own.Minimum(g, n);
      Pair* const pairs = weights_.data() + place * group_pairs();
      for (int64_t j = 0; j < problem_.GroupDepth(g); ++j) {
        pairs[j / 2][column][static_cast<size_t>(j % 2)] =
            static_cast<int16_t>(own.At(g * problem_.group + j, n) - zero_point);
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
