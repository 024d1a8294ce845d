#include "verify/targets/guarded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/operation.h"
#include "core/result.h"
#include "core/types.h"
#include "verify/targets/guarded_matrix.h"

namespace intact::verify {
namespace {

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

template <class T>
const T* DataOrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

intact_linear_desc LinearDescOf(const reference::Linear& operation, const RunOptions& options) {
  intact_linear_desc desc = core::DescOf(operation);
  desc.max_isa = options.isa;
  return desc;
}

// Rows of a tensor, `stride` elements apart; for convolutions, pixels with their channels. A batch has
// several items: `item_pad` elements between them, or a pointer to each.
struct Rows {
  int64_t count, elements, stride;
  int64_t items = 1, item_pad = 0;
  bool has_pointers = false;
  int64_t ItemStride() const { return count * stride + item_pad; }
};

// A tensor in guarded memory; items with pointers have separate memory.
class GuardedTensor {
 public:
  static Result<GuardedTensor> Allocate(const char* name, const Rows& rows, int64_t element_size,
                                        const Surroundings& surroundings) {
    GuardedTensor tensor;
    const int64_t matrices = rows.has_pointers ? rows.items : 1;
    const int64_t items = rows.has_pointers ? 1 : rows.items;  // items in one matrix
    for (int64_t i = 0; i < matrices; ++i) {
      ASSIGN_OR_RETURN(GuardedMatrix matrix,
                       GuardedMatrix::Allocate(items * rows.count, rows.elements * element_size,
                                               rows.stride * element_size, rows.count,
                                               rows.item_pad * element_size, surroundings, name));
      if (rows.has_pointers) tensor.items_.push_back(matrix.data());
      tensor.matrices_.push_back(std::move(matrix));
    }
    tensor.matrix_bytes_ = items * rows.count * rows.elements * element_size;
    return tensor;
  }

  // data() or items() is nullptr; both are if there are pointers but no items.
  uint8_t* data() const noexcept {
    return items_.empty() && !matrices_.empty() ? matrices_.front().data() : nullptr;
  }
  void* const* items() const noexcept { return items_.empty() ? nullptr : items_.data(); }

  void Write(const uint8_t* dense) noexcept {
    for (GuardedMatrix& matrix : matrices_) matrix.Write(std::exchange(dense, dense + matrix_bytes_));
  }
  void Load(const uint8_t* dense) noexcept {
    for (GuardedMatrix& matrix : matrices_) matrix.Load(std::exchange(dense, dense + matrix_bytes_));
  }
  std::vector<uint8_t> Dense() const {
    std::vector<uint8_t> dense;
    for (const GuardedMatrix& matrix : matrices_) {
      const std::vector<uint8_t> item = matrix.Dense();
      dense.insert(dense.end(), item.begin(), item.end());
    }
    return dense;
  }
  std::optional<std::string> StrayWrite() const {
    for (const GuardedMatrix& matrix : matrices_) {
      if (std::optional<std::string> stray = matrix.StrayWrite()) return stray;
    }
    return std::nullopt;
  }

 private:
  GuardedTensor() = default;

