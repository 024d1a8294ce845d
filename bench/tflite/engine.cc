// A small engine for int8 TFLite models: products and convolutions by bound runs on one thread, other
// operators by loops of its own. compare.py adds the operators of a model one by one, and owns the tensors.
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <intact/bound.hpp>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// The CPU time of this thread, which other programs hardly change.
double Microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

}  // namespace

/// A saved plan, in memory that plans can be loaded from.
struct SavedPlan {
  struct alignas(64) Line {
    std::array<uint8_t, 64> bytes;
  };
  std::vector<Line> lines;
  size_t size;
  bool is_convolution;
};

struct TfliteEngine {
  std::vector<std::function<bool()>> steps;  // they own the plans
  std::vector<SavedPlan> saved;
  std::string error;
  double create_microseconds = 0;  // of all plans
};

/// A product or a convolution. Outputs are clamped to [low, high].
struct TfliteLinear {
  const int8_t* input;
  int8_t* output;
  const int8_t* weights;
  const int32_t* bias;  // or null
  const float* scales;
  int64_t scale_count;
  int32_t input_zero, output_zero, low, high;
};

/// An input of an addition.
struct TfliteAddend {
  const int8_t* input;
  int32_t multiplier;  // of XNNPACK's fixed-point arithmetic
};

namespace {

bool Succeeded(const intact::Error& error, TfliteEngine* engine) {
  if (!error.ok()) engine->error = error.message;
  return error.ok();
}

void SetLinear(const TfliteLinear& layer, intact_linear_desc* linear) {
  linear->a_type = linear->c_type = INTACT_S8;
  linear->a_zero_point = layer.input_zero;
  linear->c_zero_point = layer.output_zero;
  linear->bias_s32 = layer.bias;
  linear->scales = layer.scales;
  linear->scale_count = layer.scale_count;
  if (layer.low > -128 || layer.high < 127) {
    linear->activation = INTACT_ACTIVATION_CLAMP;
    linear->clamp_min = static_cast<float>(layer.low - layer.output_zero);
    linear->clamp_max = static_cast<float>(layer.high - layer.output_zero);
  }
}

// Adds a step that runs a plan. The plan is also saved, for TfliteLoad().
template <class Plan, class Desc, class Args>
bool AddPlan(const Desc& desc, const TfliteLinear& layer, Args args, TfliteEngine* engine) {
  const double start = Microseconds();
  auto plan = Plan::Create(desc, layer.weights);
  engine->create_microseconds += Microseconds() - start;
  if (!plan) return Succeeded(plan.error(), engine);

  const auto saved = plan->SaveMemory();
  if (!saved) return Succeeded(saved.error(), engine);
  SavedPlan& held = engine->saved.emplace_back();
  held.lines.resize(saved->size() / sizeof(SavedPlan::Line) + 1);
  std::memcpy(held.lines.data(), saved->data(), saved->size());
  held.size = saved->size();
  held.is_convolution = std::is_same_v<Plan, intact::Conv>;

  args.a = layer.input;
  args.c = layer.output;
  args.threads = 1;
  auto bound = intact::Bound::Create(*plan, args);
  if (!bound) return Succeeded(bound.error(), engine);
  struct Step {
    Plan plan;  // outlives the bound run
    intact::Bound bound;
  };
  auto kept = std::make_shared<Step>(std::move(*plan), std::move(*bound));
  engine->steps.emplace_back([=, kept = std::move(kept)] { return Succeeded(kept->bound.Run(), engine); });
  return true;
}

// Loops that the compiler makes for each kind of CPU.

[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void Add(TfliteAddend a, TfliteAddend b,
                                                                     int64_t count, int32_t bias,
                                                                     int32_t shift, int32_t zero, int32_t low,
                                                                     int8_t* output) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t sum = (bias + a.input[i] * a.multiplier + b.input[i] * b.multiplier) >> shift;
    output[i] = static_cast<int8_t>(std::clamp(sum + zero, low, 127));
  }
}

// The mean of all pixels of each channel. Halves are rounded away from zero.
[[gnu::target_clones("arch=x86-64-v4", "avx2", "default")]] void Average(const int8_t* input, int32_t pixels,
                                                                         size_t channels, int32_t* sums,
                                                                         int8_t* output) {
  std::fill_n(sums, channels, 0);
  for (int32_t pixel = 0; pixel < pixels; ++pixel, input += channels) {
    for (size_t channel = 0; channel < channels; ++channel) sums[channel] += input[channel];
  }
  for (size_t channel = 0; channel < channels; ++channel) {
    const int32_t half = sums[channel] > 0 ? pixels / 2 : -(pixels / 2);
    output[channel] = static_cast<int8_t>((sums[channel] + half) / pixels);
  }
}

// exponents[i] is exp(-beta·scale·i). The outputs have scale 1/256 and zero point −128.
void Softmax(const int8_t* input, int64_t count, const float* exponents, int8_t* output) {
  const int32_t most = *std::max_element(input, input + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += exponents[most - input[i]];
  const float scale = 256.0F / sum;
  for (int64_t i = 0; i < count; ++i) {
    const auto rounded = static_cast<int32_t>(exponents[most - input[i]] * scale + 0.5F);
    output[i] = static_cast<int8_t>(std::min(rounded, 255) - 128);
  }
}

}  // namespace

