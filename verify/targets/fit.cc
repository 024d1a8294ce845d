#include "verify/targets/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "support/counted.h"
#include "support/fnv1a.h"
#include "verify/problem/fields.h"
#include "verify/targets/features.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;

constexpr std::array kInputTypes = {INTACT_U8, INTACT_S8};

Types TypesOf(const Problem& problem) { return {problem.a_type, problem.b_type, problem.c_type}; }

// A problem's features do not depend on how large it is beyond sizes of 2. Small tensors are faster to make,
// and show the same features.
uint64_t FeaturesOf(Problem problem) {
  if (problem.grouped) return verify::FeaturesOf(Materialize(problem), RunOptionsOf(problem));
  const RunOptions options = RunOptionsOf(problem);
  if (problem.conv) {
    ConvGeometry& g = *problem.conv;
    const int64_t outputs = std::min<int64_t>(g.GroupOutputs(), 2);
    const int64_t inputs = std::min<int64_t>(g.GroupInputs(), 2);
    g.groups = std::min<int64_t>(g.groups, 2);
    g.input_channels = g.groups * inputs;
    g.output_channels = g.groups * outputs;
  }
  problem.m = std::min<int64_t>(problem.m, 1);
  problem.k = 1;
  problem.n = std::min<int64_t>(problem.n, 2);
  problem.batch = std::min<int64_t>(problem.batch, 2);
  return verify::FeaturesOf(Materialize(problem), options);
}

bool Has(uint64_t features, intact_target_feature feature) {
  return (features & INTACT_TARGET_BIT(feature)) != 0;
}

// ----- what a target takes --------------------------------------------------------------------------------

// Problems that need no feature except their types. Some libraries do not support the smallest sizes, or have
// blocks without tails.
constexpr std::array<std::string_view, 4> kGemmProbes = {"gemm {} m=1 n=1 k=1", "gemm {} m=16 n=16 k=64",
                                                         "gemm {} m=1 n=64 k=64", "gemm {} m=64 n=256 k=256"};
constexpr std::array<std::string_view, 7> kConvProbes = {
    "conv {} in=1 c=1 o=1 kernel=1",         "conv {} in=8 c=16 o=16 kernel=3",
    "conv {} in=1x1 c=1 o=1 kernel=1x1",     "conv {} in=8x8 c=16 o=16 kernel=3x3",
    "conv {} in=1x1x1 c=1 o=1 kernel=1x1x1", "conv {} in=8x8 c=16 o=16 groups=16 kernel=3x3",
    "conv {} in=8x8 c=64 o=64 kernel=3x3"};

// Multiples of kMaxMultiple, and problems of such sizes. A target that refuses all of them does not refuse
// them because of their size.
constexpr std::array<int64_t, 3> kWhole = {kMaxMultiple, kMaxMultiple, 2 * kMaxMultiple};
constexpr std::array<std::string_view, 2> kWholeGemms = {"gemm {0} m={1} n={2} k={3}",
                                                         "gemm {0} m=1 n={2} k={3}"};
constexpr std::array<std::string_view, 4> kWholeConvs = {
    "conv {0} in=4x4 kernel=1x1 o={2} c={3}", "conv {0} in=8x8 kernel=3x3 o={2} c={3}",
    "conv {0} in=8 kernel=3 o={2} c={3}", "conv {0} in=4x4x4 kernel=3x3x3 o={2} c={3}"};

bool IsTaken(const Target& target, const Problem& probe) {
  const Result<std::vector<uint8_t>> output = target.Run(Materialize(probe), RunOptionsOf(probe));
  return output || output.error().status != INTACT_UNSUPPORTED;
}

// The types that `target` supports. Only types are tried whose probes need no feature beyond `features`. All
// types count as supported if no probe runs. If the target is given up, the types that were not tried yet
// count as supported. The result does not depend on time: a sweep has the same problems on a busy machine.
std::vector<Taken> TypesTaken(const Target& target, uint64_t features,
                              std::span<const std::string_view> probes) {
  std::vector<Taken> declared, taken;
  for (const intact_type c : core::kOutputTypes) {
    for (const intact_type a : kInputTypes) {
      for (const intact_type b : kInputTypes) {
        const Types types = {a, b, c};
        std::vector<Problem> asked;
        for (const std::string_view probe : probes) {
          const Problem problem = *Problem::Parse(fmt::format(fmt::runtime(probe), ToString(types)));
          if ((FeaturesOf(problem) & ~features) == 0) asked.push_back(problem);
        }
        if (asked.empty()) continue;
        declared.push_back(Taken{types});
        const bool takes = std::ranges::any_of(asked, [&](const Problem& problem) {
          return !target.WhyGivenUp().empty() || IsTaken(target, problem);
        });
        if (takes) taken.push_back(Taken{types});
      }
    }
  }
  return taken.empty() ? declared : taken;
}

