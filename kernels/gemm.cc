#include "kernels/gemm.h"

#include <omp.h>
#include <xmmintrin.h>

#include <algorithm>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/grouped_engine.h"
#include "kernels/panel_engine.h"

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
  plan->isa_ = *isa;
  plan->mode_ = problem->mode;
  plan->data_.n = problem->n;
  plan->data_.k = problem->k;
  plan->data_.a_flip = problem->a_flip();
  plan->data_.epilogue = problem->epilogue;
  if (!PackWeights(problem->b, &plan->data_.weights)) return OutOfMemory("packed weights");
  for (const auto step : {&GemmPlan::SetColumns, &GemmPlan::BoundAccumulators}) {
    Error error = (plan.get()->*step)(*problem);
    if (error.status != INTACT_OK) return error;
  }
  Error error = plan->MakeEngines();
  if (error.status != INTACT_OK) return error;
  return plan;
}

Error GemmPlan::SetColumns(const GemmProblem& problem) {
  const auto padded = static_cast<size_t>(data_.weights.panels() * kPanelColumns);
  if (!data_.initial.Resize(padded)) return OutOfMemory("column sums");
  std::fill_n(data_.initial.data(), padded, 0);
  if (problem.epilogue.c_type == INTACT_S32) return {};
  if (!data_.scales.Resize(padded)) return OutOfMemory("scales");
  if (problem.epilogue.has_bias && !data_.bias.Resize(padded)) return OutOfMemory("bias");
  for (size_t n = 0; n < padded; ++n) {
    const size_t column =
        std::min(n, static_cast<size_t>(data_.n) - 1);  // padding columns are computed and dropped
    data_.scales[n] = problem.scales[problem.scale_count == 1 ? 0 : column];
    if (problem.epilogue.has_bias) data_.bias[n] = problem.bias_f32[column];
  }
  data_.bounds = {nullptr, nullptr, problem.lo, problem.hi, problem.c_zero_point};
  return {};
}

Error GemmPlan::BoundAccumulators(const GemmProblem& problem) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  accumulator_min_ = kMax;
  accumulator_max_ = kMin;
  for (int64_t n = 0; n < data_.n; ++n) {
    const ColumnBound bound = BoundColumn(data_.weights, n, PairsSaturate(isa_, mode_));
    const int64_t bias = problem.bias_s32 == nullptr ? 0 : problem.bias_s32[n];
    const int64_t initial = bias - problem.shifted_zero_point() * bound.sum;
    const int64_t lowest = initial + bound.lowest;
    const int64_t highest = initial + bound.highest;
    if (lowest < kMin || highest > kMax) {
      return {INTACT_OVERFLOW, "column " + std::to_string(n) + " of b can accumulate " +
                                   std::to_string(lowest < kMin ? lowest : highest) +
                                   ", which leaves int32; k is " + std::to_string(data_.k)};
    }
    accumulator_min_ = std::min(accumulator_min_, lowest);
    accumulator_max_ = std::max(accumulator_max_, highest);
    // Modulo 2³²: intermediate sums may wrap, the final one is proven to fit.
    data_.initial[static_cast<size_t>(n)] = static_cast<int32_t>(static_cast<uint32_t>(initial));
  }
  return {};
}

Error GemmPlan::MakeEngines() {
  Result<std::unique_ptr<Engine>> panel = PanelEngine::Create(data_, ChooseKernel(isa_, mode_));
  if (!panel) return panel.error();
  engines_.push_back(std::move(*panel));
  if (UsesSchedule(isa_, mode_)) {
    Result<std::unique_ptr<Engine>> grouped = GroupedEngine::Create(data_, isa_);
    if (!grouped) return grouped.error();
    engines_.push_back(std::move(*grouped));
  }
  constexpr int64_t kLargeM = 1024;
  kernel_name_ = EngineFor(kLargeM).KernelName();
  return {};
}

int64_t GemmPlan::packed_bytes() const {
  size_t bytes =
      data_.weights.data.bytes() + data_.initial.bytes() + data_.scales.bytes() + data_.bias.bytes();
  for (const auto& engine : engines_) bytes += static_cast<size_t>(engine->packed_bytes());
  return static_cast<int64_t>(bytes);
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
  if (args.a_stride != 0 && args.a_stride < data_.k)
    return invalid("a_stride", args.a_stride, "0 or at least k");
  if (args.c_stride != 0 && args.c_stride < data_.n)
    return invalid("c_stride", args.c_stride, "0 or at least n");
  if (args.threads < 0) return invalid("threads", args.threads, "0 or more");
  return {};
}

RunBuffers GemmPlan::BuffersOf(const intact_gemm_args& args) const {
  return {static_cast<const uint8_t*>(args.a), args.a_stride == 0 ? data_.k : args.a_stride,
          static_cast<uint8_t*>(args.c),
          (args.c_stride == 0 ? data_.n : args.c_stride) * data_.element_bytes()};
}

const Engine& GemmPlan::EngineFor(int64_t m) const {
  const auto cheaper = [&](const auto& a, const auto& b) { return a->Cost(m) < b->Cost(m); };
  return **std::min_element(engines_.begin(), engines_.end(), cheaper);
}

Error GemmPlan::Run(const intact_gemm_args& args) const noexcept {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  const Engine& engine = EngineFor(args.m);
  const RunBuffers buffers = BuffersOf(args);
  const int64_t tiles = TileCount(args.m, data_.n, engine.mr(), engine.nr());
  const int64_t wanted = args.threads == 0 ? omp_get_max_threads() : args.threads;
  const int parts = static_cast<int>(std::min(wanted, tiles));
  const int64_t bytes = RoundUp(engine.ScratchBytes(args.m), 64);
  uint8_t* scratch = ThreadScratch(bytes * parts);
  if (scratch == nullptr) return OutOfMemory("panels of a");
  const auto run_part = [&](int part) {
    const ScopedFloatEnvironment float_environment;
    const Range range = Partition(args.m, data_.n, engine.mr(), engine.nr(), part, parts);
    if (!range.Empty()) engine.RunRange(buffers, range, scratch + part * bytes);
  };
  if (parts == 1) {
    run_part(0);
    return {};
  }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) run_part(part);
  return {};
}

Error GemmPlan::RunPart(const intact_gemm_args& args, int part, int parts) const noexcept {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  if (parts < 1 || part < 0 || part >= parts) {
    return {INTACT_INVALID_ARGUMENT,
            "part is " + std::to_string(part) + " of " + std::to_string(parts) + "; expected 0 to parts − 1"};
  }
  const Engine& engine = EngineFor(args.m);
  uint8_t* scratch = ThreadScratch(engine.ScratchBytes(args.m));
  if (scratch == nullptr) return OutOfMemory("panels of a");
  const Range range = Partition(args.m, data_.n, engine.mr(), engine.nr(), part, parts);
  const ScopedFloatEnvironment float_environment;
  if (!range.Empty()) engine.RunRange(BuffersOf(args), range, scratch);
  return {};
}

}  // namespace intact::kernels
