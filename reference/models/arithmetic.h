// An Arithmetic describes what an implementation of a GEMM or a convolution computes: how it sums products,
// and how it turns sums into outputs. A Predictor predicts these outputs.
#ifndef INTACT_REFERENCE_MODELS_ARITHMETIC_H_
#define INTACT_REFERENCE_MODELS_ARITHMETIC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract/operation.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "reference/models/rounding.h"

namespace intact::reference {

/// The default is the contract.
struct Arithmetic {
  Model model;
  Rounding rounding = Rounding::kContract;
  bool operator==(const Arithmetic&) const = default;
};

/// "exact", "maddubs, flattened depth; half away from zero", …: the text of the model, then the text of the
/// rounding unless it is kContract.
std::string ToString(const Arithmetic& arithmetic);
/// The inverse of ToString().
std::optional<Arithmetic> ParseArithmetic(std::string_view text);

/// An output whose exact sum, bias_s32 included, leaves int32.
struct Overflow {
  int64_t output;
  int64_t sum;
};

/// Predicts the outputs of an operation one by one. Outputs are numbered in the order of C.
class Predictor {
 public:
  Predictor(const Gemm& gemm);            // NOLINT(google-explicit-constructor): Predict() takes all three
  Predictor(const Conv& conv);            // NOLINT(google-explicit-constructor)
  Predictor(const Operation& operation);  // NOLINT(google-explicit-constructor)

  /// An output and its GEMM: an item of a batch, or a lowered group of a convolution.
  struct Output {
    const Gemm& gemm;
    const Operands& operands;
    int64_t m, n;          // the output's row and column in `gemm`
    int64_t item;          // the number of the batch item
    int64_t first_column;  // the column of C at which the columns of `gemm` begin
    /// The requantization of this output.
    Requantization OwnRequantization() const;
    /// The factors of this output's scale.
    Scales OwnScales() const;
  };

  int64_t outputs() const noexcept { return outputs_; }
  intact_type type() const noexcept { return type_; }
  /// The depths of every GEMM.
  Depths depths() const noexcept { return operands_.front().depths; }
  std::span<const Operands> operands() const noexcept { return operands_; }
  Output At(int64_t output) const noexcept;

  /// Accumulators of all outputs.
  std::vector<int32_t> Accumulators(const Model& model) const;
  /// The output's accumulator; `in_pairs` is InPairs(model, depths()).
  int32_t Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t output) const;
  /// Outputs whose sums leave int32, in the order of C; none with INTACT_OVERFLOW_WRAPS. All other functions
  /// compute sums modulo 2³².
  std::vector<Overflow> Overflows() const;
  /// Writes the contract's output for a sum that may leave int32. An s32 output cannot hold such a sum and is
  /// written modulo 2³².
  void StoreExact(int64_t output, int64_t y, uint8_t* destination) const noexcept;
  /// Writes the output for accumulator `y`.
  void Store(int64_t output, int32_t y, Rounding rounding, uint8_t* destination) const noexcept;
  /// Output bytes from the accumulators of all outputs.
  std::vector<uint8_t> Outputs(std::span<const int32_t> accumulators, Rounding rounding) const;

 private:
  Predictor(intact_type type, std::vector<Gemm> gemms, int64_t side_by_side);
  int64_t NumberOf(size_t gemm, int64_t m, int64_t n) const noexcept;

  intact_type type_;
  std::vector<Gemm> gemms_;
  std::vector<Operands> operands_;
  // The number of GEMMs side by side in a row of C: a convolution's groups; 1 for a batch, where items follow
  // each other.
  int64_t side_by_side_;
  int64_t outputs_;
};

/// Output bytes, dense as from Outputs(). The contract is computed in 64 bits: an output whose sum leaves
/// int32 is written by StoreExact(). Other arithmetics wrap.
std::vector<uint8_t> Predict(const Predictor& predictor, const Arithmetic& arithmetic);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_ARITHMETIC_H_
