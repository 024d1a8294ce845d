#include "verify/minimise.h"

#include <vector>

namespace intact::verify {
namespace {

// Adds `problem` with another value of one field, unless it has that value already.
template <class T>
void Try(const Problem& problem, T Problem::*field, T value, std::vector<Problem>* candidates) {
  if (problem.*field == value) return;
  candidates->push_back(problem);
  candidates->back().*field = value;
}

void TrySmaller(const Problem& problem, int64_t Problem::*dimension, std::vector<Problem>* candidates) {
  const int64_t size = problem.*dimension;
  // Steps of 2 and 4 keep a remainder that the failure may need.
  for (const int64_t smaller :
       {int64_t{1}, int64_t{2}, int64_t{4}, size / 2, size - size / 4, size - 4, size - 2, size - 1}) {
    if (smaller >= 1 && smaller < size) Try(problem, dimension, smaller, candidates);
  }
}

void DropResidual(Problem* problem) {
  problem->residual = INTACT_TYPE_NONE;
  problem->zres = 0;
  problem->res_pad = 0;
  problem->in_place = false;
}

// Problems one step simpler, the biggest steps first. Some may not be valid.
std::vector<Problem> Simpler(const Problem& problem) {
  std::vector<Problem> candidates;
  Problem bare = problem;
  bare.c_type = INTACT_S32;
  bare.scale = ScaleKind::kNone;
  bare.activation = INTACT_ACTIVATION_NONE;
  bare.zc = 0;
  DropResidual(&bare);
  if (bare.bias == BiasKind::kF32) bare.bias = BiasKind::kNone;
  if (bare != problem) candidates.push_back(bare);
  Problem without_residual = problem;
  DropResidual(&without_residual);
  if (without_residual != problem) candidates.push_back(without_residual);
  TrySmaller(problem, &Problem::m, &candidates);
  TrySmaller(problem, &Problem::n, &candidates);
  TrySmaller(problem, &Problem::k, &candidates);
  Try(problem, &Problem::threads, 1, &candidates);
  Try(problem, &Problem::a_pad, int64_t{0}, &candidates);
  Try(problem, &Problem::c_pad, int64_t{0}, &candidates);
  Try(problem, &Problem::res_pad, int64_t{0}, &candidates);
  Try(problem, &Problem::in_place, false, &candidates);
  Try(problem, &Problem::zres, 0, &candidates);
  Try(problem, &Problem::activation, INTACT_ACTIVATION_NONE, &candidates);
  Try(problem, &Problem::bias, BiasKind::kNone, &candidates);
  if (problem.scale == ScaleKind::kChannel) Try(problem, &Problem::scale, ScaleKind::kTensor, &candidates);
  Try(problem, &Problem::zc, 0, &candidates);
  Try(problem, &Problem::za, 0, &candidates);
  Try(problem, &Problem::zb_kind, ZeroPointKind::kTensor, &candidates);
  Try(problem, &Problem::zb, 0, &candidates);
  Try(problem, &Problem::declared_min, 0, &candidates);
  Try(problem, &Problem::declared, 255, &candidates);
  Try(problem, &Problem::range_check, INTACT_RANGE_CHECKED, &candidates);
  Try(problem, &Problem::a_type, INTACT_U8, &candidates);
  Try(problem, &Problem::b_type, INTACT_S8, &candidates);
  Try(problem, &Problem::fill, Fill::kUniform, &candidates);
  Try(problem, &Problem::seed, uint64_t{1}, &candidates);
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
