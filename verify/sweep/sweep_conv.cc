#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "support/random.h"
#include "verify/problem/random_problem.h"
#include "verify/sweep/sweep_problems.h"

namespace intact::verify {
namespace {

// Around the edges, in the words of problem lines.
constexpr std::string_view kGeometries[] = {
    // One tap: rows are read in place. One image, several, and strides.
    "in=1 c=1 o=1 kernel=1",
    "in=7x9 c=16 o=16 kernel=1x1",
    "in=8x8 c=33 o=17 kernel=1x1 batch=2",
    "in=9x7 c=64 o=48 kernel=1x1 stride=2x2",
    "in=5x5 c=12 o=24 kernel=1x1 groups=3 batch=3",
    "in=4x4 c=8 o=8 kernel=1x1 pad=1x1",
    "in=6x5 c=20 o=10 kernel=1x1 stride=3x2 pad=2x0:0x1",
    // Filters of every extent, padding to keep the size and none.
    "in=8x8 c=16 o=16 kernel=3x3 pad=1x1",
    "in=8x8 c=64 o=64 kernel=3x3",
    "in=9x9 c=48 o=33 kernel=3x3 stride=2x2 pad=1x1",
    "in=12x12 c=8 o=16 kernel=5x5 pad=2x2",
    "in=10x10 c=7 o=9 kernel=4x4 pad=1x1:2x2",
    "in=7x7 c=15 o=5 kernel=2x2 stride=2x2 batch=3",
    "in=9x6 c=10 o=12 kernel=1x3 pad=0x1",
    "in=6x9 c=10 o=12 kernel=3x1 pad=1x0",
    "in=6x11 c=5 o=7 kernel=2x5 stride=1x2 pad=1x3:0x2 batch=2",
    // First layers.
    "in=17x17 c=3 o=16 kernel=7x7 stride=2x2 pad=3x3",
    "in=12x12 c=3 o=24 kernel=5x5 stride=2x2 pad=2x2 batch=2",
    "in=10x10 c=3 o=8 kernel=3x3 stride=2x2 pad=0x0:1x1",
    "in=16x16 c=1 o=6 kernel=5x5",
    "in=13x11 c=2 o=17 kernel=3x3 pad=1x1",
    "in=12x12 c=4 o=32 kernel=4x4 stride=4x4",
    // The kernel is larger than the input.
    "in=2x2 c=16 o=16 kernel=3x3 pad=1x1",
    "in=1x1 c=32 o=17 kernel=3x3 pad=1x1 batch=3",
    "in=3x2 c=5 o=6 kernel=7x5 pad=3x3:4x2",
    "in=2 c=4 o=3 kernel=9 pad=8",
    "in=1x1 c=8 o=8 kernel=5x5 pad=4x4 groups=8",
    // The padding is as large as the kernel or larger: outputs that see nothing of the input.
    "in=4x4 c=8 o=16 kernel=3x3 pad=3x3",
    "in=3x3 c=6 o=5 kernel=2x2 pad=4x5:2x3",
    "in=2x3 c=16 o=16 kernel=1x1 pad=2x2 stride=2x2",
    "in=3 c=7 o=9 kernel=2 pad=9:0 stride=3",
    "in=3x3 c=12 o=12 kernel=3x3 pad=5x5 groups=12",
    // The stride is larger than the kernel, or than the input.
    "in=11x11 c=16 o=16 kernel=2x2 stride=5x3",
    "in=9x9 c=9 o=8 kernel=1x1 stride=4x4",
    "in=5x5 c=8 o=8 kernel=3x3 stride=7x9 pad=1x1",
    "in=1x2x2 c=4 o=5 kernel=1x1x1 stride=2x2x2 batch=3",
    "in=1x3 c=64 o=16 kernel=1x3 stride=1x65536 groups=16",
    "in=13x13 c=16 o=16 kernel=2x3 stride=4x5 pad=1x1 groups=16",
    // One output pixel.
    "in=3x3 c=16 o=32 kernel=3x3",
    "in=7x7 c=17 o=5 kernel=7x7 batch=2",
    "in=5x4 c=32 o=64 kernel=5x4 groups=32",
    "in=3x3x3 c=4 o=16 kernel=3x3x3",
    // Dilation, to beyond the input.
    "in=9x9 c=16 o=16 kernel=3x3 dilation=2x2 pad=2x2",
    "in=9x9 c=6 o=10 kernel=3x3 dilation=3x2",
    "in=4x4 c=8 o=8 kernel=3x3 dilation=5x7 pad=5x7",
    "in=3x3 c=4 o=4 kernel=2x2 dilation=9x9 pad=5x5:6x6",
    "in=8x8 c=8 o=8 kernel=3x3 dilation=2x2 pad=2x2 groups=8",
    "in=10 c=3 o=5 kernel=4 dilation=3 stride=2 pad=5:4",
    // Depthwise, of multipliers 1, 2 and 3.
    "in=8x8 c=32 o=32 kernel=3x3 pad=1x1 groups=32",
    "in=9x7 c=33 o=33 kernel=3x3 stride=2x2 pad=1x1 groups=33",
    "in=7x7 c=17 o=34 kernel=3x3 pad=1x1 groups=17",
    "in=10x10 c=48 o=48 kernel=5x5 pad=2x2 groups=48",
    "in=9x9 c=16 o=16 kernel=7x7 pad=3x3 groups=16",
    "in=6x6 c=5 o=15 kernel=3x3 groups=5 batch=2",
    "in=12 c=64 o=64 kernel=5 pad=4:0 groups=64",
    "in=4x5x6 c=20 o=20 kernel=3x3x3 pad=1x1x1 groups=20",
    "in=5x5 c=65 o=130 kernel=2x2 groups=65",
    "in=7x9 c=3 o=3 kernel=3x3 pad=1x1 groups=3",
    "in=9x10 c=48 o=48 kernel=1x1 groups=48",
    // Wide enough to be read in place, except at borders.
    "in=8x16 c=16 o=16 kernel=3x3 groups=16",
    "in=6x20 c=72 o=72 kernel=3x3 pad=1x1 groups=72 batch=2",
    "in=11x27 c=40 o=40 kernel=5x3 stride=2x2 pad=2x1 groups=40",
    // Few channels per group.
    "in=7x7 c=128 o=128 kernel=3x3 pad=1x1 groups=32",
    "in=5x5 c=64 o=32 kernel=3x3 pad=1x1 groups=32",
    "in=6x6 c=16 o=24 kernel=3x3 pad=1x1 groups=2",
    "in=6x6 c=24 o=12 kernel=3x3 groups=3",
    "in=8x5 c=9 o=6 kernel=3x3 pad=1x1 groups=3 batch=2",
    "in=5x5 c=40 o=40 kernel=3x3 stride=2x2 pad=1x1 groups=5",
    "in=4x4 c=10 o=34 kernel=2x2 groups=2",
    "in=4x4 c=66 o=4 kernel=3x3 pad=1x1 groups=2",
    // One dimension, and three.
    "in=40 c=16 o=16 kernel=3 pad=1",
    "in=33 c=5 o=7 kernel=8 stride=3 pad=2:5 batch=2",
    "in=64 c=8 o=24 kernel=15 dilation=2 pad=28:0",
    "in=4x5x6 c=8 o=16 kernel=3x3x3 pad=1x1x1",
    "in=5x4x7 c=3 o=9 kernel=2x3x1 stride=2x1x3 pad=1x0x0:0x2x1 batch=2",
    "in=3x6x6 c=12 o=8 kernel=1x3x3 dilation=1x2x2 groups=2",
    "in=6x1x1 c=16 o=17 kernel=3x1x1 pad=1x0x0",
};

// Transposed.
constexpr std::string_view kTransposed[] = {
    // One phase.
    "in=1 c=1 o=1 kernel=1",
    "in=5x6 c=17 o=16 kernel=3x3",
    "in=7 c=8 o=5 kernel=5 pad=2:3 dilation=2",
    // Upsampling as networks do it: kernels of two strides, one stride, and between.
    "in=6x5 c=16 o=33 kernel=4x4 stride=2x2 pad=1x1",
    "in=7x7 c=64 o=16 kernel=2x2 stride=2x2 batch=2",
    "in=4x6 c=48 o=17 kernel=3x3 stride=2x2 pad=1x1 outpad=1x1",
    "in=3x3 c=21 o=21 kernel=16x16 stride=8x8 pad=4x4",
    "in=9 c=16 o=24 kernel=16 stride=8 pad=4 batch=3",
    "in=8x8 c=64 o=3 kernel=5x5 stride=2x2 pad=2x2 outpad=1x1",
    // The kernel is smaller than the stride: outputs of no input.
    "in=5x4 c=16 o=16 kernel=1x1 stride=2x2",
    "in=4x5 c=9 o=18 kernel=2x3 stride=5x4 outpad=4x3 batch=2",
    "in=3 c=4 o=7 kernel=2 stride=9 pad=1:0 outpad=5",
    "in=2x3 c=6 o=6 kernel=1x2 stride=3x3 groups=6",
    "in=1 c=3 o=2 kernel=1 stride=4 pad=1:0 outpad=3",
    "in=2x2x2 c=5 o=4 kernel=1x1x1 stride=2x3x2 outpad=1x2x0",
    "in=2 c=7 o=5 kernel=2 stride=50000",
    // The kernel is larger than the input; inputs and outputs of one pixel.
    "in=1x1 c=16 o=32 kernel=4x4 stride=2x2 batch=3",
    "in=2x3 c=5 o=6 kernel=7x5 stride=2x3 pad=3x2",
    "in=1x1 c=8 o=9 kernel=3x3 pad=1x1",
    "in=1x2 c=12 o=16 kernel=5x3 stride=2x1 pad=2x1 groups=4",
    // Cropped at both ends, at one, and beyond the outputs that the input reaches.
    "in=6x6 c=16 o=16 kernel=3x3 stride=2x2 pad=5x5",
    "in=9 c=8 o=10 kernel=4 stride=3 pad=13:0",
    "in=9x5 c=7 o=8 kernel=4x4 stride=2x2 pad=0x7:15x1",
    "in=1 c=6 o=5 kernel=1 dilation=5 pad=4:0 outpad=4",
    "in=2x1 c=4 o=4 kernel=2x1 stride=2x1 dilation=1x6 pad=0x5:0x0 outpad=1x5 groups=4",
    // A dilation that is coprime with the stride, divides the stride, or is a multiple of the stride.
    "in=5x6 c=8 o=12 kernel=3x3 stride=2x2 dilation=3x3 pad=2x2 outpad=1x2",
    "in=6x5 c=10 o=16 kernel=4x3 stride=4x2 dilation=2x4 pad=1x3:2x0",
    "in=4 c=3 o=5 kernel=5 stride=6 dilation=4 pad=3:5 outpad=3",
    "in=3x3 c=16 o=16 kernel=3x3 stride=3x3 dilation=9x6 groups=16",
    // Depthwise, and groups.
    "in=6x9 c=32 o=32 kernel=4x4 stride=2x2 pad=1x1 groups=32 batch=2",
    "in=5x5 c=17 o=34 kernel=3x3 stride=2x2 pad=1x1 groups=17",
    "in=4x13 c=21 o=21 kernel=3x3 pad=1x1 groups=21",
    "in=3x4x5 c=20 o=20 kernel=3x2x4 stride=2x2x2 groups=20",
    "in=5x5 c=64 o=64 kernel=4x4 stride=2x2 pad=1x1 groups=16",
    "in=4x4 c=12 o=18 kernel=3x3 stride=2x2 groups=3 outpad=1x0",
    "in=6x3 c=10 o=34 kernel=2x2 stride=2x3 groups=2",
    // Three dimensions.
    "in=3x4x5 c=6 o=9 kernel=3x4x2 stride=2x2x2 pad=1x1x0 outpad=1x0x0 batch=2",
    "in=4x2x3 c=16 o=8 kernel=1x3x3 stride=1x2x2 dilation=1x1x2 pad=0x1x2:0x0x1",
    // Several chunks of scratch, and work for threads.
    "in=40x37 c=8 o=160 kernel=4x4 stride=2x2 pad=1x1",
    "in=14x14 c=96 o=80 kernel=3x3 stride=2x2 pad=1x1 outpad=1x1 batch=2",
};

// Numbers of channels below, at and above blocks and quads. The two lists have coprime lengths.
constexpr int64_t kInputChannels[] = {1, 2, 3, 4, 5, 15, 16, 17, 31, 47, 48, 49, 63, 64, 65};
constexpr int64_t kOutputChannels[] = {1, 15, 16, 17, 24, 31, 33, 47, 48, 63, 64, 65, 97};
constexpr std::string_view kSmallGeometries[] = {
    "in=5x5 c=1 o=1 kernel=3x3 pad=1x1",
    "in=4x6 c=1 o=1 kernel=1x1 batch=2",
    "in=7 c=1 o=1 kernel=3 stride=2 pad=1:0",
    "in=3x3 c=1 o=1 kernel=2x2",
};

// One convolution of each kind that has its own kernels.
constexpr std::string_view kKinds[] = {
    "in=7x6 c=18 o=20 kernel=3x3 pad=1x1",
    "in=7x6 c=18 o=18 kernel=3x3 pad=1x1 groups=18",
    "in=7x6 c=16 o=16 kernel=3x3 pad=1x1 groups=4",
    "in=7x6 c=15 o=25 kernel=3x3 pad=1x1 groups=5",
    "in=7x6 c=24 o=12 kernel=1x1 groups=3",
    "in=11x9 c=3 o=18 kernel=5x5 stride=2x2 pad=2x2",
    "in=7x6 c=19 o=20 kernel=1x1",
};

// Phases of unequal taps, cropped, and bare pixels.
constexpr std::string_view kTransposedKinds[] = {
    "in=6x5 c=17 o=18 kernel=4x4 stride=2x2 pad=1x1",
    "in=4x5 c=9 o=18 kernel=2x3 stride=3x4 outpad=2x3",
    "in=5x5 c=18 o=18 kernel=3x3 stride=2x2 pad=1x1 groups=18",
};

// Enough work for more than one thread, and more than one block or band of input.
constexpr std::string_view kLarge[] = {
    "in=28x28 c=32 o=40 kernel=3x3 pad=1x1",
    "in=56x56 c=3 o=16 kernel=7x7 stride=2x2 pad=3x3",
    "in=14x14 c=96 o=96 kernel=3x3 pad=1x1 groups=96 batch=3",
    "in=14x14 c=64 o=64 kernel=3x3 pad=1x1 groups=16 batch=2",
    "in=30x30 c=64 o=80 kernel=1x1 stride=1x1",
    "in=4x4 c=520 o=20 kernel=3x3 pad=1x1",
    "in=8x10x12 c=6 o=10 kernel=3x3x3 pad=1x1x1",
    "in=700 c=16 o=24 kernel=5 pad=2 batch=2",
};

constexpr intact_type kActivationTypes[] = {INTACT_U8, INTACT_S8, INTACT_U8};
constexpr intact_type kOutputTypes[] = {INTACT_U8, INTACT_F32, INTACT_S8, INTACT_S32, INTACT_U8};
constexpr int32_t kRangeMaxima[] = {255, 127, 200, 128, 64, 255, 254};
constexpr intact_range_check kRangeChecks[] = {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED};
constexpr BiasKind kBiases[] = {BiasKind::kNone, BiasKind::kS32, BiasKind::kF32, BiasKind::kS32};
constexpr ScaleKind kScales[] = {ScaleKind::kChannel, ScaleKind::kTensor, ScaleKind::kPruned};
constexpr intact_overflow kOverflows[] = {INTACT_OVERFLOW_REFUSED, INTACT_OVERFLOW_REFUSED,
                                          INTACT_OVERFLOW_WRAPS, INTACT_OVERFLOW_REFUSED,
                                          INTACT_OVERFLOW_WRAPS};
constexpr intact_activation kActivations[] = {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU,
                                              INTACT_ACTIVATION_CLAMP, INTACT_ACTIVATION_NONE,
                                              INTACT_ACTIVATION_RELU};
constexpr int64_t kInputPads[] = {0, 1, 0, 64, 5, 0, 16};
constexpr int64_t kOutputPads[] = {0, 0, 1, 16, 3};
constexpr intact_type kResiduals[] = {INTACT_TYPE_NONE, INTACT_U8,  INTACT_TYPE_NONE, INTACT_S8,
                                      INTACT_TYPE_NONE, INTACT_F32, INTACT_F32};
constexpr int64_t kResidualPads[] = {0, 3, 16};
constexpr bool kInPlace[] = {false, true};
constexpr int32_t kThreads[] = {1, 2, 3, 1};
constexpr Fill kBoundFills[] = {Fill::kBound, Fill::kBait, Fill::kStray, Fill::kExtremes, Fill::kBound};

class ConvList {
 public:
  explicit ConvList(uint64_t seed) : seed_(seed) {}