  std::vector<GuardedMatrix> matrices_;
  std::vector<void*> items_;
  int64_t matrix_bytes_ = 0;
};

// B as `options` lay it out, or a filter.
Rows WeightsOf(const reference::Gemm& gemm, const RunOptions& options) {
  const TensorLayout layout = WeightLayoutOf(gemm, options);
  return {layout.rows,      layout.elements,
          layout.stride,    gemm.has_runtime_b ? gemm.batch : 1,
          options.item_pad, gemm.has_runtime_b && options.item_pointers};
}
Rows WeightsOf(const reference::Conv& conv, const RunOptions& options) {
  const TensorLayout layout = WeightLayoutOf(conv, options);
  return {layout.rows, layout.elements, layout.stride};
}

std::vector<int8_t> LaidOut(const reference::Gemm& gemm, const RunOptions& options) {
  // Transposing: FromColumns() turns rows into columns as well.
  return options.b_by_columns ? reference::FromColumns(gemm.b, gemm.k, gemm.n) : gemm.b;
}
const std::vector<int8_t>& LaidOut(const reference::Conv& conv, const RunOptions& /*options*/) {
  return conv.b;
}

// Memory for the weights.
template <class Operation>
Result<GuardedTensor> AllocateWeights(const Operation& operation, const RunOptions& options) {
  return GuardedTensor::Allocate("B", WeightsOf(operation, options), 1, options.surroundings);
}
template <class Operation>
void LoadWeights(const Operation& operation, const RunOptions& options, GuardedTensor* b) {
  b->Load(reinterpret_cast<const uint8_t*>(LaidOut(operation, options).data()));
}

bool HasRuntimeB(const reference::Gemm& gemm) { return gemm.has_runtime_b; }
bool HasRuntimeB(const reference::Conv& /*conv*/) { return false; }

Rows PaddedRows(const reference::Gemm& gemm, const reference::Extents& tensor, int64_t pad,
                const RunOptions& options) {
  return {gemm.m, tensor.columns, tensor.columns + pad, gemm.batch, options.item_pad, options.item_pointers};
}
Rows PaddedRows(const reference::Conv& /*conv*/, const reference::Extents& tensor, int64_t pad,
                const RunOptions& /*options*/) {
  return {tensor.rows, tensor.columns, tensor.columns + pad};
}
Rows InputOf(const reference::Gemm& gemm, const RunOptions& options) {
  const TensorLayout layout = InputLayoutOf(gemm, options);
  return {layout.rows, layout.elements, layout.stride, gemm.batch, options.item_pad, options.item_pointers};
}
Rows InputOf(const reference::Conv& conv, const RunOptions& options) {
  return PaddedRows(conv, reference::InputOf(conv), options.a_pad, options);
}
template <class Operation>
Rows OutputOf(const Operation& operation, int64_t pad, const RunOptions& options) {
  return PaddedRows(operation, reference::OutputOf(operation), pad, options);
}
int64_t ResidualPad(const RunOptions& options) { return options.in_place ? options.c_pad : options.res_pad; }

// Vectors in guarded memory.
class GuardedVectors {
 public:
  explicit GuardedVectors(const Surroundings& surroundings) : surroundings_(surroundings) {}

  // Copies `values` into guarded memory, if there are any, and points to the copy.
  template <class T>
  Error Guard(const char* name, const T** values, int64_t count) {
    if (*values == nullptr) return {};
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    ASSIGN_OR_RETURN(GuardedMatrix matrix,
                     GuardedMatrix::Allocate(1, bytes, bytes, 1, 0, surroundings_, name));
    matrix.Load(reinterpret_cast<const uint8_t*>(*values));
    *values = reinterpret_cast<const T*>(matrix.data());
    matrices_.push_back(std::move(matrix));
    return {};
  }

 private:
  Surroundings surroundings_;
  std::vector<GuardedMatrix> matrices_;
};

// The tensors and vectors that a run reads.
struct GuardedRun {
  GuardedTensor a, c;
  std::optional<GuardedTensor> residual, b;
  GuardedVectors vectors;

