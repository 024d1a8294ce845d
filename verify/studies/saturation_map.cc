#include "verify/studies/saturation_map.h"

#include <algorithm>

#include "core/result.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

Problem CellProblem(intact_isa isa, int32_t amax, int32_t wmax) {
  Problem problem;
  problem.m = 16;
  problem.n = 32;
  problem.k = 128;
  problem.amax = amax;
  problem.wmax = wmax;
  problem.fill = Fill::kUniform;
  problem.mode = INTACT_SATURATING;
  problem.isa = isa;
  return problem;
}

/// Compares `output` with the exact reference and keeps the worst error and the first witness.
Comparison Examine(const Oracle& oracle, const std::vector<uint8_t>& output, SaturationCell* cell) {
  Comparison comparison = Compare(oracle, output, std::nullopt, /*max_listed=*/1);
  cell->max_abs_error = comparison.max_abs_difference;
  if (!comparison.listed.empty() && !comparison.listed[0].pairs.empty()) {
    cell->witness = comparison.listed[0].pairs[0];
  }
  return comparison;
}

// `target`: nullptr if the cell is only predicted.
Result<SaturationCell> MakeCell(const Problem& problem, const Target* target) {
  const Oracle oracle(problem);
  SaturationCell cell;
  cell.problem = problem;
  const Comparison predicted = Examine(oracle, oracle.Predict({reference::Model::kMaddubs}), &cell);
  cell.outputs = predicted.outputs;
  cell.predicted = predicted.differing;
  if (target == nullptr) return cell;
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, RunChecked(*target, oracle, RunOptionsOf(problem)));
  const Comparison measured = Examine(oracle, output, &cell);
  cell.measured = measured.differing;
  cell.mispredicted = measured.off_maddubs;
  return cell;
}

Result<SaturationMap> MakeMap(intact_isa isa, const Target* target) {
  SaturationMap map;
  map.isa = isa;
  map.measured = target != nullptr;
  for (int32_t i = 1; i <= 16; ++i) {
    map.amax.push_back(16 * i - 1);
    map.wmax.push_back(8 * i);
  }
  for (const int32_t wmax : map.wmax) {
    for (const int32_t amax : map.amax) {
      ASSIGN_OR_RETURN(SaturationCell cell, MakeCell(CellProblem(map.isa, amax, wmax), target));
      map.cells.push_back(cell);
    }
  }
  return map;
}

}  // namespace

bool SaturationMap::Agrees() const {
  return std::ranges::all_of(cells, [](const SaturationCell& cell) { return cell.mispredicted == 0; });
}

Result<SaturationMap> MapSaturation() {
  const IntactTarget target;
  return MakeMap(INTACT_ISA_AVX2, intact_isa_available(INTACT_ISA_AVX2) != 0 ? &target : nullptr);
}

Result<SaturationMap> MapSaturation(const Target& target) { return MakeMap(INTACT_ISA_ANY, &target); }

}  // namespace intact::verify
