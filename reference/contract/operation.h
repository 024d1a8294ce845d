// A GEMM, a convolution or a product with grouped weights, with its tensors.
#ifndef INTACT_REFERENCE_CONTRACT_OPERATION_H_
#define INTACT_REFERENCE_CONTRACT_OPERATION_H_

#include <cassert>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"
#include "reference/contract/grouped.h"

namespace intact::reference {

using Operation = std::variant<Gemm, Conv, Grouped>;

/// Calls visit(operation) for an operation that must be a GEMM or a convolution.
template <class Visit, class OperationOrConst>
decltype(auto) VisitLinear(Visit&& visit, OperationOrConst& operation) {
  assert(!std::holds_alternative<Grouped>(operation));
  if (auto* const gemm = std::get_if<Gemm>(&operation)) return visit(*gemm);
  return visit(*std::get_if<Conv>(&operation));
}

/// What a GEMM and a convolution share.
inline const Linear& LinearOf(const Operation& operation) {
  return VisitLinear([](const Linear& one) -> const Linear& { return one; }, operation);
}
inline Linear& LinearOf(Operation& operation) {
  return VisitLinear([](Linear& one) -> Linear& { return one; }, operation);
}

/// The size of a dense tensor. A convolution's tensor has a row for each pixel and a column for each channel.
struct Extents {
  int64_t rows, columns;
};
/// InputOf() returns the extents of A, OutputOf() the extents of C, with all items of a batch.
inline Extents InputOf(const Gemm& gemm) { return {gemm.rows(), gemm.k}; }
inline Extents InputOf(const Conv& conv) {
  return {conv.geometry.InputPixels(), conv.geometry.input_channels};
}
inline Extents OutputOf(const Gemm& gemm) { return {gemm.rows(), gemm.n}; }
inline Extents OutputOf(const Conv& conv) {
  return {conv.geometry.OutputPixels(), conv.geometry.output_channels};
}
inline Extents OutputOf(const Grouped& grouped) { return {grouped.m, grouped.n}; }
inline Extents InputOf(const Operation& operation) {
  return VisitLinear([](const auto& one) { return InputOf(one); }, operation);
}
inline Extents OutputOf(const Operation& operation) {
  return std::visit([](const auto& one) { return OutputOf(one); }, operation);
}

/// Output bytes of a GEMM or a convolution from accumulators.
inline std::vector<uint8_t> Outputs(const Operation& operation, const std::vector<int32_t>& accumulators) {
  return VisitLinear([&](const auto& one) { return Outputs(one, accumulators); }, operation);
}

/// Calls visit(name, field) for each field of a Gemm or a Conv, except float_steps and taps, which only
/// models read.
template <class Visit, class GemmOrConv>
void ForEachField(Visit&& visit, GemmOrConv& o) {
  core::ForEachField(visit, o);
  visit("a", o.a);
  visit("a_source", o.a_source);
  visit("a_zero_points", o.a_zero_points);
  visit("a_scales", o.a_scales);
  visit("b", o.b);
  visit("residual", o.residual);
  if constexpr (std::is_base_of_v<Conv, GemmOrConv>) {
    visit("geometry", o.geometry);
  } else {
    visit("m", o.m);
    visit("n", o.n);
    visit("k", o.k);
    visit("batch", o.batch);
    visit("has_runtime_b", o.has_runtime_b);
    visit("item_scales", o.item_scales);
    visit("item_zero_points", o.item_zero_points);
  }
}

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_OPERATION_H_