  // The tensor that holds the residual; nullptr if there is none.
  const GuardedTensor* Residual(const reference::Linear& operation, const RunOptions& options) const {
    if (!operation.HasResidual()) return nullptr;
    return options.in_place ? &c : &*residual;
  }
};

// Guards what only runs of GEMMs read: pointers to items, runtime B, vectors of rows and of items.
Error GuardOthers(const reference::Gemm& gemm, const RunOptions& options, GuardedRun* guarded,
                  intact_gemm_args* args) {
  args->a_items = guarded->a.items();
  args->c_items = guarded->c.items();
  if (const GuardedTensor* residual = guarded->Residual(gemm, options)) {
    args->residual_items = residual->items();
  }
  if (gemm.has_runtime_b) {
    ASSIGN_OR_RETURN(guarded->b, AllocateWeights(gemm, options));
    LoadWeights(gemm, options, &*guarded->b);
    args->b = guarded->b->data();
    args->b_items = guarded->b->items();
  }
  GuardedVectors* vectors = &guarded->vectors;
  const int64_t values = gemm.a_quantization == INTACT_QUANTIZATION_TENSOR ? 1 : gemm.rows();
  RETURN_IF_ERROR(vectors->Guard("a_zero_points", &args->a_zero_points, values));
  RETURN_IF_ERROR(vectors->Guard("a_scales", &args->a_scales, values));
  RETURN_IF_ERROR(vectors->Guard("b_scales", &args->b_scales, std::ssize(gemm.item_scales)));
  return vectors->Guard("b_zero_points", &args->b_zero_points, std::ssize(gemm.item_zero_points));
}
Error GuardOthers(const reference::Conv& /*conv*/, const RunOptions& /*options*/, GuardedRun* guarded,
                  intact_conv_args* args) {
  RETURN_IF_ERROR(guarded->vectors.Guard("a_zero_points", &args->a_zero_points, 1));
  return guarded->vectors.Guard("a_scales", &args->a_scales, 1);
}

// Sets the quantization of A if runs pass it.
template <class Args>
void SetQuantization(const reference::Linear& operation, Args* args) {
  if (operation.a_quantization != INTACT_QUANTIZATION_ROWS &&
      operation.a_quantization != INTACT_QUANTIZATION_TENSOR) {
    return;
  }
  args->a_zero_points = DataOrNull(operation.a_zero_points);
  args->a_scales = DataOrNull(operation.a_scales);
}

// Calls run(arguments), which returns an Error, on guarded tensors.
template <class Operation, class Run>
Result<std::vector<uint8_t>> RunBetweenGuards(const Operation& operation, const RunOptions& options,
                                              const Run& run, bool* changed) {
  ASSIGN_OR_RETURN(GuardedTensor a, GuardedTensor::Allocate("A", InputOf(operation, options),
                                                            operation.GivenABytes(), options.surroundings));
  ASSIGN_OR_RETURN(GuardedTensor c,
                   GuardedTensor::Allocate("C", OutputOf(operation, options.c_pad, options),
                                           core::BytesOf(operation.c_type), options.surroundings));
  a.Load(StoredInput(operation, options).data());
  GuardedRun guarded{std::move(a), std::move(c), {}, {}, GuardedVectors(options.surroundings)};
  if (operation.HasResidual() && options.in_place) {
    guarded.c.Write(operation.residual.data());
  } else if (operation.HasResidual()) {
    ASSIGN_OR_RETURN(GuardedTensor residual,
                     GuardedTensor::Allocate("the residual", OutputOf(operation, options.res_pad, options),
                                             core::BytesOf(operation.residual_type()), options.surroundings));
    residual.Load(operation.residual.data());
    guarded.residual = std::move(residual);
  }
  Buffers buffers{guarded.a.data(), guarded.c.data()};
  if (const GuardedTensor* residual = guarded.Residual(operation, options))
    buffers.residual = residual->data();
  auto args = ArgsOf(operation, options, buffers);
  RETURN_IF_ERROR(GuardOthers(operation, options, &guarded, &args));
  std::vector<uint8_t> first;
  for (int32_t call = 1; call <= options.calls; ++call) {
    if (call > 1 && operation.HasResidual() && options.in_place) guarded.c.Write(operation.residual.data());
    RETURN_IF_ERROR(run(args));
    if (const std::optional<std::string> stray = guarded.c.StrayWrite()) {
      return Failed(fmt::format("wrote outside C: {}", *stray));
    }
    std::vector<uint8_t> output = guarded.c.Dense();
    if (call == 1) {
      first = std::move(output);
    } else if (output != first) {
      if (changed != nullptr) *changed = true;
      return OtherOutputs(call, options.calls);
    }
  }
  return first;
}

template <class Operation, class Call>
Error CallBetweenGuards(const Operation& operation, const RunOptions& options, const Call& call) {
  auto desc = DescOf(operation, options);
  intact_linear_desc& linear = desc.linear;
  GuardedVectors vectors(options.surroundings);
  Error error;
  const auto guard = [&](std::string_view name, auto& pointer, const auto& values) {
    if (error.ok()) error = vectors.Guard(name.data(), &pointer, std::ssize(values));
  };
  core::ForEachColumnVector(guard, linear, operation);
  const auto* table = static_cast<const uint8_t*>(linear.lookup_table);
  if (error.ok()) error = vectors.Guard("lookup_table", &table, core::kTableElements);
  linear.lookup_table = table;
  RETURN_IF_ERROR(error);
  if (HasRuntimeB(operation)) return call(desc, nullptr);
  ASSIGN_OR_RETURN(GuardedTensor b, AllocateWeights(operation, options));
  if (options.reused) {
    // Other bytes, with mostly the same sums: the weights in reverse order.
    const auto& weights = LaidOut(operation, options);
    b.Write(std::vector<uint8_t>(weights.rbegin(), weights.rend()).data());
    RETURN_IF_ERROR(call(desc, b.data()));
  }
  LoadWeights(operation, options, &b);
  return call(desc, b.data());
}

}  // namespace

TensorLayout InputLayoutOf(const reference::Gemm& gemm, const RunOptions& options) {
  const int64_t rows = options.a_by_columns ? gemm.k : gemm.m;
  const int64_t elements = options.a_by_columns ? gemm.m : gemm.k;
  return {rows, elements, elements + options.a_pad};
}

TensorLayout InputLayoutOf(const reference::Conv& conv, const RunOptions& options) {
  const reference::Extents input = reference::InputOf(conv);
  return {input.rows, input.columns, input.columns + options.a_pad};
}

TensorLayout WeightLayoutOf(const reference::Gemm& gemm, const RunOptions& options) {
  const int64_t rows = options.b_by_columns ? gemm.n : gemm.k;
  const int64_t elements = options.b_by_columns ? gemm.k : gemm.n;
  return {rows, elements, elements + options.b_pad};
}

TensorLayout WeightLayoutOf(const reference::Conv& conv, const RunOptions& /*options*/) {
  return {1, std::ssize(conv.b), std::ssize(conv.b)};
}

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
  desc.linear = LinearDescOf(gemm, options);
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.usual_m = options.usual_m;
  desc.runtime_b = gemm.has_runtime_b ? 1 : 0;
  const int64_t stride = WeightsOf(gemm, options).stride;
  if (options.b_by_columns) {
    desc.b_stride_k = 1;
    desc.b_stride_n = stride;
  } else if (options.b_pad != 0) {
    desc.b_stride_k = stride;
  }
  return desc;
}

ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options) {
  const reference::ConvGeometry& geometry = conv.geometry;
  ConvDesc desc = MakeConvDesc();
  desc.linear = LinearDescOf(conv, options);
  desc.spatial_dims = geometry.dims;
  desc.input_channels = geometry.input_channels;
  desc.output_channels = geometry.output_channels;
  desc.groups = geometry.groups;
  desc.transposed = geometry.IsTransposed() ? 1 : 0;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; i < axes.size(); ++i) {
    desc.input[i] = options.open_extents ? INTACT_ANY_EXTENT : axes[i].input;
    desc.kernel[i] = axes[i].kernel;
    desc.stride[i] = axes[i].stride;
    desc.dilation[i] = axes[i].dilation;
    desc.pad_begin[i] = axes[i].pad_begin;
    desc.pad_end[i] = axes[i].pad_end;
    desc.output_pad[i] = axes[i].output_pad;
  }
  return desc;
}

intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const Buffers& buffers) {
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = buffers.a;
  args.a_stride = InputLayoutOf(gemm, options).stride;
  args.a_transposed = options.a_by_columns ? 1 : 0;
  args.c = buffers.c;
  args.c_stride = gemm.n + options.c_pad;
  args.residual = buffers.residual;
  args.residual_stride = gemm.n + ResidualPad(options);
  args.threads = options.threads;
  args.batch = gemm.batch;
  if (options.item_pad != 0) {
    args.a_batch_stride = InputOf(gemm, options).ItemStride();
    args.c_batch_stride = OutputOf(gemm, options.c_pad, options).ItemStride();
    args.residual_batch_stride = OutputOf(gemm, ResidualPad(options), options).ItemStride();
  }
  SetQuantization(gemm, &args);
  if (!gemm.has_runtime_b) return args;
  args.b = gemm.b.data();
  if (options.item_pad + options.b_pad != 0) args.b_batch_stride = WeightsOf(gemm, options).ItemStride();
  // In the arguments, a count of 0 stands for 1.
  const auto count_of = [&gemm](const auto& values) {
    return std::ssize(values) == gemm.batch || values.empty() ? 0 : std::ssize(values) / gemm.batch;
  };
  args.b_scales = DataOrNull(gemm.item_scales);
  args.b_scale_count = count_of(gemm.item_scales);
  args.b_zero_points = DataOrNull(gemm.item_zero_points);
  args.b_zero_point_count = count_of(gemm.item_zero_points);
  return args;
}

