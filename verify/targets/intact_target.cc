#include "verify/targets/intact_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "verify/guarded_matrix.h"

namespace intact::verify {
namespace {

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

template <class T>
const T* DataOrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

intact_linear_desc LinearDescOf(const reference::Operation& operation, const RunOptions& options) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  desc.a_type = operation.a_type;
  desc.b_type = operation.b_type;
  desc.c_type = operation.c_type;
  desc.mode = options.mode;
  desc.max_isa = options.isa;
  desc.a_zero_point = operation.a_zero_point;
  desc.c_zero_point = operation.c_zero_point;
  desc.b_zero_points = DataOrNull(operation.b_zero_points);
  desc.b_zero_point_count = static_cast<int64_t>(operation.b_zero_points.size());
  desc.bias_s32 = DataOrNull(operation.bias_s32);
  desc.bias_f32 = DataOrNull(operation.bias_f32);
  desc.scales = DataOrNull(operation.scales);
  desc.scale_count = static_cast<int64_t>(operation.scales.size());
  desc.activation = operation.activation;
  desc.clamp_min = operation.clamp_min;
  desc.clamp_max = operation.clamp_max;
  if (options.declared_min > 0 || options.declared < 255) {
    const int32_t lowest = operation.a_type == INTACT_S8 ? -128 : 0;
    desc.a_min = lowest + options.declared_min;
    desc.a_max = lowest + options.declared;
  }
  desc.range_check = options.range_check;
  desc.residual_type = operation.residual_type;
  desc.residual_scale = operation.residual_scale;
  desc.residual_zero_point = operation.residual_zero_point;
  return desc;
}

// Rows of a tensor, `stride` elements apart; pixels of channels are rows as well. Those of a batch are items,
// `item_pad` elements apart beyond their rows, or where pointers tell.
struct Rows {
  int64_t count, elements, stride;
  int64_t items = 1, item_pad = 0;
  bool has_pointers = false;
  int64_t ItemStride() const { return count * stride + item_pad; }
};

// A tensor in guarded memory: items that have pointers each in memory of its own.
class GuardedTensor {
 public:
  static Result<GuardedTensor> Allocate(const Rows& rows, int64_t element_size) {
    GuardedTensor tensor;
    const int64_t matrices = rows.has_pointers ? rows.items : 1;
    for (int64_t i = 0; i < matrices; ++i) {
      Result<GuardedMatrix> matrix =
          GuardedMatrix::Allocate(rows.items / matrices * rows.count, rows.elements * element_size,
                                  rows.stride * element_size, rows.count, rows.item_pad * element_size);
      if (!matrix) return matrix.error();
      if (rows.has_pointers) tensor.items_.push_back(matrix->data());
      tensor.matrices_.push_back(std::move(*matrix));
    }
    tensor.matrix_bytes_ = rows.items / matrices * rows.count * rows.elements * element_size;
    return tensor;
  }

