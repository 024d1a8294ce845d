// What an implementation of a GEMM or a convolution computes, as one value: how it sums products and how it
// makes outputs of the sums; and what it outputs.
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

/// "exact", "maddubs, flattened depth; half away from zero", …: the model's text and, unless it is the
/// contract's, the rounding's.
std::string ToString(const Arithmetic& arithmetic);
/// What ToString() gave.
std::optional<Arithmetic> ParseArithmetic(std::string_view text);

/// An output whose exact sum, bias_s32 included, leaves int32.
struct Overflow {
  int64_t output;
  int64_t sum;
};

/// Predicts the outputs of an operation one by one. Outputs are numbered as they lie in C.
class Predictor {
 public:
  Predictor(const Gemm& gemm);            // NOLINT(google-explicit-constructor): Predict() takes all three
  Predictor(const Conv& conv);            // NOLINT(google-explicit-constructor)
  Predictor(const Operation& operation);  // NOLINT(google-explicit-constructor)

  /// An output, and the GEMM that it belongs to: the item of a batch, or the lowered group of a convolution.
  struct Output {
    const Gemm& gemm;
    const Operands& operands;
    int64_t m, n;          // of that GEMM
    int64_t item;          // of a batch
    int64_t first_column;  // of that GEMM among the columns of C
    /// How its accumulator is to be requantized.
    Requantization OwnRequantization() const;
    /// The factors of its scale.
    Scales OwnScales() const;
  };

  int64_t outputs() const noexcept { return outputs_; }
  intact_type type() const noexcept { return type_; }
  /// Of all GEMMs.
  Depths depths() const noexcept { return operands_.front().depths; }
  std::span<const Operands> operands() const noexcept { return operands_; }
  Output At(int64_t output) const noexcept;

  /// Accumulators of all outputs.
  std::vector<int32_t> Accumulators(const Model& model) const;
  /// The output's accumulator; `in_pairs` is InPairs(model, depths()).
  int32_t Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t output) const;
  /// Outputs whose sums leave int32, by number; none with INTACT_OVERFLOW_WRAPS. All else here computes sums
  /// modulo 2³².
  std::vector<Overflow> Overflows() const;
  /// Writes the output of the contract for a sum that may leave int32; an s32 output has none, and is that modulo 2³².
  void StoreExact(int64_t output, int64_t y, uint8_t* destination) const noexcept;
  /// Writes the output that accumulator `y` gives.
  void Store(int64_t output, int32_t y, Rounding rounding, uint8_t* destination) const noexcept;
  /// Output bytes from the accumulators of all outputs.
  std::vector<uint8_t> Outputs(std::span<const int32_t> accumulators, Rounding rounding) const;

 private:
  Predictor(intact_type type, std::vector<Gemm> gemms, int64_t side_by_side);
  int64_t NumberOf(size_t gemm, int64_t m, int64_t n) const noexcept;

  intact_type type_;
  std::vector<Gemm> gemms_;
  std::vector<Operands> operands_;
  int64_t side_by_side_;  // GEMMs whose columns make a row of C: groups; or 1, items follow each other
  int64_t outputs_;
};

/// Output bytes, dense as Outputs() gives them. The contract is computed in 64 bits: where a sum leaves int32 its
/// output is that of StoreExact(). Other arithmetics wrap.
std::vector<uint8_t> Predict(const Predictor& predictor, const Arithmetic& arithmetic);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_ARITHMETIC_H_
