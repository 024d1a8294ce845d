#include "verify/targets/guarded_grouped.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/operation.h"
#include "core/result.h"
#include "core/types.h"
#include "verify/targets/guarded_matrix.h"
#include "verify/targets/guarded_run.h"

namespace intact::verify {
namespace {

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

// `rows` rows of `bytes` bytes, with `pad_bytes` between them. `item_pad_bytes` more bytes are between the
// items, which have `item_rows` rows each.
struct MatrixShape {
  int64_t rows, bytes;
  int64_t pad_bytes = 0;
  int64_t item_rows = 0;  // 0: one item
  int64_t item_pad_bytes = 0;
};
Result<GuardedMatrix> Matrix(const char* name, const Surroundings& surroundings, const MatrixShape& shape) {
  const int64_t item_rows = shape.item_rows == 0 ? shape.rows : shape.item_rows;
  return GuardedMatrix::Allocate(shape.rows, shape.bytes, shape.bytes + shape.pad_bytes, item_rows,
                                 shape.item_pad_bytes, surroundings, name);
}
Result<GuardedMatrix> Loaded(const char* name, const Surroundings& surroundings, const void* data,
                             const MatrixShape& shape) {
  ASSIGN_OR_RETURN(GuardedMatrix matrix, Matrix(name, surroundings, shape));
  matrix.Load(static_cast<const uint8_t*>(data));
  return matrix;
}

// Matrices of rows × columns elements of `bytes` bytes, one for each expert, as columns × rows.
std::vector<uint8_t> Transposed(const std::vector<uint8_t>& elements, int64_t rows, int64_t columns,
                                int64_t bytes) {
  std::vector<uint8_t> transposed;
  const int64_t size = rows * columns;
  for (int64_t i = 0; i * bytes < std::ssize(elements); ++i) {
    const int64_t in_matrix = i % size, place = in_matrix % rows * columns + in_matrix / rows;
    const auto from = elements.begin() + (i - in_matrix + place) * bytes;
    transposed.insert(transposed.end(), from, from + bytes);
  }
  return transposed;
}

// The rows of each expert among `count` rows from `begin` on.
std::vector<int64_t> ExpertRows(const reference::Grouped& grouped, int64_t begin, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(grouped.experts));
  for (int64_t m = begin; m < begin + count; ++m) ++rows[static_cast<size_t>(grouped.ExpertOf(m))];
  return rows;
}

}  // namespace

intact_grouped_desc DescOf(const reference::Grouped& grouped, const RunOptions& options) {
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  core::ForEachGroupedNumber(core::kCopyField, desc, grouped);
  if (grouped.post_ops.Has<core::Relu>()) desc.activation = INTACT_ACTIVATION_RELU;
  if (const auto* clamp = grouped.post_ops.Find<core::Clamp>()) {
    desc.activation = INTACT_ACTIVATION_CLAMP;
    desc.clamp_min = clamp->low;
    desc.clamp_max = clamp->high;
  }
  desc.max_isa = options.isa;
  return desc;
}

namespace {

// Numbers of scales and of zero points of each row of A.
int64_t RowValuesOf(const reference::Grouped& grouped) {
  return grouped.HasGroupScales() ? grouped.groups() : 1;
}

// Weights of all experts, as runs lay them out, without gaps.
struct WeightBytes {
  std::vector<uint8_t> b, scales, zero_points, minimums;
};

WeightBytes WeightsOf(const reference::Grouped& grouped, const RunOptions& options) {
  const int64_t n = grouped.n, groups = grouped.groups();
  WeightBytes bytes = {reference::BytesOfB(grouped),
                       grouped.b_scales,
                       {grouped.b_zero_points.begin(), grouped.b_zero_points.end()},
                       {}};
  const auto* const minimums = reinterpret_cast<const uint8_t*>(grouped.b_minimums.data());
  bytes.minimums.assign(minimums, minimums + grouped.b_minimums.size() * sizeof(float));
  bytes.minimums.resize(static_cast<size_t>(grouped.columns() * groups) * sizeof(float));
  if (options.b_is_kn) bytes.b = Transposed(bytes.b, n, grouped.k, 1);
  bytes.zero_points.resize(static_cast<size_t>(grouped.columns() * groups));
  if (options.scales_are_gn) {
    bytes.scales = Transposed(bytes.scales, n, groups, core::BytesOf(grouped.scale_type));
    bytes.zero_points = Transposed(bytes.zero_points, n, groups, 1);
    bytes.minimums = Transposed(bytes.minimums, n, groups, sizeof(float));
  }
  return bytes;
}

// The same values in reverse order.
WeightBytes Reversed(WeightBytes bytes, int64_t scale_size) {
  std::ranges::reverse(bytes.b);
  std::ranges::reverse(bytes.zero_points);
  const auto reverse = [](std::vector<uint8_t>* elements, int64_t size) {
    std::ranges::reverse(*elements);  // and each element's bytes back
    for (auto at = elements->begin(); at != elements->end(); at += size) std::reverse(at, at + size);
  };
  reverse(&bytes.scales, scale_size);
  reverse(&bytes.minimums, sizeof(float));
  return bytes;
}

}  // namespace

