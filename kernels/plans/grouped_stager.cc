#include "kernels/plans/grouped_stager.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/types.h"
#include "kernels/problem/access.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

Error GroupedStager::MakeKernels(const GroupedProblem& problem, core::Isa isa) {
  constexpr int kUnit = 64;
  problem_ = &problem;
  chunk_rows_ = std::min<int64_t>(RowsPerBlock(problem.padded_k(), kUnit), 8 * kUnit);
  if (!problem.IsDynamic()) return {};
  ASSIGN_OR_RETURN(quantizer_, Quantizer::Create(isa, problem.a_type, problem.a_source_type));
  return {};
}

// A cache line more than the row, so that rows map to different sets of L1.
int64_t GroupedStager::stride_bytes() const { return problem_->padded_k() + 64; }

GroupedStager::Offsets GroupedStager::OffsetsOf(int64_t rows) const {
  const auto after = [](int64_t offset, int64_t count, size_t size) {
    return offset + RoundUp(count * static_cast<int64_t>(size), 64);
  };
  Offsets offsets = {};
  offsets.values = rows * stride_bytes();
  offsets.scales = after(offsets.values, rows * problem_->groups(), sizeof(GroupedValues));
  offsets.quantized = after(offsets.scales, rows, sizeof(float));
  offsets.end = after(offsets.quantized, problem_->groups(), sizeof(RowValues));
  return offsets;
}

GroupedRows GroupedStager::Stage(const intact_grouped_args& args, int64_t begin, int64_t count,
                                 uint8_t* scratch) const noexcept {
  const GroupedProblem& problem = *problem_;
  const int64_t groups = problem.groups();
  const int64_t x_stride = (args.a_stride == 0 ? problem.k : args.a_stride) * problem.a_bytes();
  const Offsets offsets = OffsetsOf(count);
  auto* const all_values = reinterpret_cast<GroupedValues*>(scratch + offsets.values);
  auto* const scales = reinterpret_cast<float*>(scratch + offsets.scales);
  auto* const quantized = reinterpret_cast<RowValues*>(scratch + offsets.quantized);
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* const a = scratch + i * stride_bytes();
    GroupedValues* const values = all_values + i * groups;
    if (problem.IsDynamic()) {
      Quantize(static_cast<const uint8_t*>(args.a) + (begin + i) * x_stride, a, values, scales + i,
               quantized);
    } else {
      CopyGiven(args, begin + i, a, values, scales + i);
    }
    std::memset(a + problem.k, 0, static_cast<size_t>(problem.padded_k() - problem.k));
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t depth = problem.GroupDepth(g);
      const int64_t sum = Sum(a + g * problem.group, depth) - depth * values[g].zero_point;
      values[g].centered_sum = static_cast<int32_t>(sum);  // modulo 2³²
      values[g].float_sum = static_cast<float>(sum);
    }
  }
  return {scratch, stride_bytes(), all_values, scales, count};
}

void GroupedStager::Quantize(const uint8_t* x, uint8_t* a, GroupedValues* values, float* scale,
                             RowValues* quantized) const noexcept {
  const GroupedProblem& problem = *problem_;
  const int64_t groups = problem.groups();
  *scale = 1.0f;
  if (!problem.has_group_scales) {
    quantizer_.QuantizeRows(RowMap(x, 0), 0, 1, problem.k, a, problem.k, quantized);
    std::fill_n(values, groups, GroupedValues{quantized->zero_point, 0, 1.0f});
    *scale = quantized->scale;
    return;
  }
  // Groups are quantized as short rows, the last one by itself if it is shorter.
  const int64_t whole = problem.k / problem.group;
  const RowMap rows(x, problem.group * problem.a_bytes());
  quantizer_.QuantizeRows(rows, 0, whole, problem.group, a, problem.group, quantized);
  if (whole != groups) {
    quantizer_.QuantizeRows(rows, whole, groups, problem.k - whole * problem.group, a + whole * problem.group,
                            problem.group, quantized + whole);
  }
  for (int64_t g = 0; g < groups; ++g) values[g] = {quantized[g].zero_point, 0, quantized[g].scale};
}

void GroupedStager::CopyGiven(const intact_grouped_args& args, int64_t row, uint8_t* a, GroupedValues* values,
                              float* scale) const noexcept {
  const GroupedProblem& problem = *problem_;
  const int64_t groups = problem.groups();
  const int64_t stride = args.a_stride == 0 ? problem.k : args.a_stride;
  std::memcpy(a, static_cast<const uint8_t*>(args.a) + row * stride, static_cast<size_t>(problem.k));
  const auto zero_point = [&](int64_t i) {
    return args.a_zero_points == nullptr ? 0 : args.a_zero_points[i];
  };
  *scale = problem.has_group_scales ? 1.0f : args.a_scales[row];
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t i = row * groups + g;
    values[g] = problem.has_group_scales ? GroupedValues{zero_point(i), 0, args.a_scales[i]}
                                         : GroupedValues{zero_point(row), 0, 1.0f};
  }
}

int64_t GroupedStager::Sum(const uint8_t* a, int64_t depth) const noexcept {
  const bool is_signed = problem_->a_type == INTACT_S8;
  const __m128i shift = _mm_set1_epi8(is_signed ? static_cast<char>(0x80) : 0);
  const int64_t padded = RoundUp(depth, 16);
  __m128i sums = _mm_setzero_si128();
  for (int64_t i = 0; i < padded; i += 16) {
    const __m128i bytes = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)), shift);
    sums = _mm_add_epi64(sums, _mm_sad_epu8(bytes, _mm_setzero_si128()));
  }
  const int64_t sum = _mm_cvtsi128_si64(sums) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums));
  return is_signed ? sum - 128 * padded : sum;
}

bool GroupedStager::HasScale(const GroupedRows& rows, int64_t i) const noexcept {
  if (!problem_->has_group_scales) return !std::isnan(rows.scales[i]);
  const int64_t groups = problem_->groups();
  return std::none_of(rows.values + i * groups, rows.values + (i + 1) * groups,
                      [](const GroupedValues& group) { return std::isnan(group.scale); });
}

}  // namespace intact::kernels