extern "C" {

TfliteEngine* TfliteCreate() { return new TfliteEngine; }
void TfliteDestroy(TfliteEngine* engine) { delete engine; }
const char* TfliteError(const TfliteEngine* engine) { return engine->error.c_str(); }
double TfliteCreateMicroseconds(const TfliteEngine* engine) { return engine->create_microseconds; }

/// Weights are n×k.
bool TfliteAddProduct(TfliteEngine* engine, const TfliteLinear* layer, int64_t m, int64_t n, int64_t k) {
  intact::GemmDesc desc = intact::MakeGemmDesc();
  desc.n = n;
  desc.k = k;
  desc.b_stride_k = 1;
  desc.b_stride_n = k;
  desc.usual_m = m;
  SetLinear(*layer, &desc.linear);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = m;
  return AddPlan<intact::Gemm>(desc, *layer, args, engine);
}

/// Weights are OHWI, with the channels of a group as I. The arrays have a number for height and width.
// NOLINTNEXTLINE(google-readability-function-size): Python calls it through C
bool TfliteAddConvolution(TfliteEngine* engine, const TfliteLinear* layer, int64_t batch, int64_t inputs,
                          int64_t outputs, int64_t groups, const int64_t* input, const int64_t* kernel,
                          const int64_t* stride, const int64_t* dilation, const int64_t* pad_begin,
                          const int64_t* pad_end) {
  intact::ConvDesc desc = intact::MakeConvDesc();
  desc.input_channels = inputs;
  desc.output_channels = outputs;
  desc.groups = groups;
  for (int i = 0; i < 2; ++i) {
    desc.input[i] = input[i];
    desc.kernel[i] = kernel[i];
    desc.stride[i] = stride[i];
    desc.dilation[i] = dilation[i];
    desc.pad_begin[i] = pad_begin[i];
    desc.pad_end[i] = pad_end[i];
  }
  SetLinear(*layer, &desc.linear);
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = batch;
  return AddPlan<intact::Conv>(desc, *layer, args, engine);
}

void TfliteAddAddition(TfliteEngine* engine, const TfliteAddend* a, const TfliteAddend* b, int64_t count,
                       int32_t bias, int32_t shift, int32_t zero, int32_t low, int8_t* output) {
  engine->steps.emplace_back([=, a = *a, b = *b] {
    Add(a, b, count, bias, shift, zero, low, output);
    return true;
  });
}

void TfliteAddAverage(TfliteEngine* engine, const int8_t* input, int32_t pixels, int64_t channels,
                      int8_t* output) {
  const auto count = static_cast<size_t>(channels);
  engine->steps.emplace_back([=, sums = std::vector<int32_t>(count)]() mutable {
    Average(input, pixels, count, sums.data(), output);
    return true;
  });
}

void TfliteAddSoftmax(TfliteEngine* engine, const int8_t* input, int64_t count, float scale, int8_t* output) {
  std::array<float, 256> exponents;
  for (size_t i = 0; i < exponents.size(); ++i) exponents[i] = std::exp(-scale * static_cast<float>(i));
  engine->steps.emplace_back([=] {
    Softmax(input, count, exponents.data(), output);
    return true;
  });
}

/// Runs the model `times` times and returns the microseconds of a run, or −1: see TfliteError().
double TfliteRun(TfliteEngine* engine, int64_t times) {
  const double start = Microseconds();
  for (int64_t i = 0; i < times; ++i) {
    for (auto& step : engine->steps) {
      if (!step()) return -1;
    }
  }
  return (Microseconds() - start) / static_cast<double>(times);
}

/// Destroys the plans, and with them their code. Then loads the saved plans and keeps them until all are
/// loaded. Returns the microseconds of the loading, or −1: see TfliteError(). The engine has no steps then.
double TfliteLoad(TfliteEngine* engine) {
  engine->steps.clear();
  std::vector<intact::Gemm> products;
  std::vector<intact::Conv> convolutions;
  products.reserve(engine->saved.size());
  convolutions.reserve(engine->saved.size());
  const auto load = [&]<class Plan>(const SavedPlan& saved, std::vector<Plan>* plans) {
    auto plan = Plan::LoadMemory(saved.lines.data(), saved.size);
    if (!plan) return Succeeded(plan.error(), engine);
    plans->push_back(std::move(*plan));
    return true;
  };
  const double start = Microseconds();
  for (const SavedPlan& saved : engine->saved) {
    if (!(saved.is_convolution ? load(saved, &convolutions) : load(saved, &products))) return -1;
  }
  return Microseconds() - start;
}

/// Microseconds of a run of one step, or −1: see TfliteError().
double TfliteRunStep(TfliteEngine* engine, int64_t step, int64_t times) {
  const double start = Microseconds();
  for (int64_t i = 0; i < times; ++i) {
    if (!engine->steps[static_cast<size_t>(step)]()) return -1;
  }
  return (Microseconds() - start) / static_cast<double>(times);
}

}  // extern "C"
