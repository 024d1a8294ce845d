#include "kernels/problem/grouped_problem.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "kernels/problem/checks.h"

namespace intact::kernels {

namespace {

std::string TextOf(const char* field, const GroupedProblem& problem, const GroupPlace& place) {
  return std::string(field) + " of " +
         (problem.experts == 1 ? "" : "expert " + std::to_string(place.expert) + ", ") + "column " +
         std::to_string(place.n) + ", group " + std::to_string(place.g);
}

Error CheckTypes(const intact_grouped_desc& desc) {
  if (!IsOneOf(desc.group, {0, 16, 32, 64, 128, 256})) {
    return Unexpected("group", desc.group, "16, 32, 64, 128, 256, or 0 for all depths");
  }
  if (!IsOneOf(desc.b_type, core::kGroupedWeightTypes)) {
    return Unexpected("b_type", desc.b_type, NamesOf(core::kGroupedWeightTypes));
  }
  const std::string floats = NamesOf(core::kSourceTypes);
  if (desc.a_source_type != INTACT_TYPE_NONE && !IsOneOf(desc.a_source_type, core::kSourceTypes)) {
    return Unexpected("a_source_type", desc.a_source_type, "INTACT_TYPE_NONE, " + floats);
  }
  if (!IsOneOf(desc.a_granularity, {INTACT_GRANULARITY_ROWS, INTACT_GRANULARITY_GROUPS})) {
    return Unexpected("a_granularity", desc.a_granularity, "an intact_granularity");
  }
  if (!IsOneOf(desc.scale_type, core::kSourceTypes)) return Unexpected("scale_type", desc.scale_type, floats);
  if (!IsOneOf(desc.c_type, core::kSourceTypes)) return Unexpected("c_type", desc.c_type, floats);
  return {};
}

core::WeightFormat FormatOf(const intact_grouped_desc& desc) {
  return {static_cast<intact_type>(desc.b_type), desc.group == 0 ? desc.k : desc.group,
          static_cast<intact_type>(desc.scale_type), desc.b_zero_points != nullptr,
          desc.b_minimums != nullptr};
}

// The bytes of a column, if its depths are adjacent.
int64_t ColumnBytes(const intact_grouped_desc& desc) { return FormatOf(desc).ColumnBytes(desc.k); }

// The limits of n, k and n·k, and the strides of B.
Error CheckShape(const intact_grouped_desc& desc) {
  const bool is_packed = FormatOf(desc).IsPacked();
  intact_gemm_desc shape = INTACT_GEMM_DESC_INIT;
  shape.n = desc.n;
  shape.k = desc.k;
  shape.b_stride_k = is_packed || desc.b_stride_k == 0 ? 1 : desc.b_stride_k;
  shape.b_stride_n = is_packed || desc.b_stride_n == 0 ? desc.k : desc.b_stride_n;
  if (const auto checked = CheckGemm(shape, &desc); !checked) return checked.error();
  constexpr int64_t kMostExperts = 1 << 16, kMostWeights = int64_t{1} << 40;
  if (desc.experts < 1 || desc.experts > kMostExperts) {
    return Unexpected("experts", desc.experts, "1 to " + std::to_string(kMostExperts));
  }
  const int64_t weights = desc.experts * desc.n * desc.k;
  if (weights > kMostWeights) return Unexpected("experts·n·k", weights, "at most 2^40");
  if (!is_packed) return {};
  if (desc.b_stride_k != 0) {
    return Unexpected("b_stride_k", desc.b_stride_k, "0, because depths of 4-bit weights are adjacent");
  }
  return CheckStride("b_stride_n", desc.b_stride_n, ColumnBytes(desc));
}

// The fields that grouped weights share with a GEMM.
intact_linear_desc LinearOf(const intact_grouped_desc& desc) {
  static constexpr float kScale = 1.0f;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  const bool is_dynamic = desc.a_source_type != INTACT_TYPE_NONE;
  linear.a_type = desc.a_type;
  linear.c_type = desc.c_type;
  linear.activation = desc.activation;
  linear.clamp_min = desc.clamp_min;
  linear.clamp_max = desc.clamp_max;
  linear.scales = &kScale;
  linear.scale_count = 1;
  linear.a_quantization = is_dynamic ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_ROWS;
  linear.a_source_type = desc.a_source_type;
  return linear;
}

// Appends the bias of each expert to `bias`.
Error ReadBias(const intact_grouped_desc& desc, std::vector<float>* bias) {
  RETURN_IF_ERROR(CheckStride("bias_stride_expert", desc.bias_stride_expert, 0));
  if (desc.bias_f32 == nullptr) return {};
  const int64_t stride = desc.bias_stride_expert == 0 ? desc.n : desc.bias_stride_expert;
  bias->reserve(static_cast<size_t>(desc.experts * desc.n));
  for (int64_t expert = 0; expert < desc.experts; ++expert) {
    for (int64_t n = 0; n < desc.n; ++n) {
      const int64_t i = expert * stride + n;
      if (!IsFinite(desc.bias_f32[i])) {
        return UnexpectedNumber("bias_f32[" + std::to_string(i) + "]", desc.bias_f32[i], "a finite value");
      }
      bias->push_back(desc.bias_f32[i]);
    }
  }
  return {};
}

constexpr int64_t kWidth = 255;  // the largest |a − za|, and the largest |b − zb|
constexpr int64_t kMostSum = std::numeric_limits<int32_t>::max();

// Checks that acc_g of a column is an int32 for all activations.
Error CheckSum(const GroupedProblem& problem, const GroupedWeightView& weights, const GroupPlace& place) {
  const int64_t depth = problem.GroupDepth(place.g);
  if (depth * kWidth * kWidth <= kMostSum) return {};
  int64_t positive = 0;
  int64_t negative = 0;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t weight =
        weights.At(place.g * problem.group + i, place.n) - weights.ZeroPoint(place.g, place.n);
    (weight > 0 ? positive : negative) += std::abs(weight);
  }
  // Symmetric activations have both signs. With a zero point, 255 is the distance of the two extremes.
  const int64_t most = problem.HasAZeroPoints() ? kWidth * std::max(positive, negative)
                                                : core::HighestOf(INTACT_S8) * (positive + negative);
  if (most <= kMostSum) return {};
  return {INTACT_OVERFLOW, TextOf("the sum", problem, place) + " can be " + std::to_string(most) +
                               "; expected at most 2147483647 for all activations"};
}

Error CheckGroup(const GroupedProblem& problem, const GroupedWeightView& weights, const GroupPlace& place) {
  const auto [expert, n, g] = place;
  RETURN_IF_ERROR(CheckGroupValues(problem, place, weights.ScaleBits(g, n), weights.ZeroPoint(g, n)));
  RETURN_IF_ERROR(CheckSum(problem, weights, place));
  return problem.has_b_minimums ? CheckMinimum(problem, place, weights.Minimum(g, n)) : Error();
}

}  // namespace

