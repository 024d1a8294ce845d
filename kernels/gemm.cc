#include "kernels/gemm.h"

#include <omp.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace intact::kernels {
namespace {

// Requantization is defined in the default floating-point environment; callers may have set another. Each
// thread has its own.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~ScopedFloatEnvironment() {
    if (saved_ != kDefault) _mm_setcsr(saved_);
  }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  static constexpr unsigned kDefault =
      0x1f80;  // all exceptions masked, round to nearest even, no flush to zero
  unsigned saved_;
};

// Scratch memory of the calling thread, kept between runs.
uint8_t* ThreadScratch(int64_t bytes) {
  thread_local AlignedBuffer<uint8_t> buffer;
  if (buffer.size() < static_cast<size_t>(bytes) && !buffer.Resize(static_cast<size_t>(bytes)))
    return nullptr;
  return buffer.data();
}

Error OutOfMemory(const char* what) { return {INTACT_OUT_OF_MEMORY, std::string("no memory for ") + what}; }

// What one column can accumulate before zero points and bias: Σ of the most negative and most positive terms.
struct ColumnBound {
  int64_t sum = 0;  // of the weights
  int64_t lowest = 0, highest = 0;
};

ColumnBound BoundColumn(const PackedWeights& weights, int64_t column, bool pairs_saturate) {
  constexpr int64_t kActivationMax = 255;
  ColumnBound bound;
  for (int64_t k = 0; k < weights.k; k += 2) {
    const int64_t w0 = weights.At(k, column);
    const int64_t w1 = k + 1 < weights.k ? weights.At(k + 1, column) : 0;
    bound.sum += w0 + w1;
    int64_t lowest = kActivationMax * (std::min<int64_t>(w0, 0) + std::min<int64_t>(w1, 0));
    int64_t highest = kActivationMax * (std::max<int64_t>(w0, 0) + std::max<int64_t>(w1, 0));
    if (pairs_saturate) {
      lowest = std::max<int64_t>(lowest, std::numeric_limits<int16_t>::min());
      highest = std::min<int64_t>(highest, std::numeric_limits<int16_t>::max());
    }
    bound.lowest += lowest;
    bound.highest += highest;
  }
  return bound;
}

}  // namespace

Result<std::unique_ptr<GemmPlan>> GemmPlan::Create(const intact_gemm_desc& desc, const void* b) {
  const Result<GemmProblem> problem = CheckDescriptor(desc, b);
  if (!problem) return problem.error();
  const Result<jit::Isa> isa = ChooseIsa(problem->isas);
  if (!isa) return isa.error();
  std::unique_ptr<GemmPlan> plan(new GemmPlan);
  plan->n_ = problem->n;
  plan->k_ = problem->k;
  plan->mode_ = problem->mode;
  plan->element_bytes_ = ElementBytes(problem->epilogue.c_type);
  plan->a_flip_ = problem->a_flip();
  plan->block_ = ChooseKernel(*isa, problem->mode);
  plan->nr_ = MicrokernelSpec{*isa, plan->block_.dot, 1, plan->block_.vectors, {}}.nr();
  plan->lanes_ = plan->nr_ / plan->block_.vectors;
  if (!PackWeights(problem->b, &plan->weights_)) return OutOfMemory("packed weights");
  for (const auto step : {&GemmPlan::PackColumns, &GemmPlan::BoundAccumulators}) {
    Error error = (plan.get()->*step)(*problem);
    if (error.status != INTACT_OK) return error;
  }
  Error error = plan->GenerateKernels(problem->epilogue);
  if (error.status != INTACT_OK) return error;
  return plan;
}

Error GemmPlan::PackColumns(const GemmProblem& problem) {
  const auto padded = static_cast<size_t>(weights_.panels() * kPanelColumns);
  if (!initial_.Resize(padded)) return OutOfMemory("column sums");
  std::fill_n(initial_.data(), padded, 0);
  if (problem.epilogue.c_type == INTACT_S32) return {};
  if (!scales_.Resize(padded) || (problem.epilogue.has_bias && !bias_.Resize(padded)))
    return OutOfMemory("scales");
  for (int64_t n = 0; n < static_cast<int64_t>(padded); ++n) {
    const int64_t column = std::min(n, n_ - 1);  // padding columns are computed and dropped
    scales_[static_cast<size_t>(n)] = problem.scales[problem.scale_count == 1 ? 0 : column];
    if (problem.epilogue.has_bias) bias_[static_cast<size_t>(n)] = problem.bias_f32[column];
  }
  epilogue_ = {nullptr, nullptr, problem.lo, problem.hi, problem.c_zero_point};
  return {};
}

