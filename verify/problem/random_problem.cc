#include "verify/problem/random_problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/types.h"
#include "verify/problem/fields.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;

constexpr int64_t kMostProducts = int64_t{1} << 20;  // products of most problems
constexpr int64_t kMostOfLarge = int64_t{1} << 24;   // products of one problem in 64
constexpr int64_t kMostDepth = 8192;                 // sums of this depth stay in int32 for all operands
constexpr std::array<int64_t, 4> kDepths = {4, 64, 16, 128};  // depths that kernels take at a time

// Drawn last.
constexpr std::string_view kOthers =
    "fill seed wmax amax arange overflow bias act table fixed res zres inplace respad apad cpad scratch "
    "saved threads calls reused";

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
    SetTypes();
    Fields("zaper x src alayout blayout bpad");
    SetItems();
    if (random_.OneIn(60)) (p.runtime_b || random_.OneIn(2) ? p.m : p.batch) = 0;
    Fields("usual");
    Fields(kOthers);
    return p;
  }

  Problem Conv() {
    ConvGeometry& g = problem_.conv.emplace();
    g.dims = static_cast<int>(random_.Of<int64_t>({2, 2, 1, 3}));
    g.batch = random_.OneIn(60) ? 0 : random_.Of<int64_t>({1, 1, 1, 2, 3, random_.Integer(4, 9)});
    SetChannels(&g);
    SetAxes(&g);
    SetTypes();
    Fields("x src open");
    Fields(kOthers);
    Fields("pairing");
    return problem_;
  }

 private:
  void Fields(std::string_view keys) { DrawFields(keys, &random_, &problem_); }

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

  void SetTypes() {
    problem_.c_type = random_.Of(core::kOutputTypes);
    problem_.a_type = random_.Of({INTACT_U8, INTACT_S8});
    problem_.b_type = random_.Of({INTACT_S8, INTACT_S8, INTACT_U8});
    Fields("za zb zbper zc scale quant");
  }

  void SetItems() {
    Problem& p = problem_;
    if (!random_.OneIn(4)) return;
    p.batch = random_.Of<int64_t>({1, 2, 3, 4, random_.Integer(5, 9)});
    p.item_pointers = random_.OneIn(3);
    Fields("itempad");
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

Problem DrawGrouped(support::Random* random) {
  Problem p;
  GroupedFields& g = p.grouped.emplace();
  p.a_type = random->Of({INTACT_U8, INTACT_S8});
  g.b_type = random->Of(core::kGroupedWeightTypes);
  p.c_type = random->Of(core::kSourceTypes);
  DrawFields(
      "m n group k src per gscale zb bias act fill seed blayout slayout apad bpad cpad scratch threads "
      "parts split saved experts epad item ipad min",
      random, &p);
  ResetMisfits(&p);
  return p;
}

}  // namespace intact::verify