intact_grouped_desc NumbersOf(const intact_grouped_desc& desc) {
  intact_grouped_desc numbers = desc;
  numbers.struct_size = sizeof(desc);
  numbers.b_scales = numbers.b_zero_points = nullptr;
  numbers.bias_f32 = numbers.b_minimums = nullptr;
  numbers.b_stride_n = numbers.b_stride_k = numbers.b_stride_expert = numbers.bias_stride_expert = 0;
  numbers.scale_stride_n = numbers.scale_stride_g = numbers.scale_stride_expert = 0;
  numbers.max_isa = INTACT_ISA_ANY;
  return numbers;
}

Result<GroupedProblem> CheckGrouped(const intact_grouped_desc& desc) {
  RETURN_IF_ERROR(CheckTypes(desc));
  RETURN_IF_ERROR(CheckShape(desc));
  const intact_linear_desc linear = LinearOf(desc);
  RETURN_IF_ERROR(CheckClampBounds(linear));
  ASSIGN_OR_RETURN(LinearProblem checked, CheckLinear(linear, desc.n));
  GroupedProblem problem;
  static_cast<core::WeightFormat&>(problem) = FormatOf(desc);
  problem.desc = NumbersOf(desc);
  problem.experts = desc.experts;
  problem.n = desc.n;
  problem.k = desc.k;
  if (problem.has_b_zero_points && problem.has_b_minimums) {
    return InvalidArgument("b_zero_points and b_minimums are given; expected one of them to be NULL");
  }
  problem.a_type = checked.a_type;
  problem.a_source_type = checked.a_source_type;
  problem.has_group_scales = desc.a_granularity == INTACT_GRANULARITY_GROUPS;
  problem.c_type = checked.c_type;
  problem.bounds = checked.output.bounds;
  RETURN_IF_ERROR(ReadBias(desc, &problem.bias_f32));
  return problem;
}