// The numbers that m, n and k must be multiples of with these types. Probes with the first of `lines` that
// the target supports.
std::array<int64_t, 3> MultiplesTaken(const Target& target, uint64_t features, const Types& types,
                                      std::span<const std::string_view> lines) {
  const auto takes = [&](std::string_view line, const std::array<int64_t, 3>& sizes) {
    const Problem probe =
        *Problem::Parse(fmt::format(fmt::runtime(line), ToString(types), sizes[0], sizes[1], sizes[2]));
    return (FeaturesOf(probe) & ~features) == 0 && target.WhyGivenUp().empty() && IsTaken(target, probe);
  };
  std::array<int64_t, 3> multiples = {1, 1, 1};
  const auto line = std::ranges::find_if(lines, [&](std::string_view one) { return takes(one, kWhole); });
  if (line == lines.end()) return multiples;
  for (size_t i = 0; i < multiples.size(); ++i) {
    if (line->find(fmt::format("{{{}}}", i + 1)) == std::string_view::npos) continue;
    std::array<int64_t, 3> sizes = kWhole;
    for (int64_t multiple = 1; multiple <= kMaxMultiple; multiple *= 2) {
      sizes.at(i) = kWhole.at(i) + multiple;
      if (!takes(*line, sizes)) continue;
      multiples.at(i) = multiple;
      break;
    }
  }
  return multiples;
}

// ----- fitting --------------------------------------------------------------------------------------------

// The zero point of another type at the same distance from the type's minimum; 0 stays 0.
int32_t ZeroPointAs(intact_type type, intact_type was, int32_t zero_point) {
  if (type == was || zero_point == 0) return zero_point;
  return type == INTACT_S8 ? zero_point - 128 : zero_point + 128;
}

// Removes an activation range that does not contain the zero point.
void KeepToRange(Problem* p) {
  const int32_t distance = p->za + (p->a_type == INTACT_S8 ? 128 : 0);
  if (p->range_min <= distance && distance <= p->range_max) return;
  p->range_min = 0;
  p->range_max = 255;
}

void SetTypes(const Types& types, Problem* problem) {
  Problem& p = *problem;
  p.za = ZeroPointAs(types.a, p.a_type, p.za);
  p.zb = ZeroPointAs(types.b, p.b_type, p.zb);
  p.a_type = types.a;
  p.b_type = types.b;
  KeepToRange(&p);
  if (types.c == p.c_type) return;
  if (core::IsInt8(p.c_type)) p.zc = ZeroPointAs(types.c, p.c_type, p.zc);
  p.SetOutput(types.c);
  if (p.in_place) ResetNeeding(INTACT_TARGET_RESIDUAL, &p);
  if (types.c != INTACT_S32) {
    const bool is_fit = p.scale != ScaleKind::kNone && (p.scale != ScaleKind::kTiny || types.c == INTACT_F32);
    if (!is_fit) p.scale = ScaleKind::kTensor;
    return;
  }
  p.scale = ScaleKind::kNone;
  if (p.bias == BiasKind::kF32) p.bias = BiasKind::kS32;
  p.activation = INTACT_ACTIVATION_NONE;
  ResetNeeding(INTACT_TARGET_RESIDUAL, &p);
  if (p.quantization == INTACT_QUANTIZATION_TENSOR) return;  // the run then passes no scale
  p.quantization = INTACT_QUANTIZATION_STATIC;
  p.row_zero_points = false;
  p.source = INTACT_F32;
  p.numbers = Numbers::kScaled;
}