  // One of them is nullptr.
  uint8_t* data() const noexcept { return items_.empty() ? matrices_.front().data() : nullptr; }
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

// B as options lay it out, or a filter.
Rows WeightsOf(const reference::Gemm& gemm, const RunOptions& options) {
  const int64_t rows = options.b_by_columns ? gemm.n : gemm.k;
  const int64_t elements = options.b_by_columns ? gemm.k : gemm.n;
  return {rows,
          elements,
          elements + options.b_pad,
          gemm.has_own_b ? gemm.batch : 1,
          options.item_pad,
          gemm.has_own_b && options.item_pointers};
}
Rows WeightsOf(const reference::Conv& conv, const RunOptions& /*options*/) {
  return {1, std::ssize(conv.b), std::ssize(conv.b)};
}

std::vector<int8_t> LaidOut(const reference::Gemm& gemm, const RunOptions& options) {
  // A matrix' columns from its rows are as well those of its transpose.
  return options.b_by_columns ? reference::FromColumns(gemm.b, gemm.k, gemm.n) : gemm.b;
}
const std::vector<int8_t>& LaidOut(const reference::Conv& conv, const RunOptions& /*options*/) {
  return conv.b;
}

template <class Operation>
Result<GuardedTensor> LoadWeights(const Operation& operation, const RunOptions& options) {
  Result<GuardedTensor> b = GuardedTensor::Allocate(WeightsOf(operation, options), 1);
  if (b) b->Load(reinterpret_cast<const uint8_t*>(LaidOut(operation, options).data()));
  return b;
}

bool IsGivenByRuns(const reference::Gemm& gemm) { return gemm.has_own_b; }
bool IsGivenByRuns(const reference::Conv& /*conv*/) { return false; }

// The plan for exactly options.isa. `b` ends at a guard page while it is read.
template <class Plan, class Operation>
Result<Plan> CreateExactly(const Operation& operation, const RunOptions& options) {
  if (options.isa != INTACT_ISA_ANY && intact_isa_available(options.isa) == 0) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{} is not available on this machine", intact_isa_name(options.isa))};
  }
  std::optional<GuardedTensor> b;
  if (!IsGivenByRuns(operation)) {
    Result<GuardedTensor> weights = LoadWeights(operation, options);
    if (!weights) return weights.error();
    b = std::move(*weights);
  }
  Result<Plan> plan = Plan::Create(DescOf(operation, options), b ? b->data() : nullptr);
  if (!plan) return plan;
  const auto info = plan->Info();
  if (options.isa != INTACT_ISA_ANY && info.isa != options.isa) {
    return Error{INTACT_UNSUPPORTED, fmt::format("asked for {}, the plan chose {}",
                                                 intact_isa_name(options.isa), intact_isa_name(info.isa))};
  }
  if (info.mode != options.mode) return Failed("the plan has another mode than asked for");
  return plan;
}

Rows ItemRows(const reference::Gemm& gemm, int64_t columns, int64_t pad, const RunOptions& options) {
  return {gemm.m, columns, columns + pad, gemm.batch, options.item_pad, options.item_pointers};
}
Rows InputOf(const reference::Gemm& gemm, const RunOptions& options) {
  return ItemRows(gemm, gemm.k, options.a_pad, options);
}
Rows InputOf(const reference::Conv& conv, const RunOptions& options) {
  const int64_t channels = conv.geometry.input_channels;
  return {conv.geometry.InputPixels(), channels, channels + options.a_pad};
}
Rows OutputOf(const reference::Gemm& gemm, int64_t pad, const RunOptions& options) {
  return ItemRows(gemm, gemm.n, pad, options);
}
Rows OutputOf(const reference::Conv& conv, int64_t pad, const RunOptions& /*options*/) {
  const int64_t channels = conv.geometry.output_channels;
  return {conv.geometry.OutputPixels(), channels, channels + pad};
}
int64_t ResidualPad(const RunOptions& options) { return options.in_place ? options.c_pad : options.res_pad; }

// A as a run reads it.
struct Activations {
  const uint8_t* data;
  int64_t element_size;
};
Activations ActivationsOf(const reference::Gemm& gemm) {
  if (!gemm.is_dynamic()) return {gemm.a.data(), 1};
  return {gemm.a_source.data(), reference::ElementSize(gemm.a_source_type)};
}
Activations ActivationsOf(const reference::Conv& conv) { return {conv.a.data(), 1}; }

// The tensors of a run, and what else it reads.
struct GuardedRun {
  GuardedTensor a, c;
  std::optional<GuardedTensor> residual, b;
  std::vector<GuardedMatrix> vectors;

