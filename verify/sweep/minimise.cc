#include "verify/sweep/minimise.h"

#include <utility>
#include <vector>

#include "verify/problem/reset.h"

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

// Adds, for each of `fields`, `problem` with that field's default value.
template <class... Fields>
void TryDefaults(const Problem& problem, std::vector<Problem>* candidates, Fields... fields) {
  const Problem defaults;
  (Try(problem, fields, defaults.*fields, candidates), ...);
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
  TryDefaults(problem, candidates, &Problem::row_zero_points, &Problem::source, &Problem::numbers,
              &Problem::item_pointers, &Problem::item_pad, &Problem::a_by_columns, &Problem::b_by_columns,
              &Problem::b_pad);
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
  TryDefaults(problem, candidates, &Problem::source, &Problem::numbers);
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
  TryDefaults(problem, candidates, &Problem::pairing);
}

// Problems one step simpler, the biggest steps first. Some may not be valid.
std::vector<Problem> Simpler(const Problem& problem) {
  std::vector<Problem> candidates;
  Problem bare = problem;
  bare.SetOutput(INTACT_S32);
  bare.scale = ScaleKind::kNone;
  bare.activation = INTACT_ACTIVATION_NONE;
  ResetNeeding(INTACT_TARGET_RESIDUAL, &bare);
  if (bare.IsDynamic()) bare = problem;  // dynamic quantization needs a scaled output
  if (bare.bias == BiasKind::kF32) bare.bias = BiasKind::kNone;
  if (bare != problem) candidates.push_back(bare);
  Problem without_residual = problem;
  ResetNeeding(INTACT_TARGET_RESIDUAL, &without_residual);
  if (without_residual != problem) candidates.push_back(without_residual);
  if (problem.conv) {
    TrySmallerConv(problem, &candidates);
  } else {
    TrySmallerGemm(problem, &candidates);
  }
  TrySmaller(
      problem, problem.calls, 1, [](Problem* p, int64_t value) { p->calls = static_cast<int32_t>(value); },
      &candidates);
  TryDefaults(problem, &candidates, &Problem::reused, &Problem::threads, &Problem::open_extents,
              &Problem::own_scratch, &Problem::saved, &Problem::usual_m, &Problem::a_pad, &Problem::c_pad,
              &Problem::res_pad, &Problem::in_place, &Problem::zres, &Problem::activation, &Problem::bias);
  if (problem.scale >= ScaleKind::kChannel) Try(problem, &Problem::scale, ScaleKind::kTensor, &candidates);
  TryDefaults(problem, &candidates, &Problem::has_table, &Problem::fixed, &Problem::zc, &Problem::za,
              &Problem::zb_kind, &Problem::zb, &Problem::range_min, &Problem::range_max,
              &Problem::range_check, &Problem::overflow, &Problem::amax, &Problem::wmax, &Problem::fill,
              &Problem::seed);
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