Result<GroupedWeightView> CheckGroupedWeights(const intact_grouped_desc& desc, const GroupedProblem& problem,
                                              const void* b) {
  if (b == nullptr) return InvalidArgument("b is NULL");
  if (desc.b_scales == nullptr) return InvalidArgument("b_scales is NULL");
  RETURN_IF_ERROR(CheckStride("scale_stride_n", desc.scale_stride_n, 0));
  RETURN_IF_ERROR(CheckStride("scale_stride_g", desc.scale_stride_g, 0));
  RETURN_IF_ERROR(CheckStride("b_stride_expert", desc.b_stride_expert, 0));
  RETURN_IF_ERROR(CheckStride("scale_stride_expert", desc.scale_stride_expert, 0));
  const auto or_default = [](int64_t stride, int64_t value) { return stride == 0 ? value : stride; };
  GroupedWeightView view = {problem,
                            static_cast<const uint8_t*>(b),
                            or_default(desc.b_stride_n, ColumnBytes(desc)),
                            or_default(desc.b_stride_k, 1),
                            static_cast<const uint8_t*>(desc.b_scales),
                            static_cast<const uint8_t*>(desc.b_zero_points),
                            or_default(desc.scale_stride_n, problem.groups()),
                            or_default(desc.scale_stride_g, 1)};
  view.minimums = desc.b_minimums;
  if (problem.experts > 1) {
    const int64_t depths = problem.IsPacked() ? 0 : problem.k * view.stride_k;
    view.stride_expert = or_default(desc.b_stride_expert, std::max(problem.n * view.stride_n, depths));
    view.scale_stride_expert =
        or_default(desc.scale_stride_expert,
                   std::max(problem.n * view.scale_stride_n, problem.groups() * view.scale_stride_g));
  }
  RETURN_IF_ERROR(CheckGroups(problem, view));
  return view;
}

Error CheckGroups(const GroupedProblem& problem, const GroupedWeightView& view) {
  Error error;
  AllGroups(problem, view, [&](const GroupPlace& place, const GroupedWeightView& own) {
    error = CheckGroup(problem, own, place);
    return error.ok();
  });
  return error;
}

GroupedColumns::GroupedColumns(const GroupedProblem& problem) {
  const int64_t columns = problem.columns(), values = columns * problem.groups();
  weights.resize(static_cast<size_t>(columns * problem.column_bytes()));
  scales.resize(static_cast<size_t>(values * core::BytesOf(problem.scale_type)));
  if (problem.has_b_zero_points) zero_points.resize(static_cast<size_t>(values));
  if (problem.has_b_minimums) minimums.resize(static_cast<size_t>(values));
}

GroupedWeightView GroupedColumns::View(const GroupedProblem& problem) const {
  const int64_t n = problem.n, groups = problem.groups();
  GroupedWeightView view;
  view.format = problem;
  view.data = weights.data();
  view.stride_n = problem.column_bytes();
  view.stride_k = 1;
  view.scales = scales.data();
  view.zero_points = problem.has_b_zero_points ? zero_points.data() : nullptr;
  view.scale_stride_n = groups;
  view.scale_stride_g = 1;
  view.stride_expert = n * view.stride_n;
  view.scale_stride_expert = n * groups;
  view.minimums = problem.has_b_minimums ? minimums.data() : nullptr;
  return view;
}

Error CheckGroupValues(const GroupedProblem& problem, const GroupPlace& place, uint32_t scale_bits,
                       int32_t zero_point) {
  const core::ElementType& type = problem.codes();
  const uint32_t infinity = core::InfinityOf(core::TraitsOf(problem.scale_type));
  if ((scale_bits & infinity) == infinity) {
    const auto scale = core::Decode(problem.scale_type, reinterpret_cast<const uint8_t*>(&scale_bits));
    return UnexpectedNumber(TextOf("b_scales", problem, place), static_cast<float>(scale), "a finite value");
  }
  if (zero_point >= type.lowest && zero_point <= type.highest) return {};
  return Unexpected(TextOf("b_zero_points", problem, place), zero_point,
                    std::to_string(type.lowest) + " to " + std::to_string(type.highest));
}