  std::vector<Problem> Build() {
    for (const std::string_view geometry : kGeometries) AddGeometry(std::string(geometry));
    for (const std::string_view geometry : kTransposed) {
      AddGeometry(std::string("transposed=yes ").append(geometry));
    }
    AddChannels();
    AddFills();
    AddLarge();
    AddQuantizations();
    AddEmpty();
    AddDrawn();
    return std::move(problems_);
  }

 private:
  void Add(Problem problem) {
    problem.seed = seed_;
    // None of this makes a difference. The divisors are coprime to each other and to the lists' lengths.
    problem.open_extents = problems_.size() % 3 == 1;
    problem.own_scratch = problems_.size() % 2 == 1;
    problem.saved = problems_.size() % 11 == 5;
    problems_.push_back(problem);
  }

  static Problem Parsed(std::string_view geometry) {
    const Result<Problem> problem = Problem::Parse("conv u8s8s32 " + std::string(geometry));
    if (!problem) throw std::logic_error("the sweep's geometries: " + problem.error().message);
    return *problem;
  }

  // s32 outputs, in which no wrong accumulator can hide, and others.
  void AddGeometry(std::string_view geometry) {
    Problem problem = Parsed(geometry);
    types_.Set(INTACT_U8, INTACT_S32, &problem);
    problem.fill = fills_.Next();
    Add(problem);

    types_.Set(INTACT_S8, INTACT_S32, &problem);
    problem.fill = fills_.Next();
    problem.wmax = 128;
    Add(problem);

    AddBound(geometry);
    AddEpilogue(geometry);
  }