  // Where the residual is; nullptr if there is none.
  const GuardedTensor* Residual(const reference::Operation& operation, const RunOptions& options) const {
    if (operation.residual_type == INTACT_TYPE_NONE) return nullptr;
    return options.in_place ? &c : &*residual;
  }
};

// Moves `values`, if there are any, to guarded memory.
template <class T>
Error Guard(const T** values, int64_t count, GuardedRun* guarded) {
  if (*values == nullptr) return {};
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  Result<GuardedMatrix> matrix = GuardedMatrix::Allocate(1, bytes, bytes);
  if (!matrix) return matrix.error();
  matrix->Load(reinterpret_cast<const uint8_t*>(*values));
  *values = reinterpret_cast<const T*>(matrix->data());
  guarded->vectors.push_back(std::move(*matrix));
  return {};
}

// What runs of a GEMM alone read: pointers of items, their Bs, vectors of rows and of items.
Error GuardOthers(const reference::Gemm& gemm, const RunOptions& options, GuardedRun* guarded,
                  intact_gemm_args* args) {
  args->a_items = guarded->a.items();
  args->c_items = guarded->c.items();
  if (const GuardedTensor* residual = guarded->Residual(gemm, options)) {
    args->residual_items = residual->items();
  }
  if (gemm.has_own_b) {
    Result<GuardedTensor> b = LoadWeights(gemm, options);
    if (!b) return b.error();
    guarded->b = std::move(*b);
    args->b = guarded->b->data();
    args->b_items = guarded->b->items();
  }
  Error error = Guard(&args->a_zero_points, gemm.rows(), guarded);
  if (error.ok()) error = Guard(&args->a_scales, gemm.rows(), guarded);
  if (error.ok()) error = Guard(&args->b_scales, gemm.batch, guarded);
  if (error.ok()) error = Guard(&args->b_zero_points, gemm.batch, guarded);
  return error;
}
Error GuardOthers(const reference::Conv& /*conv*/, const RunOptions& /*options*/, GuardedRun* /*guarded*/,
                  intact_conv_args* /*args*/) {
  return {};
}

// Calls run(arguments), which returns an Error, on guarded tensors.
template <class Operation, class Run>
Result<std::vector<uint8_t>> RunBetweenGuards(const Operation& operation, const RunOptions& options,
                                              const Run& run) {
  const Activations input = ActivationsOf(operation);
  Result<GuardedTensor> a = GuardedTensor::Allocate(InputOf(operation, options), input.element_size);
  if (!a) return a.error();
  Result<GuardedTensor> c = GuardedTensor::Allocate(OutputOf(operation, options.c_pad, options),
                                                    reference::ElementSize(operation.c_type));
  if (!c) return c.error();
  a->Load(input.data);
  GuardedRun guarded{std::move(*a), std::move(*c), {}, {}, {}};
  if (operation.residual_type != INTACT_TYPE_NONE && options.in_place) {
    guarded.c.Write(operation.residual.data());
  } else if (operation.residual_type != INTACT_TYPE_NONE) {
    Result<GuardedTensor> residual = GuardedTensor::Allocate(OutputOf(operation, options.res_pad, options),
                                                             reference::ElementSize(operation.residual_type));
    if (!residual) return residual.error();
    residual->Load(operation.residual.data());
    guarded.residual = std::move(*residual);
  }
  Buffers buffers{guarded.a.data(), guarded.c.data()};
  if (const GuardedTensor* residual = guarded.Residual(operation, options))
    buffers.residual = residual->data();
  auto args = ArgsOf(operation, options, buffers);
  Error error = GuardOthers(operation, options, &guarded, &args);
  if (error.ok()) error = run(args);
  if (!error.ok()) return error;
  if (const std::optional<std::string> stray = guarded.c.StrayWrite()) {
    return Failed(fmt::format("wrote outside C: {}", *stray));
  }
  return guarded.c.Dense();
}

Error StatusError(intact_status status) { return {status, intact_last_error()}; }

// An error of RunGuarded() with the name of the kernel.
template <class Plan>
Result<std::vector<uint8_t>> Named(Result<std::vector<uint8_t>> output, const Plan& plan) {
  if (output || output.error().status != INTACT_CODEGEN_FAILED) return output;
  return Failed(fmt::format("kernel {} {}", plan.Info().kernel, output.error().message));
}

}  // namespace

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
  desc.linear = LinearDescOf(gemm, options);
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.usual_m = options.usual_m;
  desc.b_from_run = gemm.has_own_b ? 1 : 0;
  desc.linear.a_quantization = gemm.quantization;
  desc.linear.a_source_type = gemm.a_source_type;
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

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  return CreateExactly<Gemm>(gemm, options);
}

Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options) {
  return CreateExactly<Conv>(conv, options);
}

intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const Buffers& buffers) {
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = buffers.a;
  args.a_stride = gemm.k + options.a_pad;
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
  if (gemm.quantization == INTACT_QUANTIZATION_ROWS) {
    args.a_zero_points = DataOrNull(gemm.a_zero_points);
    args.a_scales = DataOrNull(gemm.a_scales);
  }
  if (!gemm.has_own_b) return args;
  args.b = gemm.b.data();
  if (options.item_pad + options.b_pad != 0) args.b_batch_stride = WeightsOf(gemm, options).ItemStride();
  args.b_scales = DataOrNull(gemm.item_scales);
  args.b_zero_points = DataOrNull(gemm.item_zero_points);
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
  return args;
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run) {
  return RunBetweenGuards(gemm, options, run);
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Conv& conv, const RunOptions& options,
                                        const std::function<Error(const intact_conv_args&)>& run) {
  return RunBetweenGuards(conv, options, run);
}

