#include "verify/sweep/minimise.h"

#include <ranges>
#include <utility>
#include <vector>

#include "verify/problem/fields.h"

namespace intact::verify {
namespace {

constexpr uint64_t kSeedsTried = 24;

// Adds `problem` with another value of one field, unless it has that value already.
template <class T, class Of>
void Try(const Problem& problem, T Of::*field, T value, std::vector<Problem>* candidates) {
  if (problem.*field == value) return;
  candidates->push_back(problem);
  candidates->back().*field = value;
}

// Adds, for each field that is not kept, `problem` with that field's default value.
void TryDefaults(const Problem& problem, std::vector<Problem>* candidates) {
  for (const Field& field : LineKindOf(problem).fields | std::views::reverse) {
    if (field.is_kept || field.is_required) continue;
    Problem simpler = problem;
    simpler.Reset(field.key);
    if (simpler != problem) candidates->push_back(simpler);
  }
}

// Adds problems with values from `low` to `size` - 1; set(&problem, value) sets one.
template <class Set>
void TrySmaller(const Problem& problem, int64_t size, int64_t low, Set set,
                std::vector<Problem>* candidates) {
  // Steps of 2 and 4 keep a remainder that the failure may need.
  for (const int64_t smaller :
       {low, low + 1, low + 3, size / 2, size - size / 4, size - 4, size - 2, size - 1}) {
    if (smaller < low || smaller >= size) continue;
    candidates->push_back(problem);
    set(&candidates->back(), smaller);
  }
}

void TryStatic(const Problem& problem, std::vector<Problem>* candidates) {
  Problem static_one = problem;
  static_one.quantization = INTACT_QUANTIZATION_STATIC;
  static_one.row_zero_points = false;
  static_one.source = INTACT_F32;
  static_one.numbers = Numbers::kScaled;
  if (static_one != problem) candidates->push_back(static_one);
}

void TrySmallerGemm(const Problem& problem, std::vector<Problem>* candidates) {
  for (int64_t Problem::*dimension : {&Problem::m, &Problem::n, &Problem::k}) {
    TrySmaller(
        problem, problem.*dimension, 1, [=](Problem* p, int64_t value) { p->*dimension = value; },
        candidates);
  }
  // Other values may fail where these do not.
  for (uint64_t seed = 1; problem.m * problem.n > 1 && seed <= kSeedsTried; ++seed) {
    candidates->push_back(problem);
    candidates->back().m = candidates->back().n = 1;
    candidates->back().seed = seed;
  }
  TrySmaller(
      problem, problem.batch, 1, [](Problem* p, int64_t value) { p->batch = value; }, candidates);
  TryStatic(problem, candidates);
  Problem with_one_b = problem;
  with_one_b.runtime_b = false;
  if (IsOfItems(problem.scale)) with_one_b.scale = ScaleKind::kTensor;
  if (IsOfItems(problem.zb_kind)) with_one_b.zb_kind = ZeroPointKind::kTensor;
  if (with_one_b != problem) candidates->push_back(with_one_b);
  Problem by_items = problem;
  if (problem.scale == ScaleKind::kItemColumn) by_items.scale = ScaleKind::kItem;
  if (problem.zb_kind == ZeroPointKind::kItemColumn) by_items.zb_kind = ZeroPointKind::kItem;
  if (by_items != problem) candidates->push_back(by_items);
}

void TrySmallerAxis(const Problem& problem, size_t i, std::vector<Problem>* candidates) {
  using reference::Axis;
  constexpr std::pair<int64_t Axis::*, int64_t> kExtents[] = {
      {&Axis::input, 1},     {&Axis::kernel, 1},  {&Axis::stride, 1},    {&Axis::dilation, 1},
      {&Axis::pad_begin, 0}, {&Axis::pad_end, 0}, {&Axis::output_pad, 0}};
  const Axis& axis = problem.conv->axes[i];
  for (const auto& [extent, low] : kExtents) {
    TrySmaller(
        problem, axis.*extent, low,
        [i, member = extent](Problem* p, int64_t value) { p->conv->axes[i].*member = value; }, candidates);
  }
}

void TrySmallerConv(const Problem& problem, std::vector<Problem>* candidates) {
  const reference::ConvGeometry& g = *problem.conv;
  const auto first_axis = static_cast<size_t>(reference::kMaxSpatial - g.dims);
  reference::Axis trivial;
  trivial.transposed = g.IsTransposed();
  if (g.dims > 1 && g.axes[first_axis] == trivial) {
    candidates->push_back(problem);
    candidates->back().conv->axes[first_axis] = {};
    --candidates->back().conv->dims;
  }
  if (g.IsTransposed()) {
    candidates->push_back(problem);
    for (reference::Axis& axis : candidates->back().conv->axes) axis.transposed = false;
  }
  TrySmaller(
      problem, g.batch, 1, [](Problem* p, int64_t value) { p->conv->batch = value; }, candidates);
  TryStatic(problem, candidates);
  // Fewer groups of an unchanged size; then fewer channels of a group.
  const auto set_channels = [](Problem* p, int64_t groups, int64_t inputs, int64_t outputs) {
    p->conv->groups = groups;
    p->conv->input_channels = groups * inputs;
    p->conv->output_channels = groups * outputs;
  };
  const int64_t inputs = g.GroupInputs();
  const int64_t outputs = g.GroupOutputs();
  TrySmaller(
      problem, g.groups, 1, [=](Problem* p, int64_t value) { set_channels(p, value, inputs, outputs); },
      candidates);
  TrySmaller(
      problem, inputs, 1, [=, &g](Problem* p, int64_t value) { set_channels(p, g.groups, value, outputs); },
      candidates);
  TrySmaller(
      problem, outputs, 1, [=, &g](Problem* p, int64_t value) { set_channels(p, g.groups, inputs, value); },
      candidates);
  for (size_t i = first_axis; i < g.axes.size(); ++i) TrySmallerAxis(problem, i, candidates);
}

void TryWithoutEpilogue(const Problem& problem, std::vector<Problem>* candidates) {
  Problem bare = problem;
  bare.SetOutput(INTACT_S32);
  bare.scale = ScaleKind::kNone;
  bare.activation = INTACT_ACTIVATION_NONE;
  ResetNeeding(INTACT_TARGET_RESIDUAL, &bare);
  if (bare.IsDynamic()) bare = problem;  // dynamic quantization needs a scaled output
  if (bare.bias == BiasKind::kF32) bare.bias = BiasKind::kNone;
  if (bare != problem) candidates->push_back(bare);
  Problem without_residual = problem;
  ResetNeeding(INTACT_TARGET_RESIDUAL, &without_residual);
  if (without_residual != problem) candidates->push_back(without_residual);
}

void TrySmallerGrouped(const Problem& problem, std::vector<Problem>* candidates) {
  Problem simpler = problem;
  static_cast<RunSettings&>(simpler) = {.isa = problem.isa};
  if (simpler != problem) candidates->push_back(simpler);
  TryDefaults(problem, candidates);
  simpler = problem;
  simpler.grouped->has_a_zero_points = false;
  if (simpler != problem) candidates->push_back(simpler);
  Try(problem, &Problem::c_type, INTACT_F32, candidates);
  simpler = problem;
  simpler.source = INTACT_F32;
  simpler.grouped->has_a_zero_points = true;
  if (simpler != problem) candidates->push_back(simpler);
  TrySmaller(
      problem, problem.grouped->experts, 1, [](Problem* p, int64_t value) { p->grouped->experts = value; },
      candidates);
  // Sizes of whole items and groups stay such.
  simpler = problem;
  simpler.m -= problem.item;
  if (simpler != problem) candidates->push_back(simpler);
  simpler = problem;
  simpler.k -= problem.grouped->group;
  if (simpler != problem) candidates->push_back(simpler);
  for (int64_t Problem::*dimension : {&Problem::k, &Problem::n, &Problem::m}) {
    TrySmaller(
        problem, problem.*dimension, 1, [=](Problem* p, int64_t value) { p->*dimension = value; },
        candidates);
  }
}

// Problems one step simpler, the biggest steps first. Some may not be valid.
std::vector<Problem> Simpler(const Problem& problem) {
  std::vector<Problem> candidates;
  if (problem.grouped) {
    TrySmallerGrouped(problem, &candidates);
  } else {
    TryWithoutEpilogue(problem, &candidates);
    problem.conv ? TrySmallerConv(problem, &candidates) : TrySmallerGemm(problem, &candidates);
  }
  TrySmaller(
      problem, problem.calls, 1, [](Problem* p, int64_t value) { p->calls = static_cast<int32_t>(value); },
      &candidates);
  if (problem.grouped) return candidates;
  TryDefaults(problem, &candidates);
  Try(problem, &Problem::seed, Problem().seed, &candidates);
  return candidates;
}

}  // namespace

Problem Minimise(Problem problem, const std::function<bool(const Problem&)>& fails) {
  int runs = 0;
  for (bool simpler = true; simpler;) {
    simpler = false;
    for (const Problem& candidate : Simpler(problem)) {
      if (candidate.Check()) continue;
      if (++runs > kMaxMinimiseRuns) return problem;
      if (!fails(candidate)) continue;
      problem = candidate;
      simpler = true;
      break;
    }
  }
  return problem;
}

}  // namespace intact::verify