  // Sums that reach their bounds in activation ranges.
  void AddBound(std::string_view geometry) {
    Problem problem = Parsed(geometry);
    types_.Set(a_types_.Next(), INTACT_S32, &problem);
    problem.fill = bound_fills_.Next();
    problem.wmax = 128;
    const bool must_be_checked = problem.fill == Fill::kStray;
    SetActivationRange(range_maxima_.Next(), must_be_checked ? INTACT_RANGE_CHECKED : checks_.Next(),
                       &problem);
    Add(problem);
  }

  void AddEpilogue(std::string_view geometry) {
    Problem problem = Parsed(geometry);
    types_.Set(a_types_.Next(), c_types_.Next(), &problem);
    problem.fill = fills_.Next();
    problem.bias = biases_.Next();
    problem.overflow = overflows_.Next();
    problem.a_pad = a_pads_.Next();
    problem.c_pad = c_pads_.Next();
    problem.threads = threads_.Next();
    const intact_activation activation = activations_.Next();
    const ScaleKind scale = scales_.Next();
    if (problem.c_type == INTACT_S32) {
      if (problem.bias == BiasKind::kF32) problem.bias = BiasKind::kS32;
    } else {
      problem.activation = activation;
      problem.scale = scale;
      const intact_type residual = residuals_.Next();
      if (residual != INTACT_TYPE_NONE) {
        types_.SetResidual(residual, r_pads_.Next(), in_places_.Next(), &problem);
      }
      const bool is_bare = problem.bias != BiasKind::kF32 && residual == INTACT_TYPE_NONE &&
                           activation != INTACT_ACTIVATION_CLAMP;
      if (problem.c_type == INTACT_F32 && is_bare) problem.scale = ScaleKind::kTiny;
    }
    Add(problem);
  }

