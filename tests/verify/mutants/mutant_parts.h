// Parts of mutants: a faulty computation, combined with parts of the scalar reference.
#ifndef INTACT_TESTS_VERIFY_MUTANTS_MUTANT_PARTS_H_
#define INTACT_TESTS_VERIFY_MUTANTS_MUTANT_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

struct Mutant {
  std::unique_ptr<Target> target;  // named after the fault
  std::string fault;               // description
  Problem problem;                 // a problem that must show the fault
  Cause cause;                     // the expected classification
  std::string detail;              // text that the verifier's report must contain
};

/// A faulty computation of the output bytes. A correct one would accumulate by `model`.
using Computation = std::function<std::vector<uint8_t>(const reference::Gemm& gemm, reference::Model model)>;
using ConvComputation =
    std::function<std::vector<uint8_t>(const reference::Conv& conv, reference::Model model)>;

/// The correct computations.
std::vector<uint8_t> Compute(const reference::Gemm& gemm, reference::Model model);
std::vector<uint8_t> Compute(const reference::Conv& conv, reference::Model model);

/// Makes the padding part of the input, with `value`. The padding of a transposed convolution crops its
/// output instead.
std::vector<uint8_t> PadWith(const reference::Conv& conv, uint8_t value, reference::Model model);

/// Calls visit(accumulator, requantization, scale of the row, scale of the column) for each output.
template <class Visit>
void ForEachOutput(const reference::Linear& operation, int64_t columns,
                   const std::vector<int32_t>& accumulators, const Visit& visit) {
  for (size_t output = 0; output < accumulators.size(); ++output) {
    const auto at = static_cast<int64_t>(output);
    const reference::Requantization column = reference::RequantizationOf(operation, at % columns);
    visit(accumulators[output], reference::AtOutput(column, operation, columns, at),
          reference::ActivationScale(operation, at / columns), column.scale);
  }
}
template <class Visit>
void ForEachOutput(const reference::Gemm& gemm, reference::Model model, const Visit& visit) {
  for (int64_t i = 0; i < gemm.batch; ++i) {
    const reference::Gemm item = reference::Item(gemm, i);
    ForEachOutput(item, item.n, reference::Accumulators(item, model), visit);
  }
}
template <class Visit>
void ForEachOutput(const reference::Conv& conv, reference::Model model, const Visit& visit) {
  ForEachOutput(conv, conv.geometry.output_channels, reference::Accumulators(conv, model), visit);
}

/// Removes the addition of the residual from `q`. Returns the value that it would add.
std::optional<float> TakeResidual(reference::Requantization* q);

/// A mutant of GEMMs, of convolutions, or of both. `problem` is a line.
Mutant MakeMutant(const char* name, Computation gemm, ConvComputation conv, std::string fault,
                  std::string_view problem, Cause cause, std::string detail);

/// Reported faults of other libraries: tests/data/regressions.json.
std::vector<Mutant> ReportedMutants();

}  // namespace intact::verify
#endif  // INTACT_TESTS_VERIFY_MUTANTS_MUTANT_PARTS_H_
