// Probes are rows of the output that the reference computes: only some rows, because it is slow. Weights are
// prepared once for all activations and models.
#ifndef INTACT_BENCH_CASES_PROBES_H_
#define INTACT_BENCH_CASES_PROBES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/contract/operation.h"

namespace intact::bench {

/// A of a GEMM or of all items of a batch, or a convolution's input; in u8.
struct Activations {
  std::vector<uint8_t> a;
  std::vector<int32_t> zero_points;  // of each row; empty: all are 0
  std::vector<float> scales;         // of each row; empty: the columns' scales include the one scale of A
};

/// Accumulators that each model computes.
struct Sums {
  std::vector<int32_t> exact, maddubs;
};

class Probes {
 public:
  /// The activations of `operation` are ignored.
  explicit Probes(const reference::Operation& operation);

  size_t count() const { return count_; }
  /// Adds rows `rows` of the output for `x` as probes, numbered from count() on. `operation` must be the
  /// constructor's.
  void Add(const reference::Operation& operation, const Activations& x, const std::vector<int64_t>& rows);
  /// All probes, a value for each column.
  Sums Accumulate() const;

 private:
  /// Probes as a GEMM: all probes for the output channels of one group, or the probes of one item.
  struct Piece {
    reference::Gemm gemm;
    std::vector<size_t> probes;  // the number of each of its rows
    int64_t first_column = 0;

    /// Adds row `row` of `x` as probe number `probe`.
    void Add(const Activations& x, int64_t row, size_t probe);
  };

  static std::vector<Piece> PiecesOf(const reference::Gemm& gemm);
  static std::vector<Piece> PiecesOf(const reference::Conv& conv);
  void Add(const reference::Gemm& gemm, const Activations& x, const std::vector<int64_t>& rows);
  void Add(reference::Conv conv, const Activations& x, const std::vector<int64_t>& rows);

  std::vector<Piece> pieces_;
  int64_t columns_ = 0;
  size_t count_ = 0;
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_PROBES_H_