intact_conv_args ArgsOf(const reference::Conv& conv, const RunOptions& options, const Buffers& buffers) {
  const reference::ConvGeometry& geometry = conv.geometry;
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = geometry.batch;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; options.open_extents && i < axes.size(); ++i) args.input[i] = axes[i].input;
  args.a = buffers.a;
  args.a_stride = geometry.input_channels + options.a_pad;
  args.c = buffers.c;
  args.c_stride = geometry.output_channels + options.c_pad;
  args.residual = buffers.residual;
  args.residual_stride = geometry.output_channels + ResidualPad(options);
  args.threads = options.threads;
  SetQuantization(conv, &args);
  return args;
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run,
                                        bool* changed) {
  return RunBetweenGuards(gemm, options, run, changed);
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Conv& conv, const RunOptions& options,
                                        const std::function<Error(const intact_conv_args&)>& run,
                                        bool* changed) {
  return RunBetweenGuards(conv, options, run, changed);
}

Error OtherOutputs(int32_t call, int32_t calls) {
  return Failed(fmt::format("call {} of {} in the same memory wrote other outputs than call 1", call, calls));
}

Error CallGuarded(const reference::Gemm& gemm, const RunOptions& options,
                  const std::function<Error(const GemmDesc& desc, const void* b)>& call) {
  return CallBetweenGuards(gemm, options, call);
}

Error CallGuarded(const reference::Conv& conv, const RunOptions& options,
                  const std::function<Error(const ConvDesc& desc, const void* weights)>& call) {
  return CallBetweenGuards(conv, options, call);
}

std::vector<int8_t> StoredWeights(const reference::Gemm& gemm, const RunOptions& options) {
  if (HasRuntimeB(gemm)) return {};
  const Rows rows = WeightsOf(gemm, options);
  const std::vector<int8_t> dense = LaidOut(gemm, options);
  std::vector<int8_t> stored(static_cast<size_t>(rows.count * rows.stride));
  for (int64_t row = 0; row < rows.count; ++row) {
    std::copy_n(dense.begin() + row * rows.elements, rows.elements, stored.begin() + row * rows.stride);
  }
  return stored;
}

std::vector<int8_t> StoredWeights(const reference::Conv& conv, const RunOptions& /*options*/) {
  return conv.b;
}

std::vector<uint8_t> StoredInput(const reference::Gemm& gemm, const RunOptions& options) {
  const std::vector<uint8_t>& dense = gemm.GivenA();
  if (!options.a_by_columns) return dense;
  const auto element = static_cast<size_t>(gemm.GivenABytes());
  const auto m = static_cast<size_t>(gemm.m), k = static_cast<size_t>(gemm.k);
  std::vector<uint8_t> stored(dense.size());
  for (size_t at = 0; at < dense.size(); at += element) {
    const size_t number = at / element, row = number / k % m, depth = number % k;
    std::copy_n(&dense[at], element, &stored[(number - row * k - depth + depth * m + row) * element]);
  }
  return stored;
}

std::vector<uint8_t> StoredInput(const reference::Conv& conv, const RunOptions& /*options*/) {
  return conv.GivenA();
}

}  // namespace intact::verify