Error GemmPlan::BoundAccumulators(const GemmProblem& problem) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  accumulator_min_ = kMax;
  accumulator_max_ = kMin;
  for (int64_t n = 0; n < n_; ++n) {
    const ColumnBound bound = BoundColumn(weights_, n, block_.dot == jit::DotKind::kTriple);
    const int64_t bias = problem.bias_s32 == nullptr ? 0 : problem.bias_s32[n];
    const int64_t initial = bias - problem.shifted_zero_point() * bound.sum;
    const int64_t lowest = initial + bound.lowest;
    const int64_t highest = initial + bound.highest;
    if (lowest < kMin || highest > kMax) {
      return {INTACT_OVERFLOW, "column " + std::to_string(n) + " of b can accumulate " +
                                   std::to_string(lowest < kMin ? lowest : highest) +
                                   ", which leaves int32; k is " + std::to_string(k_)};
    }
    accumulator_min_ = std::min(accumulator_min_, lowest);
    accumulator_max_ = std::max(accumulator_max_, highest);
    // Modulo 2³²: intermediate sums may wrap, the final one is proven to fit.
    initial_[static_cast<size_t>(n)] = static_cast<int32_t>(static_cast<uint32_t>(initial));
  }
  return {};
}

Error GemmPlan::GenerateKernels(const EpilogueSpec& epilogue) {
  functions_.assign(static_cast<size_t>(block_.mr * block_.vectors), nullptr);
  const int64_t edge = (n_ % nr_ + lanes_ - 1) / lanes_;  // vectors of the last, narrower tiles
  for (const int64_t vectors : {n_ >= nr_ ? int64_t{block_.vectors} : int64_t{0}, edge}) {
    for (int rows = 1; vectors > 0 && rows <= block_.mr; ++rows) {
      const MicrokernelSpec spec{block_.isa, block_.dot, rows, static_cast<int>(vectors), epilogue};
      const Result<MicrokernelFunction> function = GetMicrokernel(spec);
      if (!function) return function.error();
      functions_[static_cast<size_t>((vectors - 1) * block_.mr + rows - 1)] = *function;
      if (rows == block_.mr && kernel_name_.empty()) kernel_name_ = spec.Name();
    }
  }
  return {};
}

int64_t GemmPlan::packed_bytes() const {
  return static_cast<int64_t>(weights_.data.bytes() + initial_.bytes() + scales_.bytes() + bias_.bytes());
}

Error GemmPlan::CheckArguments(const intact_gemm_args& args) const noexcept {
  const auto invalid = [](const char* name, int64_t value, const char* expected) {
    return Error{INTACT_INVALID_ARGUMENT,
                 std::string(name) + " is " + std::to_string(value) + "; expected " + expected};
  };
  if (args.struct_size != sizeof(intact_gemm_args)) {
    return invalid("args->struct_size", static_cast<int64_t>(args.struct_size),
                   "that of INTACT_GEMM_ARGS_INIT");
  }
  if (args.m < 1 || args.m > std::numeric_limits<int32_t>::max())
    return invalid("m", args.m, "1 to 2147483647");
  if (args.a == nullptr) return {INTACT_INVALID_ARGUMENT, "a is NULL"};
  if (args.c == nullptr) return {INTACT_INVALID_ARGUMENT, "c is NULL"};
  if (args.a_stride != 0 && args.a_stride < k_) return invalid("a_stride", args.a_stride, "0 or at least k");
  if (args.c_stride != 0 && args.c_stride < n_) return invalid("c_stride", args.c_stride, "0 or at least n");
  if (args.threads < 0) return invalid("threads", args.threads, "0 or more");
  return {};
}

int64_t GemmPlan::ScratchBytes(int64_t rows) const {
  const int64_t panels = ActivationPanelBytes(std::min(rows, RowsPerBlock(k_, block_.mr)), k_);
  const int64_t tile = int64_t{4} * block_.mr * nr_;
  return (panels + 63) / 64 * 64 + (tile + 63) / 64 * 64;
}

