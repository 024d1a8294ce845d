#include "verify/problem/random_problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/types.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;

constexpr int64_t kMostProducts = int64_t{1} << 20;  // products of most problems
constexpr int64_t kMostOfLarge = int64_t{1} << 24;   // products of one problem in 64
constexpr int64_t kMostDepth = 8192;                 // sums of this depth stay in int32 for all operands
constexpr std::array<int64_t, 4> kDepths = {4, 64, 16, 128};  // depths that kernels take at a time

class Draw {
 public:
  Draw(std::span<const Block> blocks, intact_mode mode, support::Random* random) : random_(*random) {
    problem_.mode = mode;
    if (!blocks.empty()) block_ = random_.Of(blocks);
    most_ = random_.OneIn(64) ? kMostOfLarge : kMostProducts;
  }

  Problem Gemm() {
    Problem& p = problem_;
    p.m = Extent(block_.rows, most_ / 4);
    p.n = Extent(block_.columns, most_ / 4 / p.m);
    p.k = Extent(random_.Of(kDepths), std::min(kMostDepth, most_ / p.m / p.n));
    SetTypes(random_.Of(core::kOutputTypes));
    SetQuantization({INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS,
                     INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_QUANTIZATION_TENSOR});
    SetItems();
    if (random_.OneIn(60)) (p.runtime_b || random_.OneIn(2) ? p.m : p.batch) = 0;
    p.usual_m = random_.Of<int64_t>({0, 0, p.m, 1, 8, 128});
    SetOthers();
    return p;
  }

  Problem Conv() {
    ConvGeometry& g = problem_.conv.emplace();
    g.dims = static_cast<int>(random_.Of<int64_t>({2, 2, 1, 3}));
    g.batch = random_.OneIn(60) ? 0 : random_.Of<int64_t>({1, 1, 1, 2, 3, random_.Integer(4, 9)});
    SetChannels(&g);
    SetAxes(&g);
    SetTypes(random_.Of(core::kOutputTypes));
    SetQuantization({INTACT_QUANTIZATION_TENSOR, INTACT_QUANTIZATION_DYNAMIC_TENSOR});
    problem_.open_extents = random_.OneIn(3);
    SetOthers();
    if (problem_.mode == INTACT_SATURATING && !g.IsTransposed() && random_.OneIn(2)) {
      problem_.pairing = INTACT_PAIRING_FLATTENED;
    }
    return problem_;
  }

 private:
  // In [1, most]. Three in five are next to or at a multiple of `block`; others are small or of any size.
  int64_t Extent(int64_t block, int64_t most) {
    most = std::max<int64_t>(most, 1);
    int64_t extent = 1;
    switch (random_.Integer(0, 9)) {
      case 0:
        extent = static_cast<int64_t>(std::exp2(12.0 * random_.Unit()));
        break;
      case 1:
      case 2:
      case 3:
        extent = random_.Integer(1, 2 * block + 1);
        break;
      default:
        extent = block * random_.Integer(1, 3) + random_.Integer(-1, 1);
    }
    return std::clamp<int64_t>(extent, 1, most);
  }

  // 0, an extreme or the middle of an 8-bit type, or random.
  int32_t ZeroPoint(intact_type type) {
    if (core::BytesOf(type) != 1) return 0;
    const int64_t lowest = core::LowestOf(type);
    return static_cast<int32_t>(
        random_.Of<int64_t>({0, lowest, lowest + 255, lowest + 128, lowest + random_.Integer(0, 255)}));
  }

  void SetTypes(intact_type c) {
    Problem& p = problem_;
    p.a_type = random_.Of({INTACT_U8, INTACT_S8});
    p.b_type = random_.Of({INTACT_S8, INTACT_S8, INTACT_U8});
    p.c_type = c;
    p.za = ZeroPoint(p.a_type);
    p.zb = random_.OneIn(2) ? 0 : ZeroPoint(p.b_type);
    p.zb_kind = random_.OneIn(4) ? ZeroPointKind::kChannel : ZeroPointKind::kTensor;
    p.zc = ZeroPoint(p.c_type);
    p.scale = c == INTACT_S32 ? ScaleKind::kNone
                              : random_.Of({ScaleKind::kTensor, ScaleKind::kTensor, ScaleKind::kChannel,
                                            ScaleKind::kChannel, ScaleKind::kPruned, ScaleKind::kHuge});
  }