namespace {

// A plan as options ask for it, with the memory that a loaded one's weights stay in.
template <class Plan>
struct KeptPlan {
  std::optional<GuardedMatrix> image;
  Result<Plan> plan = Error{};
};

// Saves the plan and loads it again, from memory that ends at a guard page.
template <class Plan>
Error Reload(const RunOptions& options, KeptPlan<Plan>* kept) {
  const Result<std::vector<uint8_t>> bytes = kept->plan->SaveMemory();
  if (!bytes) return bytes.error();
  Result<GuardedMatrix> image = GuardedMatrix::Allocate(1, std::ssize(*bytes), std::ssize(*bytes));
  if (!image) return image.error();
  image->Load(bytes->data());
  kept->plan = Plan::LoadMemory(image->data(), bytes->size(), options.isa);
  kept->image = std::move(*image);
  return kept->plan ? Error() : kept->plan.error();
}

template <class Plan, class Operation>
Error Make(const Operation& operation, const RunOptions& options, KeptPlan<Plan>* kept) {
  kept->plan = CreatePlan(operation, options);
  if (!kept->plan) return kept->plan.error();
  return options.saved ? Reload(options, kept) : Error();
}

intact_status Prepare(const Gemm& plan, const intact_gemm_args& args, intact_run_info* info) {
  return intact_gemm_prepare(plan.handle(), &args, info);
}
intact_status Prepare(const Conv& plan, const intact_conv_args& args, intact_run_info* info) {
  return intact_conv_prepare(plan.handle(), &args, info);
}
intact_status RunOnce(const Gemm& plan, const intact_gemm_args& args) {
  return intact_gemm_run(plan.handle(), &args);
}
intact_status RunOnce(const Conv& plan, const intact_conv_args& args) {
  return intact_conv_run(plan.handle(), &args);
}

// In scratch that ends at a guard page, if it is to be the caller's.
template <class Plan, class Args>
Error RunAs(const Plan& plan, Args args, const RunOptions& options) {
  if (!options.own_scratch) return StatusError(RunOnce(plan, args));
  intact_run_info info = INTACT_RUN_INFO_INIT;
  Error error = StatusError(Prepare(plan, args, &info));
  if (!error.ok()) return error;
  const auto bytes = static_cast<int64_t>(info.scratch_bytes);
  Result<GuardedMatrix> scratch = GuardedMatrix::Allocate(1, bytes, bytes);
  if (!scratch) return scratch.error();
  args.scratch = scratch->data();
  args.scratch_bytes = info.scratch_bytes;
  error = StatusError(RunOnce(plan, args));
  if (!error.ok()) return error;
  const std::optional<std::string> stray = scratch->StrayWrite();
  return stray ? Failed(fmt::format("wrote outside its scratch: {}", *stray)) : Error();
}

template <class Plan, class Operation>
class HeldOperation : public HeldPlan {
 public:
  HeldOperation(Operation operation, const RunOptions& options)
      : operation_(std::move(operation)), options_(options) {}

  Error Create() { return Make(operation_, options_, &kept_); }

  Result<std::vector<uint8_t>> Run() const override {
    const auto run = [this](const auto& args) { return RunAs(*kept_.plan, args, options_); };
    return Named(RunGuarded(operation_, options_, run), *kept_.plan);
  }

 private:
  const Operation operation_;
  const RunOptions options_;
  KeptPlan<Plan> kept_;
};

template <class Plan, class Operation>
Result<std::unique_ptr<HeldPlan>> HoldPlan(Operation operation, const RunOptions& options) {
  auto held = std::make_unique<HeldOperation<Plan, Operation>>(std::move(operation), options);
  Error error = held->Create();
  if (!error.ok()) return error;
  return std::unique_ptr<HeldPlan>(std::move(held));
}

}  // namespace

Result<std::unique_ptr<HeldPlan>> Hold(reference::Gemm gemm, const RunOptions& options) {
  return HoldPlan<Gemm>(std::move(gemm), options);
}

Result<std::unique_ptr<HeldPlan>> Hold(reference::Conv conv, const RunOptions& options) {
  return HoldPlan<Conv>(std::move(conv), options);
}

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Gemm& gemm, const RunOptions& options) const {
  // Kernels go with their last plan: each plan lives until the next one is made, and neighbours share them.
  thread_local KeptPlan<Gemm> kept;
  const Error error = Make(gemm, options, &kept);
  if (!error.ok()) return error;
  const auto run = [&](const intact_gemm_args& args) { return RunAs(*kept.plan, args, options); };
  return Named(RunGuarded(gemm, options, run), *kept.plan);
}

Result<std::vector<uint8_t>> IntactTarget::RunConv(const reference::Conv& conv,
                                                   const RunOptions& options) const {
  thread_local KeptPlan<Conv> kept;  // until the next one is made, as in Run()
  const Error error = Make(conv, options, &kept);
  if (!error.ok()) return error;
  const auto run = [&](const intact_conv_args& args) { return RunAs(*kept.plan, args, options); };
  return Named(RunGuarded(conv, options, run), *kept.plan);
}

std::vector<int8_t> StoredWeights(const reference::Gemm& gemm, const RunOptions& options) {
  if (IsGivenByRuns(gemm)) return {};
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

}  // namespace intact::verify