  void AddChannels() {
    Cycle<std::string_view> geometries(kSmallGeometries);
    Cycle<int64_t> inputs(kInputChannels);
    for (const int64_t outputs : kOutputChannels) {
      for (size_t i = 0; i < std::size(kInputChannels) / 2; ++i) {
        Problem problem = Parsed(geometries.Next());
        problem.conv->input_channels = inputs.Next();
        problem.conv->output_channels = outputs;
        types_.Set(a_types_.Next(), INTACT_S32, &problem);
        problem.fill = fills_.Next();
        problem.threads = threads_.Next();
        Add(problem);
      }
    }
  }

  void AddFills() {
    for (const std::string_view geometry : kKinds) {
      for (const Fill fill : AllFills()) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          Problem problem = Parsed(geometry);
          types_.Set(a, INTACT_S32, &problem);
          problem.fill = fill;
          Add(problem);
        }
      }
    }
  }

  void AddLarge() {
    for (const std::string_view geometry : kLarge) {
      for (const Fill fill : {Fill::kUniform, Fill::kLaplace}) {
        Problem problem = Parsed(geometry);
        types_.Set(a_types_.Next(), c_types_.Next(), &problem);
        problem.fill = fill;
        problem.threads = fill == Fill::kUniform ? 2 : 3;
        Add(problem);
      }
    }
  }