Error CheckMinimum(const GroupedProblem& problem, const GroupPlace& place, float minimum) {
  if (std::isfinite(minimum)) return {};
  return UnexpectedNumber(TextOf("b_minimums", problem, place), minimum, "a finite value");
}

bool MayExceedInt32(const GroupedProblem& problem) { return problem.group * kWidth * kWidth > kMostSum; }

Error CheckGroupedSizes(const GroupedProblem& problem, const intact_grouped_args& args) {
  RETURN_IF_ERROR(CheckRows(args.m, 0));
  RETURN_IF_ERROR(CheckStride("a_stride", args.a_stride, problem.k));
  RETURN_IF_ERROR(CheckStride("c_stride", args.c_stride, problem.n));
  if (args.reserved != 0) return Refuse([&] { return Unexpected("reserved", args.reserved, "0"); });
  if (args.batch == 1 || problem.experts == 1) return {};
  return Refuse([&] { return Unexpected("batch", args.batch, "1, because the plan has several experts"); });
}

namespace {

// Checks the number of rows of each expert.
Error CheckExpertRows(const GroupedProblem& problem, const intact_grouped_args& args) {
  if (problem.experts == 1) {
    if (args.expert_rows == nullptr || args.expert_rows[0] == args.m) return {};
    return Unexpected("expert_rows[0]", args.expert_rows[0],
                      "m, which is " + std::to_string(args.m) + ", because the plan has one expert");
  }
  if (args.expert_rows == nullptr) {
    return InvalidArgument("expert_rows is NULL; expected " + std::to_string(problem.experts) +
                           " numbers of rows, one for each expert");
  }
  int64_t sum = 0;
  for (int64_t i = 0; i < problem.experts; ++i) {
    const int64_t rows = args.expert_rows[i];
    if (rows < 0 || rows > args.m) {
      return Unexpected("expert_rows[" + std::to_string(i) + "]", rows,
                        "0 to m, which is " + std::to_string(args.m));
    }
    sum += rows;
  }
  if (sum == args.m) return {};
  return Unexpected("the sum of expert_rows", sum, "m, which is " + std::to_string(args.m));
}

Error CheckGivenValues(const GroupedProblem& problem, const intact_grouped_args& args, int64_t rows) {
  if (problem.IsDynamic()) {
    if (args.a_scales == nullptr && args.a_zero_points == nullptr) return {};
    return InvalidArgument(
        "a_scales or a_zero_points are given; expected NULL, because the plan quantizes A (a_source_type)");
  }
  if (args.a_scales == nullptr) {
    return InvalidArgument(std::string("a_scales is NULL; expected a value for each ") +
                           (problem.has_group_scales ? "group of each row" : "row"));
  }
  const int64_t values = rows * problem.row_values();
  const int32_t lowest = core::LowestOf(problem.a_type), highest = core::HighestOf(problem.a_type);
  for (int64_t i = 0; i < values; ++i) {
    RETURN_IF_ERROR(CheckScale("a_scales", i, args.a_scales[i]));
    if (args.a_zero_points == nullptr) continue;
    if (args.a_zero_points[i] < lowest || args.a_zero_points[i] > highest) {
      return Unexpected("a_zero_points[" + std::to_string(i) + "]", args.a_zero_points[i],
                        std::to_string(lowest) + " to " + std::to_string(highest));
    }
  }
  return {};
}

}  // namespace

Error CheckGroupedValues(const GroupedProblem& problem, const intact_grouped_args& args, int64_t rows) {
  RETURN_IF_ERROR(CheckExpertRows(problem, args));
  return CheckGivenValues(problem, args, rows);
}

Error CheckGroupedBuffers(const GroupedProblem& problem, const intact_grouped_args& args) {
  if (args.a == nullptr) return Refuse([] { return InvalidArgument("a is NULL"); });
  if (args.c == nullptr) return Refuse([] { return InvalidArgument("c is NULL"); });
  const auto rows = [&](const char* name, const void* data, int64_t columns, int64_t stride, int bytes) {
    return MemoryRows{name, data, args.m, columns * bytes, (stride == 0 ? columns : stride) * bytes};
  };
  return CheckApart(rows("c", args.c, problem.n, args.c_stride, core::BytesOf(problem.c_type)),
                    rows("a", args.a, problem.k, args.a_stride, problem.a_bytes()));
}

}  // namespace intact::kernels