Error GemmPlan::Run(const intact_gemm_args& args) const noexcept {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  const int64_t tiles = ((args.m + block_.mr - 1) / block_.mr) * ((n_ + nr_ - 1) / nr_);
  const int64_t wanted = args.threads == 0 ? omp_get_max_threads() : args.threads;
  const int parts = static_cast<int>(std::min(wanted, tiles));
  const int64_t bytes = ScratchBytes(args.m);
  uint8_t* scratch = ThreadScratch(bytes * parts);
  if (scratch == nullptr) return OutOfMemory("panels of a");
  if (parts == 1) {
    RunRange(args, {0, args.m, 0, n_}, scratch);
    return {};
  }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    RunRange(args, Partition(args.m, n_, block_.mr, nr_, part, parts), scratch + part * bytes);
  }
  return {};
}

Error GemmPlan::RunPart(const intact_gemm_args& args, int part, int parts) const noexcept {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  if (parts < 1 || part < 0 || part >= parts) {
    return {INTACT_INVALID_ARGUMENT,
            "part is " + std::to_string(part) + " of " + std::to_string(parts) + "; expected 0 to parts − 1"};
  }
  uint8_t* scratch = ThreadScratch(ScratchBytes(args.m));
  if (scratch == nullptr) return OutOfMemory("panels of a");
  RunRange(args, Partition(args.m, n_, block_.mr, nr_, part, parts), scratch);
  return {};
}

void GemmPlan::RunRange(const intact_gemm_args& args, const Range& range, uint8_t* scratch) const noexcept {
  if (range.Empty()) return;
  const ScopedFloatEnvironment float_environment;
  const int64_t block_rows = RowsPerBlock(k_, block_.mr);
  const int64_t a_stride = args.a_stride == 0 ? k_ : args.a_stride;
  uint8_t* const panels = scratch + (int64_t{4} * block_.mr * nr_ + 63) / 64 * 64;
  for (int64_t block = range.row_begin; block < range.row_end; block += block_rows) {
    const int64_t block_end = std::min(range.row_end, block + block_rows);
    const auto panel_at = [&](int64_t row) { return panels + ActivationPanelBytes(row - block, k_); };
    const auto rows_at = [&](int64_t row) { return std::min<int64_t>(block_.mr, block_end - row); };
    for (int64_t row = block; row < block_end; row += block_.mr) {
      PackActivations(static_cast<const uint8_t*>(args.a) + row * a_stride, a_stride, rows_at(row), k_,
                      a_flip_, panel_at(row));
    }
    for (int64_t column = range.column_begin; column < range.column_end; column += nr_) {
      const int64_t columns = std::min<int64_t>(nr_, range.column_end - column);
      for (int64_t row = block; row < block_end; row += block_.mr) {
        RunTile(args, row, rows_at(row), column, columns, panel_at(row), scratch);
      }
    }
  }
}

void GemmPlan::RunTile(const intact_gemm_args& args, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const uint8_t* panel, uint8_t* scratch_tile) const noexcept {
  const int64_t vectors = (columns + lanes_ - 1) / lanes_;
  const bool is_edge = columns % lanes_ != 0;
  const int64_t c_stride_bytes = (args.c_stride == 0 ? n_ : args.c_stride) * element_bytes_;
  uint8_t* const c = static_cast<uint8_t*>(args.c) + row * c_stride_bytes + column * element_bytes_;
  MicrokernelArgs call;
  call.a = panel;
  call.b = weights_.Panel(column / kPanelColumns) + column % kPanelColumns * kQuad;
  call.b_panel_stride_bytes = weights_.panel_stride_bytes();
  call.quads = weights_.quads();
  call.c = is_edge ? scratch_tile : c;
  call.c_stride_bytes = is_edge ? int64_t{nr_} * element_bytes_ : c_stride_bytes;
  call.initial = initial_.data() + column;
  call.epilogue = epilogue_;
  call.epilogue.scales = scales_.data() + column;
  call.epilogue.bias = bias_.data() + column;
  Kernel(rows, vectors)(&call);
  if (!is_edge) return;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * c_stride_bytes, scratch_tile + i * call.c_stride_bytes,
                static_cast<size_t>(columns * element_bytes_));
  }
}

}  // namespace intact::kernels