Error CallGuarded(const reference::Grouped& grouped, const RunOptions& options,
                  const std::function<Error(const intact_grouped_desc& desc, const void* b)>& call) {
  intact_grouped_desc desc = DescOf(grouped, options);
  const WeightBytes bytes = WeightsOf(grouped, options);
  const int64_t n = grouped.n, groups = grouped.groups(), experts = grouped.experts, pad = options.expert_pad;
  const int64_t rows = options.b_is_kn ? grouped.k : n;
  const int64_t row_bytes = std::ssize(bytes.b) / (experts * rows);
  const int64_t scale_size = core::BytesOf(grouped.scale_type);
  const auto matrix = [&](const char* name, const MatrixShape& shape) {
    return Matrix(name, options.surroundings, shape);
  };
  ASSIGN_OR_RETURN(GuardedMatrix b, matrix("B", {experts * rows, row_bytes, options.b_pad, rows, pad}));
  ASSIGN_OR_RETURN(GuardedMatrix scales,
                   matrix("scales of B", {experts, n * groups * scale_size, pad * scale_size}));
  ASSIGN_OR_RETURN(GuardedMatrix zero_points, matrix("zero points of B", {experts, n * groups, pad}));
  constexpr int64_t kFloat = sizeof(float);
  ASSIGN_OR_RETURN(GuardedMatrix minimums,
                   matrix("minimums of B", {experts, n * groups * kFloat, pad * kFloat}));
  std::vector<float> bias = grouped.bias_f32;
  bias.resize(static_cast<size_t>(experts * n));
  ASSIGN_OR_RETURN(const GuardedMatrix biases,
                   Loaded("bias", options.surroundings, bias.data(), {experts, n * kFloat, pad * kFloat}));
  desc.b_stride_n = options.b_is_kn ? 1 : row_bytes + options.b_pad;
  desc.b_stride_k = options.b_is_kn ? n + options.b_pad : 0;
  if (options.scales_are_gn) {
    desc.scale_stride_n = 1;
    desc.scale_stride_g = n;
  }
  desc.b_scales = scales.data();
  if (grouped.has_b_zero_points) desc.b_zero_points = zero_points.data();
  if (grouped.has_b_minimums) desc.b_minimums = reinterpret_cast<const float*>(minimums.data());
  if (!grouped.bias_f32.empty()) desc.bias_f32 = reinterpret_cast<const float*>(biases.data());
  if (pad != 0) {
    desc.b_stride_expert = rows * (row_bytes + options.b_pad) + pad;
    desc.scale_stride_expert = n * groups + pad;
    desc.bias_stride_expert = n + pad;
  }
  if (options.reused) {
    const WeightBytes others = Reversed(bytes, scale_size);
    b.Write(others.b.data());
    scales.Write(others.scales.data());
    zero_points.Write(others.zero_points.data());
    minimums.Write(others.minimums.data());
    RETURN_IF_ERROR(call(desc, b.data()));
  }
  b.Load(bytes.b.data());
  scales.Load(bytes.scales.data());
  zero_points.Load(bytes.zero_points.data());
  minimums.Load(bytes.minimums.data());
  return call(desc, b.data());
}