  // Quantizations of the whole input that each run gets, and half float outputs: for each kind, transposed
  // ones too, each source type and each type of numbers.
  void AddQuantizations() {
    Cycle<Numbers> numbers(AllNumbers());
    Cycle<intact_type> sources(core::kSourceTypes);
    Cycle<intact_type> outputs(core::kOutputTypes);
    std::vector<std::string> geometries(std::begin(kKinds), std::end(kKinds));
    for (const std::string_view kind : kTransposedKinds) {
      geometries.push_back(std::string("transposed=yes ").append(kind));
    }
    for (const intact_quantization quantization :
         {INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_QUANTIZATION_TENSOR, INTACT_QUANTIZATION_STATIC}) {
      for (const std::string& geometry : geometries) {
        for (const intact_type a : {INTACT_U8, INTACT_S8}) {
          for (int i = 0; i < 3; ++i) {
            Problem problem = Parsed(geometry);
            types_.Set(a, outputs.Next(), &problem);
            problem.quantization = quantization;
            problem.conv->batch = i == 0 ? 2 : 1;
            problem.fill = fills_.Next();
            problem.bias = problem.c_type == INTACT_S32 ? BiasKind::kS32 : biases_.Next();
            problem.threads = threads_.Next();
            problem.a_pad = a_pads_.Next();
            if (problem.IsDynamic()) {
              if (problem.c_type == INTACT_S32) types_.Set(a, outputs.Next(), &problem);
              problem.za = 0;
              problem.numbers = numbers.Next();
              problem.source = sources.Next();
            }
            Add(problem);
          }
        }
      }
    }
  }