void SetDims(uint64_t has, ConvGeometry* g) {
  constexpr std::array kDims = {INTACT_TARGET_CONV_1D, INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_3D};
  const auto takes = [&](int dims) { return Has(has, kDims.at(static_cast<size_t>(dims) - 1)); };
  int dims = g->dims;
  while (dims > 1 && !takes(dims)) --dims;
  while (dims < reference::kMaxSpatial && !takes(dims)) ++dims;
  Axis trivial;
  trivial.transposed = g->IsTransposed();
  for (int i = 0; i < reference::kMaxSpatial; ++i) {
    const bool was_there = i >= reference::kMaxSpatial - g->dims;
    const bool is_there = i >= reference::kMaxSpatial - dims;
    if (was_there && !is_there) g->axes[static_cast<size_t>(i)] = {};
    if (!was_there && is_there) g->axes[static_cast<size_t>(i)] = trivial;
  }
  g->dims = dims;
}

void DropFromConv(intact_target_feature feature, uint64_t has, ConvGeometry* g) {
  switch (feature) {
    case INTACT_TARGET_CONV_1D:
    case INTACT_TARGET_CONV_2D:
    case INTACT_TARGET_CONV_3D:
      return SetDims(has, g);
    case INTACT_TARGET_CONV_GROUPS:
    case INTACT_TARGET_CONV_DEPTHWISE:
      g->input_channels = g->GroupInputs();
      g->output_channels = g->GroupOutputs();
      g->groups = 1;
      return;
    default:
      break;
  }
  for (Axis& axis : g->axes) {
    switch (feature) {
      case INTACT_TARGET_CONV_PADDING:
        axis.pad_begin = axis.pad_end = 0;
        break;
      case INTACT_TARGET_CONV_PADDING_ENDS:
        axis.pad_end = axis.pad_begin;
        break;
      case INTACT_TARGET_CONV_STRIDE:
        axis.stride = 1;
        break;
      case INTACT_TARGET_CONV_DILATION:
        axis.dilation = 1;
        break;
      case INTACT_TARGET_CONV_TRANSPOSED:
        axis.transposed = false;
        axis.output_pad = 0;
        break;
      default:
        break;
    }
  }
}

void DropRuntimeB(Problem* p) {
  p->runtime_b = false;
  if (IsOfItems(p->scale)) p->scale = ScaleKind::kTensor;
  if (IsOfItems(p->zb_kind)) p->zb_kind = ZeroPointKind::kTensor;
}

// Removes `feature` from a problem, or replaces it by a similar one in `has`.
void Drop(intact_target_feature feature, uint64_t has, Problem* p) {
  switch (feature) {
    case INTACT_TARGET_A_ZERO_POINT:
      p->za = 0;
      KeepToRange(p);
      break;
    case INTACT_TARGET_BIAS_S32:
      p->bias = Has(has, INTACT_TARGET_BIAS_F32) ? BiasKind::kF32 : BiasKind::kNone;
      if (p->Check()) p->bias = BiasKind::kNone;
      break;
    case INTACT_TARGET_BIAS_F32:
      p->bias = Has(has, INTACT_TARGET_BIAS_S32) ? BiasKind::kS32 : BiasKind::kNone;
      break;
    case INTACT_TARGET_RELU:
      p->activation = Has(has, INTACT_TARGET_CLAMP) ? INTACT_ACTIVATION_CLAMP : INTACT_ACTIVATION_NONE;
      break;
    case INTACT_TARGET_CLAMP:
      p->activation = Has(has, INTACT_TARGET_RELU) ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
      break;
    case INTACT_TARGET_RUNTIME_B:
      DropRuntimeB(p);
      break;
    case INTACT_TARGET_ITEM_COLUMNS:
      if (p->scale == ScaleKind::kItemColumn) p->scale = ScaleKind::kItem;
      if (p->zb_kind == ZeroPointKind::kItemColumn) p->zb_kind = ZeroPointKind::kItem;
      break;
    case INTACT_TARGET_ROW_QUANTIZATION:
    case INTACT_TARGET_TENSOR_QUANTIZATION:
    case INTACT_TARGET_DYNAMIC_ROWS:
    case INTACT_TARGET_DYNAMIC_TENSOR:
      p->quantization = INTACT_QUANTIZATION_STATIC;
      p->row_zero_points = false;
      p->source = INTACT_F32;
      p->numbers = Numbers::kScaled;
      break;
    case INTACT_TARGET_EMPTY:
      p->m = std::max<int64_t>(p->m, 1);
      p->batch = std::max<int64_t>(p->batch, 1);
      if (p->conv) p->conv->batch = std::max<int64_t>(p->conv->batch, 1);
      break;
    case INTACT_TARGET_DYNAMIC_NAN:
      p->numbers = Numbers::kNormal;
      break;
    default:
      ResetNeeding(feature, p);
      if (p->conv) DropFromConv(feature, has, &*p->conv);
  }
}