  // Draws one of `quantizations` for every third problem; s32 outputs get the first instead of a dynamic one.
  // Also draws the zero points of rows, and the numbers and their type.
  void SetQuantization(std::initializer_list<intact_quantization> quantizations) {
    Problem& p = problem_;
    if (!random_.OneIn(3)) return;
    p.quantization = random_.Of(quantizations);
    if (p.IsDynamic() && p.c_type == INTACT_S32) p.quantization = *quantizations.begin();
    if (p.quantization == INTACT_QUANTIZATION_TENSOR) return;
    p.za = 0;
    p.row_zero_points = p.quantization == INTACT_QUANTIZATION_ROWS && random_.OneIn(2);
    if (!p.IsDynamic()) return;
    p.numbers = random_.Of(AllNumbers());
    p.source = random_.Of(core::kSourceTypes);
  }

  void SetItems() {
    Problem& p = problem_;
    p.a_by_columns = random_.OneIn(4);
    p.b_by_columns = random_.OneIn(3);
    p.b_pad = Pad();
    if (!random_.OneIn(4)) return;
    p.batch = random_.Of<int64_t>({1, 2, 3, 4, random_.Integer(5, 9)});
    p.item_pointers = random_.OneIn(3);
    p.item_pad = p.item_pointers ? 0 : Pad();
    p.runtime_b = random_.OneIn(2);
    if (!p.runtime_b) return;
    if (random_.OneIn(2)) p.zb_kind = random_.Of({ZeroPointKind::kItem, ZeroPointKind::kItemColumn});
    if (p.c_type != INTACT_S32 && random_.OneIn(2))
      p.scale = random_.Of({ScaleKind::kItem, ScaleKind::kItemColumn});
  }

  void SetChannels(ConvGeometry* g) {
    switch (random_.Integer(0, 3)) {
      case 0:  // depthwise
        g->groups = g->input_channels = Extent(block_.columns, 256);
        g->output_channels = g->groups * random_.Of<int64_t>({1, 1, 2, 3});
        break;
      case 1:
        g->groups = random_.Integer(2, 8);
        g->input_channels = g->groups * random_.Integer(1, 20);
        g->output_channels = g->groups * Extent(block_.columns, 64);
        break;
      default:
        g->groups = 1;
        g->input_channels = Extent(random_.Of(kDepths), 256);
        g->output_channels = Extent(block_.columns, 256);
    }
  }

  void SetAxes(ConvGeometry* g) {
    const bool transposed = random_.OneIn(5);
    for (Axis& axis : std::span(g->axes).last(static_cast<size_t>(g->dims))) {
      axis.transposed = transposed;
      axis.kernel = random_.Of<int64_t>({1, 3, 3, 2, 5, 7, 4});
      axis.stride = random_.Of<int64_t>({1, 1, 2, 3});
      axis.dilation = random_.Of<int64_t>({1, 1, 1, 2, 3});
      axis.pad_begin = random_.Integer(0, axis.kernel);
      axis.pad_end = random_.OneIn(2) ? axis.pad_begin : random_.Integer(0, axis.kernel);
      if (transposed && random_.OneIn(2)) {
        axis.output_pad = random_.Integer(0, std::max(axis.stride, axis.dilation) - 1);
      }
      const int64_t most = g->dims == 1 ? 400 : g->dims == 2 ? 30 : 9;
      axis.input = std::min(Extent(block_.rows, most), most);
    }
  }

  int64_t Pad() { return random_.Of<int64_t>({0, 0, 0, 1, 5, 16, 64}); }

  // Fields of all problems, after types, extents and quantization.
  void SetOthers() {
    Problem& p = problem_;
    p.fill = random_.Of(AllFills());
    p.seed = static_cast<uint64_t>(random_.Integer(1, 1 << 30));
    if (random_.OneIn(3))
      p.wmax = static_cast<int32_t>(random_.Of<int64_t>({128, 128, 64, random_.Integer(1, 128)}));
    if (random_.OneIn(6)) p.amax = static_cast<int32_t>(random_.Integer(0, 255));
    DeclareRange();
    if (random_.OneIn(5)) p.overflow = INTACT_OVERFLOW_WRAPS;
    SetEpilogue();
    p.a_pad = Pad();
    p.c_pad = Pad();
    p.own_scratch = random_.OneIn(3);
    p.saved = !p.runtime_b && random_.OneIn(6);
    p.threads = static_cast<int32_t>(random_.Of<int64_t>({1, 1, 1, 2, 3, 0, random_.Integer(4, 16)}));
    if (random_.OneIn(50)) p.calls = static_cast<int32_t>(random_.Integer(2, 30));
    p.reused = !p.runtime_b && random_.OneIn(8);
  }

