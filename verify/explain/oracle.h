// The right outputs of one operation, computed once: the exact reference and, on demand, the results of other
// arithmetics.
#ifndef INTACT_VERIFY_EXPLAIN_ORACLE_H_
#define INTACT_VERIFY_EXPLAIN_ORACLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "reference/contract/operation.h"
#include "reference/models/arithmetic.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// Computes each result when the result is first needed, and keeps it. Not thread-safe.
class Oracle {
 public:
  using Bytes = std::vector<uint8_t>;

  // Functions with an Oracle parameter also take an operation.
  Oracle(reference::Operation operation)  // NOLINT(google-explicit-constructor)
      : operation_(std::move(operation)) {}
  Oracle(reference::Gemm gemm) : operation_(std::move(gemm)) {}  // NOLINT(google-explicit-constructor)
  Oracle(reference::Conv conv) : operation_(std::move(conv)) {}  // NOLINT(google-explicit-constructor)
  Oracle(reference::Grouped grouped)                             // NOLINT(google-explicit-constructor)
      : operation_(std::move(grouped)) {}
  explicit Oracle(const Problem& problem) : operation_(Materialize(problem)) {}

  const reference::Operation& operation() const { return operation_; }
  /// The operation if it has grouped weights, else nullptr. For grouped weights, only type(), outputs(),
  /// columns(), expected() and Predict() of the contract may be called.
  const reference::Grouped* grouped() const { return std::get_if<reference::Grouped>(&operation_); }
  const reference::Linear& linear() const { return LinearOf(operation_); }
  intact_type type() const { return grouped() != nullptr ? grouped()->c_type : linear().c_type; }
  /// The number of output elements, and of columns of C.
  int64_t outputs() const { return OutputOf(operation_).rows * columns(); }
  int64_t columns() const { return OutputOf(operation_).columns; }
  /// The geometry of a convolution; nullptr for a GEMM.
  const reference::ConvGeometry* geometry() const;

  const reference::Predictor& predictor() const;
  /// The accumulators of all outputs under a model.
  const std::vector<int32_t>& Accumulators(const reference::Model& model) const;
  /// The outputs under an arithmetic whose sums wrap in int32.
  const Bytes& Wrapped(const reference::Arithmetic& arithmetic) const;
  /// The exact sums that leave int32, by the index of the output.
  const std::map<int64_t, int64_t>& overflows() const;
  /// The outputs of the contract. If a sum leaves int32, reference::Predictor::StoreExact() computes the
  /// output.
  const Bytes& expected() const;
  /// The outputs under an arithmetic: expected() for the contract, Wrapped() for all others.
  const Bytes& Predict(const reference::Arithmetic& arithmetic) const;

 private:
  const reference::Operation operation_;
  mutable std::optional<reference::Predictor> predictor_;
  mutable std::deque<std::pair<reference::Model, std::vector<int32_t>>> accumulators_;
  mutable std::deque<std::pair<reference::Arithmetic, Bytes>> wrapped_;
  mutable std::optional<std::map<int64_t, int64_t>> overflows_;
  mutable std::optional<Bytes> expected_;  // only of grouped weights, or if sums overflow
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_ORACLE_H_