  void AddEmpty() {
    for (const std::string_view geometry : kKinds) {
      Problem problem = Parsed(geometry);
      types_.Set(a_types_.Next(), c_types_.Next(), &problem);
      problem.conv->batch = 0;
      Add(problem);
    }
  }

  // Every field drawn: combinations that the lists above do not have.
  void AddDrawn() {
    for (uint64_t i = 0; i < 150; ++i) {
      support::Random random(seed_, 4, i);
      Add(DrawConv({}, INTACT_EXACT, &random));
    }
  }

  uint64_t seed_;
  std::vector<Problem> problems_;
  TypeCycle types_;
  Cycle<intact_type> a_types_{kActivationTypes}, c_types_{kOutputTypes};
  Cycle<Fill> fills_{AllFills()}, bound_fills_{kBoundFills};
  Cycle<int32_t> range_maxima_{kRangeMaxima}, threads_{kThreads};
  Cycle<intact_range_check> checks_{kRangeChecks};
  Cycle<BiasKind> biases_{kBiases};
  Cycle<ScaleKind> scales_{kScales};
  Cycle<intact_overflow> overflows_{kOverflows};
  Cycle<intact_activation> activations_{kActivations};
  Cycle<int64_t> a_pads_{kInputPads}, c_pads_{kOutputPads}, r_pads_{kResidualPads};
  Cycle<intact_type> residuals_{kResiduals};
  Cycle<bool> in_places_{kInPlace};
};

}  // namespace

std::vector<Problem> ConvProblems(uint64_t seed) { return ConvList(seed).Build(); }

}  // namespace intact::verify