  void DeclareRange() {
    Problem& p = problem_;
    if (p.IsDynamic() || random_.OneIn(2)) return;
    p.range_max = static_cast<int32_t>(random_.Of<int64_t>({127, 128, 254, 64, random_.Integer(1, 255)}));
    if (random_.OneIn(3)) p.range_min = static_cast<int32_t>(random_.Integer(0, p.range_max));
    p.range_check =
        p.fill != Fill::kStray && random_.OneIn(2) ? INTACT_RANGE_UNCHECKED : INTACT_RANGE_CHECKED;
    const auto lowest = static_cast<int32_t>(core::LowestOf(p.a_type));
    // The zero points of rows are random, and za is then 0: they may be outside the range.
    if (p.quantization == INTACT_QUANTIZATION_STATIC || p.quantization == INTACT_QUANTIZATION_TENSOR) {
      p.za = std::clamp(p.za, lowest + p.range_min, lowest + p.range_max);
    } else {
      p.range_min = 0;
      p.range_max = 255;
    }
  }

  void SetEpilogue() {
    Problem& p = problem_;
    p.bias = random_.Of({BiasKind::kNone, BiasKind::kS32, BiasKind::kF32});
    if (p.c_type == INTACT_S32) {
      if (p.bias == BiasKind::kF32) p.bias = BiasKind::kS32;
      return;
    }
    p.activation = random_.Of({INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP});
    p.has_table = core::IsInt8(p.c_type) && random_.OneIn(3);
    const bool may_be_fixed = core::IsInt8(p.c_type) && p.bias != BiasKind::kF32 &&
                              p.scale <= ScaleKind::kChannel && p.quantization == INTACT_QUANTIZATION_STATIC;
    if (may_be_fixed && random_.OneIn(2)) {
      p.fixed = random_.Of({FixedKind::kAway, FixedKind::kUp, FixedKind::kAwayShift, FixedKind::kUpShift});
      return;
    }
    if (!random_.OneIn(3)) return;
    p.residual = random_.Of({INTACT_U8, INTACT_S8, INTACT_F32});
    p.zres = ZeroPoint(p.residual);
    p.in_place = core::BytesOf(p.residual) == core::BytesOf(p.c_type) && random_.OneIn(2);
    p.res_pad = p.in_place ? 0 : Pad();
  }

  support::Random& random_;
  Problem problem_;
  Block block_;
  int64_t most_ = 0;
};

// Whether the reference takes milliseconds, and sums stay in int32.
bool IsModest(const Problem& problem) {
  if (!problem.conv) return true;
  const ConvGeometry& g = *problem.conv;
  const int64_t depth = g.Taps() * g.TapDepth();
  return depth <= kMostDepth && g.OutputPixels() * g.output_channels * depth <= 4 * kMostProducts;
}

}  // namespace

namespace {

template <class Of>
Problem DrawUntilModest(std::span<const Block> blocks, intact_mode mode, support::Random* random, Of of) {
  for (;;) {
    Draw draw(blocks, mode, random);
    const Problem problem = of(&draw);
    if (!problem.Check() && IsModest(problem)) return problem;
  }
}

}  // namespace

Problem DrawProblem(std::span<const Block> blocks, intact_mode mode, support::Random* random) {
  return DrawUntilModest(blocks, mode, random, [random](Draw* draw) {
    return random->Integer(0, 2) == 0 ? draw->Conv() : draw->Gemm();
  });
}

Problem DrawGemm(std::span<const Block> blocks, intact_mode mode, support::Random* random) {
  return DrawUntilModest(blocks, mode, random, [](Draw* draw) { return draw->Gemm(); });
}

Problem DrawConv(std::span<const Block> blocks, intact_mode mode, support::Random* random) {
  return DrawUntilModest(blocks, mode, random, [](Draw* draw) { return draw->Conv(); });
}

}  // namespace intact::verify