namespace {

// Tensors of a run in guarded memory.
struct RunTensors {
  GuardedMatrix a, scales, points, c;
};

Result<RunTensors> TensorsOf(const reference::Grouped& grouped, const RunOptions& options) {
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  const int64_t a_bytes = is_dynamic ? core::BytesOf(grouped.a_source_type) : 1;
  const int64_t c_bytes = core::BytesOf(grouped.c_type);
  const int64_t item_pad = options.item == 0 ? 0 : options.item_pad;
  const std::vector<uint8_t>& given = is_dynamic ? grouped.a_source : grouped.a;
  const auto load = [&](const char* name, const void* data, const MatrixShape& shape) {
    return Loaded(name, options.surroundings, data, shape);
  };
  ASSIGN_OR_RETURN(GuardedMatrix a, load("A", given.data(),
                                         {grouped.m, grouped.k * a_bytes, options.a_pad * a_bytes,
                                          options.item, item_pad * a_bytes}));
  const int64_t value_bytes = is_dynamic ? 0 : RowValuesOf(grouped) * 4;
  ASSIGN_OR_RETURN(GuardedMatrix scales,
                   load("scales of A", grouped.a_scales.data(), {grouped.m, value_bytes}));
  ASSIGN_OR_RETURN(GuardedMatrix points,
                   load("zero points of A", grouped.a_zero_points.data(), {grouped.m, value_bytes}));
  ASSIGN_OR_RETURN(GuardedMatrix c, Matrix("C", options.surroundings,
                                           {grouped.m, grouped.n * c_bytes, options.c_pad * c_bytes,
                                            options.item, item_pad * c_bytes}));
  return RunTensors{std::move(a), std::move(scales), std::move(points), std::move(c)};
}

// Computes C once, in runs of options.split rows.
Error CallOnce(const reference::Grouped& grouped, const RunOptions& options, const RunTensors& tensors,
               const std::function<Error(const intact_grouped_args&)>& call) {
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  const int64_t a_bytes = is_dynamic ? core::BytesOf(grouped.a_source_type) : 1;
  const int64_t c_bytes = core::BytesOf(grouped.c_type);
  const int64_t values = RowValuesOf(grouped);
  const int64_t item_pad = options.item == 0 ? 0 : options.item_pad;
  const int64_t step = options.split == 0 ? std::max<int64_t>(grouped.m, 1) : options.split;
  for (int64_t m = 0; m < std::max<int64_t>(grouped.m, 1); m += step) {
    intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
    args.m = std::min(step, grouped.m - m);
    args.a = tensors.a.data() + m * (grouped.k + options.a_pad) * a_bytes;
    args.a_stride = grouped.k + options.a_pad;
    args.c = tensors.c.data() + m * (grouped.n + options.c_pad) * c_bytes;
    args.c_stride = grouped.n + options.c_pad;
    if (!is_dynamic && args.m > 0) {
      args.a_scales = reinterpret_cast<const float*>(tensors.scales.data()) + m * values;
      args.a_zero_points = reinterpret_cast<const int32_t*>(tensors.points.data()) + m * values;
    }
    if (options.item != 0) {
      args.batch = args.m / options.item;
      args.m = options.item;
      args.a_batch_stride = item_pad == 0 ? 0 : options.item * args.a_stride + item_pad;
      args.c_batch_stride = item_pad == 0 ? 0 : options.item * args.c_stride + item_pad;
    }
    args.threads = options.threads;
    const std::vector<int64_t> expert_rows = ExpertRows(grouped, m, std::min(step, grouped.m - m));
    ASSIGN_OR_RETURN(const GuardedMatrix rows,
                     Loaded("rows of experts", options.surroundings, expert_rows.data(),
                            {1, static_cast<int64_t>(expert_rows.size() * sizeof(int64_t))}));
    if (grouped.experts > 1) args.expert_rows = reinterpret_cast<const int64_t*>(rows.data());
    RETURN_IF_ERROR(call(args));
  }
  return {};
}

}  // namespace

Result<std::vector<uint8_t>> RunGuarded(const reference::Grouped& grouped, const RunOptions& options,
                                        const std::function<Error(const intact_grouped_args&)>& call,
                                        bool* changed) {
  ASSIGN_OR_RETURN(const RunTensors tensors, TensorsOf(grouped, options));
  std::vector<uint8_t> first;
  for (int32_t number = 1; number <= options.calls; ++number) {
    RETURN_IF_ERROR(CallOnce(grouped, options, tensors, call));
    if (const std::optional<std::string> stray = tensors.c.StrayWrite())
      return Failed("wrote outside C: " + *stray);
    std::vector<uint8_t> output = tensors.c.Dense();
    if (number == 1) {
      first = std::move(output);
    } else if (output != first) {
      if (changed != nullptr) *changed = true;
      return OtherOutputs(number, options.calls);
    }
  }
  return first;
}

}  // namespace intact::verify