// Visits the features whose bits are set.
template <class Visit>
void ForEach(uint64_t features, const Visit& visit) {
  for (int i = 0; i < INTACT_TARGET_FEATURES; ++i) {
    if ((features >> i & 1) != 0) visit(static_cast<intact_target_feature>(i));
  }
}

}  // namespace

std::string ToString(const Types& types) {
  return fmt::format("{}{}{}", ToString(types.a), ToString(types.b), ToString(types.c));
}

Result<Types> ParseTypes(std::string_view text) {
  ASSIGN_OR_RETURN(const Problem problem, Problem::Parse(fmt::format("gemm {} m=1 n=1 k=1", text)));
  return TypesOf(problem);
}

Takes TakesOf(const Target& target) {
  // Later runs need a target that has not run the probes.
  const std::unique_ptr<Target> fresh = target.Fresh();
  const Target& asked = fresh ? *fresh : target;
  const FeatureMasks features = target.Features();
  Takes takes = {features, TypesTaken(asked, features.gemm, kGemmProbes),
                 TypesTaken(asked, features.conv, kConvProbes)};
  for (Taken& taken : takes.gemm) {
    taken.multiples = MultiplesTaken(asked, features.gemm, taken, kWholeGemms);
  }
  for (Taken& taken : takes.conv) {
    taken.multiples = MultiplesTaken(asked, features.conv, taken, kWholeConvs);
  }
  return takes;
}

