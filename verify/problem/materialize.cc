// The tensors of a problem.
#include <cassert>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"
#include "reference/models/lowering.h"
#include "verify/problem/fields.h"
#include "verify/problem/fill.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

constexpr std::string_view kEpilogue = "bias scale fixed table res act";

// Fills the common part of a GEMM and a convolution, without the epilogue. `a` and `b` are as the fills make
// them.
void FillLinear(const Problem& problem, reference::Linear* operation) {
  operation->a_type = problem.a_type;
  operation->b_type = problem.b_type;
  operation->c_type = problem.c_type;
  operation->mode = problem.mode;
  operation->pairing = problem.pairing;
  if (problem.quantization == INTACT_QUANTIZATION_STATIC) operation->a_zero_point = problem.za;
  operation->c_zero_point = problem.zc;
  if (problem.range_min > 0 || problem.range_max < 255) {
    operation->a_min = core::LowestOf(problem.a_type) + problem.range_min;
    operation->a_max = core::LowestOf(problem.a_type) + problem.range_max;
  }
  operation->range_check = problem.range_check;
  operation->overflow = problem.overflow;
  operation->a_quantization = problem.quantization;
  operation->a = FillActivations(problem);
  if (problem.a_type == INTACT_S8) {
    for (uint8_t& a : operation->a) a = static_cast<uint8_t>(a ^ 0x80);  // the distance d becomes d − 128
  }
  operation->b = FillWeights(problem);
  if (problem.b_type == INTACT_U8) {
    for (int8_t& b : operation->b) b = static_cast<int8_t>(b ^ 0x80);  // w becomes w + 128
  }
  operation->b_zero_points = FillWeightZeroPoints(problem);
}

}  // namespace

reference::Operation Materialize(const Problem& problem) {
  if (problem.grouped) return MaterializeGrouped(problem);
  if (problem.conv) return MaterializeConv(problem);
  return MaterializeGemm(problem);
}

reference::Gemm MaterializeGemm(const Problem& problem) {
  assert(!problem.conv && !problem.grouped);
  reference::Gemm gemm;
  gemm.m = problem.m;
  gemm.n = problem.n;
  gemm.k = problem.k;
  gemm.batch = problem.batch;
  gemm.has_runtime_b = problem.runtime_b;
  FillLinear(problem, &gemm);
  if (IsOfItems(problem.zb_kind)) {
    gemm.item_zero_points = std::exchange(gemm.b_zero_points, {problem.zb});
  }
  gemm.b = reference::FromColumns(gemm.b, gemm.n, gemm.k);
  FillQuantization(problem, &gemm);
  FillFields(kEpilogue,
             {problem, &gemm, {reference::Operands(gemm.has_runtime_b ? reference::Item(gemm, 0) : gemm)}});
  if (IsOfItems(problem.scale)) FillItemScales(problem, &gemm);
  return gemm;
}

reference::Conv MaterializeConv(const Problem& problem) {
  assert(problem.conv);
  reference::Conv conv;
  conv.geometry = *problem.conv;
  FillLinear(problem, &conv);
  FillQuantization(problem, &conv);
  const std::vector<reference::Gemm> groups = reference::Lower(conv);
  FillFields(kEpilogue, {problem, &conv, {groups.begin(), groups.end()}});
  return conv;
}

reference::Grouped MaterializeGrouped(const Problem& p) {
  reference::Grouped grouped;
  static_cast<core::WeightFormat&>(grouped) = *p.grouped;
  grouped.m = p.m;
  grouped.n = p.n;
  grouped.k = p.k;
  grouped.experts = p.grouped->experts;
  grouped.item_rows = p.item;
  grouped.a_type = p.a_type;
  grouped.a_source_type = p.source;
  grouped.SetGroupScales(p.grouped->has_group_scales);
  grouped.c_type = p.c_type;
  FillFields("experts act fill zb gscale min bias src", {p, nullptr, {}, &grouped});
  return grouped;
}

RunOptions RunOptionsOf(const Problem& problem) {
  return {problem, problem.ToString(), problem.grouped.has_value(), {}};
}

}  // namespace intact::verify