namespace {

int64_t RoundedUp(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// Depthwise convolutions keep one channel per group, whatever other convolutions need.
void RoundUp(const std::array<int64_t, 3>& multiples, Problem* problem) {
  const auto& [m, n, k] = multiples;
  if (!problem->conv) {
    problem->m = RoundedUp(problem->m, m);
    problem->n = RoundedUp(problem->n, n);
    problem->k = RoundedUp(problem->k, k);
  } else if (ConvGeometry& g = *problem->conv; g.groups == 1 || g.GroupInputs() > 1) {
    const int64_t inputs = RoundedUp(g.GroupInputs(), k), outputs = RoundedUp(g.GroupOutputs(), n);
    g.input_channels = g.groups * inputs;
    g.output_channels = g.groups * outputs;
  }
}

// "GEMMs", "u8s8s32", "s8s8s32 (k by 4)", …: the combination that is supported.
std::vector<std::string> Words(const Takes& takes) {
  std::vector<std::string> words;
  const auto add = [&](std::string_view operations, const std::vector<Taken>& all) {
    words.push_back(fmt::format("{}{}{}", words.empty() ? "" : "and ", all.empty() ? "no " : "", operations));
    for (const Taken& taken : all) {
      std::string word = ToString(taken);
      for (size_t i = 0; i < taken.multiples.size(); ++i) {
        if (taken.multiples.at(i) > 1) word += fmt::format(" ({} by {})", "mnk"[i], taken.multiples.at(i));
      }
      words.push_back(std::move(word));
    }
  };
  add("GEMMs", takes.gemm);
  add("convolutions", takes.conv);
  return words;
}

std::array<int64_t, 3> SizesOf(const Problem& p) {
  if (p.conv) return {1, p.conv->GroupOutputs(), p.conv->GroupInputs()};
  return {p.m, p.n, p.k};
}

}  // namespace

namespace {

uint64_t FeaturesFor(const Problem& problem, const Takes& takes) {
  if (problem.grouped) return takes.features.grouped;
  return problem.conv ? takes.features.conv : takes.features.gemm;
}

// How many problems have each feature.
using Counts = std::array<int64_t, INTACT_TARGET_FEATURES>;

// `is_grouped`: `of_gemms` are products with grouped weights.
std::vector<LackingFeature> Lacking(const Takes& takes, const Counts& of_gemms, const Counts& of_convs,
                                    bool is_grouped) {
  std::vector<LackingFeature> lacking;
  for (int i = 0; i < INTACT_TARGET_FEATURES; ++i) {
    const auto feature = static_cast<intact_target_feature>(i);
    const int64_t gemms = of_gemms.at(feature), convs = of_convs.at(feature);
    if (gemms + convs == 0) continue;
    std::string name = FeatureNames(INTACT_TARGET_BIT(feature));
    if (!is_grouped && Has(takes.features.gemm, feature)) name += " in convolutions";
    if (!is_grouped && Has(takes.features.conv, feature)) name += " in GEMMs";
    lacking.push_back({std::move(name), gemms + convs});
  }
  std::ranges::stable_sort(lacking, std::greater(), &LackingFeature::problems);
  return lacking;
}

}  // namespace

Problem FittedGrouped(Problem problem, uint64_t features) {
  GroupedFields& weights = *problem.grouped;
  const auto lacks = [&](intact_target_feature feature) {
    return (features & INTACT_TARGET_BIT(feature)) == 0;
  };
  // The type of a problem, if the target supports it; else one of the types that it supports.
  const auto choose = [&](auto type, const auto& all) {
    std::vector<decltype(type)> supported;
    for (const auto& [other, feature] : all) {
      if (!lacks(feature)) supported.push_back(other);
    }
    if (supported.empty() || std::ranges::find(supported, type) != supported.end()) return type;
    return supported[problem.seed % supported.size()];
  };
  using TypeFeature = std::pair<intact_type, intact_target_feature>;
  ResetLacking(features, &problem);
  if (lacks(INTACT_TARGET_EMPTY)) problem.m = std::max<int64_t>(problem.m, 1);
  const bool has_relu = problem.activation == INTACT_ACTIVATION_RELU;
  const bool has_clamp = problem.activation == INTACT_ACTIVATION_CLAMP;
  if ((has_relu && lacks(INTACT_TARGET_RELU)) || (has_clamp && lacks(INTACT_TARGET_CLAMP))) {
    problem.activation = INTACT_ACTIVATION_NONE;
  }
  if (problem.source == INTACT_TYPE_NONE && lacks(INTACT_TARGET_ROW_QUANTIZATION))
    problem.source = INTACT_F32;
  if (problem.source != INTACT_TYPE_NONE && lacks(INTACT_TARGET_DYNAMIC_ROWS)) {
    problem.source = INTACT_TYPE_NONE;
  }
  if (problem.source == INTACT_F16 && lacks(INTACT_TARGET_DYNAMIC_F16)) problem.source = INTACT_F32;
  const bool is_dynamic = problem.source != INTACT_TYPE_NONE;
  if (weights.fill == GroupedFill::kNonFinite && lacks(INTACT_TARGET_DYNAMIC_NAN)) {
    weights.fill = GroupedFill::kUniform;
  }
  if (weights.fill == GroupedFill::kHuge && lacks(INTACT_TARGET_SCALE_ZERO))
    weights.fill = GroupedFill::kSpread;
  problem.a_type = choose(problem.a_type, std::array{TypeFeature{INTACT_U8, INTACT_TARGET_A_U8},
                                                     TypeFeature{INTACT_S8, INTACT_TARGET_A_S8}});
  if (lacks(INTACT_TARGET_A_ZERO_POINT)) {
    if (is_dynamic && problem.a_type == INTACT_U8) {  // runs choose zero points
      if (!lacks(INTACT_TARGET_A_S8)) {
        problem.a_type = INTACT_S8;
      } else if (!lacks(INTACT_TARGET_ROW_QUANTIZATION)) {
        problem.source = INTACT_TYPE_NONE;
      }
    }
    weights.has_a_zero_points = problem.source != INTACT_TYPE_NONE;
  }
  weights.b_type = choose(
      weights.b_type,
      std::array{TypeFeature{INTACT_U8, INTACT_TARGET_B_U8}, TypeFeature{INTACT_S8, INTACT_TARGET_B_S8},
                 TypeFeature{INTACT_U4, INTACT_TARGET_B_U4}, TypeFeature{INTACT_S4, INTACT_TARGET_B_S4}});
  problem.c_type = choose(problem.c_type, std::array{TypeFeature{INTACT_F32, INTACT_TARGET_C_F32},
                                                     TypeFeature{INTACT_BF16, INTACT_TARGET_C_BF16},
                                                     TypeFeature{INTACT_F16, INTACT_TARGET_C_F16}});
  ResetMisfits(&problem);
  return problem;
}

std::optional<Problem> Fit(Problem problem, const Takes& takes) {
  if (problem.grouped) {
    if (takes.features.grouped == 0) return std::nullopt;
    return FittedGrouped(std::move(problem), takes.features.grouped);
  }
  const std::vector<Taken>& all = problem.conv ? takes.conv : takes.gemm;
  if (all.empty()) return std::nullopt;
  const uint64_t has = FeaturesFor(problem, takes);
  auto taken = std::ranges::find_if(all, [&](const Types& types) { return types == TypesOf(problem); });
  if (taken == all.end()) {
    const uint64_t digest = support::Fnv1a(problem.ToString());
    taken = all.begin() + static_cast<std::ptrdiff_t>(digest % all.size());
    SetTypes(*taken, &problem);
  }
  // These concern only plans of intact.
  problem.open_extents = problem.own_scratch = problem.saved = false;
  problem.usual_m = 0;
  problem.range_check = INTACT_RANGE_CHECKED;
  constexpr int kMostTurns = 4;  // a replacement may be lacking as well
  for (int turn = 0; turn < kMostTurns; ++turn) {
    RoundUp(taken->multiples, &problem);  // first: more columns may need features that one does not
    if (problem.Check()) return std::nullopt;
    const uint64_t lacking = FeaturesOf(problem) & ~has;
    if (lacking == 0) return problem;
    ForEach(lacking, [&](intact_target_feature feature) { Drop(feature, has, &problem); });
  }
  return std::nullopt;
}

FittedProblems Fit(std::span<const Problem> problems, const Takes& takes) {
  FittedProblems fitted;
  const bool is_grouped = !problems.empty() && problems.front().grouped;
  fitted.takes = is_grouped ? std::vector<std::string>{"products with grouped weights"} : Words(takes);
  fitted.of = std::ssize(problems);
  std::unordered_set<std::string> lines;
  Counts of_gemms = {}, of_convs = {};
  for (const Problem& unfitted : problems) {
    ForEach(FeaturesOf(unfitted) & ~FeaturesFor(unfitted, takes),
            [&](intact_target_feature feature) { ++(unfitted.conv ? of_convs : of_gemms).at(feature); });
    const std::optional<Problem> problem = Fit(unfitted, takes);
    if (!problem) {
      ++fitted.left_out;
      continue;
    }
    if (!lines.insert(problem->ToString()).second) continue;
    fitted.unchanged += *problem == unfitted ? 1 : 0;
    fitted.rounded += SizesOf(*problem) == SizesOf(unfitted) ? 0 : 1;
    fitted.problems.push_back(*problem);
  }
  fitted.lacking = Lacking(takes, of_gemms, of_convs, is_grouped);
  return fitted;
}

namespace {

// "without these, words, …", in lines of limited width.
std::string Listed(std::string_view indent, std::string_view head, const std::vector<std::string>& words) {
  constexpr size_t kWidth = 100;
  std::string text;
  std::string line = fmt::format("{}{}", indent, head);
  for (const std::string& word : words) {
    if (line.size() + word.size() > kWidth) {
      text += line;
      text += '\n';
      line = fmt::format("{}{:{}}", indent, "", head.size());
    }
    line += ' ';
    line += word;
  }
  text += line;
  text += '\n';
  return text;
}

}  // namespace

std::string ToText(const FittedProblems& fitted, std::string_view indent) {
  if (fitted.unchanged == fitted.of) return {};
  const int64_t others = std::ssize(fitted.problems) - fitted.unchanged - fitted.rounded;
  std::string text =
      fmt::format("{}{}, made from the sweep's {}: {} unchanged", indent,
                  support::Counted(fitted.problems.size(), "problem"), fitted.of, fitted.unchanged);
  if (fitted.rounded > 0) text += fmt::format(", {} with sizes rounded up to what it takes", fitted.rounded);
  if (others > 0) text += fmt::format(", {} with other types or features", others);
  text += '\n';
  text += Listed(indent, "of", fitted.takes);
  const std::vector<LackingFeature>& lacking = fitted.lacking;
  if (lacking.empty()) return text;
  std::vector<std::string> words;
  words.reserve(lacking.size());
  for (const LackingFeature& feature : lacking) {
    words.push_back(fmt::format("{} ({}){}", feature.name, feature.problems,
                                words.size() + 1 == lacking.size() ? "" : ","));
  }
  return text + Listed(indent, "without", words);
}

}  // namespace intact::verify
