// Products of float matrices that each run gives, with one order of additions for every number of threads and rows.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// How the blocks of depths of a product become outputs.
struct Terms {
  int64_t block;  ///< D of FloatMatMul
  float alpha = 1;
  bool has_c = false;  ///< the outputs have beta·C before
};

/// A product of float matrices as FloatMatMul defines it. Matrices are row-major, one row behind the other.
struct FloatProduct {
  const char* name;  ///< of the ISA
  void (*multiply)(const float* a, const float* b, float* y, int64_t rows, int64_t n, int64_t k,
                   const Terms& terms);
};

/// The product on the best ISA that the settings allow. All have the same bytes.
const FloatProduct& FloatProductOf(const Settings& settings);

/// D of FloatMatMul for n columns and k depths, unless A is transposed in ONNX Runtime: D is kFloatBlock then.
int64_t FloatBlockOf(int64_t n, int64_t k);
inline constexpr int64_t kFloatBlock = 128;

/// MatMul, Gemm, or FusedMatMul of com.microsoft: Y = alpha·A·B + beta·C of float32, the items of [..., M, K] and [..., K, N] with
/// broadcasting. A and B may be transposed; only a Gemm has C. The depths are added in blocks of D:
///
///     block = fma(a[m][k], b[k][n], … fma(a[m][k0 + 1], b[k0 + 1][n], fma(a[m][k0], b[k0][n], 0)))      k = k0 … k0 + D − 1
///     y[m][n] = fma(block 1, alpha, fma(block 0, alpha, beta·c[m][n])) …      alpha·block 0 in the middle without C or with beta = 0
///
/// D is 128, and doubles as often as N fits into half of 128, a quarter, …, an eighth, but only if N < K: then Y has the bytes of
/// ONNX Runtime's CPU provider with one thread (MlasSgemmOperation()), except for M = 1, N = 1 and a transposed A, where its order
/// is another one. ONNX Runtime itself cuts N among the threads, so that D, and with it the bytes, depends on their number if K > 128
/// or N = 1. Rows do not depend on other rows.
///
/// Refuses every node if the session lacks the option `reproducible`, and nodes whose bytes do not depend on the threads: B is a constant matrix,
/// or K is known to be at most 128 and N to be at least 2.
class FloatMatMul : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"A", "B", "C"};

  /// ONNX Runtime adds at most so many depths in one order for every number of threads.
  static constexpr int64_t kMostDepthOfOneOrder = 128;

  /// `type`: the operator.
  FloatMatMul(const Node& node, const Context& context, const std::string& type);
  void Compute(Run& run) const override;
  std::string Kernel() const override;

  /// Whether the bytes of a node of these operators depend on the number of threads in ONNX Runtime.
  static bool DependsOnThreads(const Node& product);

 private:
  struct Operand {
    Shape shape;
    const float* data;
  };

  static Operand Transposed(Run& run, const Operand& operand);
  Operand OperandOf(const Run& run, size_t input) const;
  // Writes beta·C, broadcast.
  void WriteC(const Run& run, float* y, int64_t m, int64_t n) const;

  const FloatProduct& product_;
  const bool is_a_transposed_, is_b_transposed_;
  const float alpha_, beta_;
  const bool has_c_;
  std::array<std::optional<std::pair<Shape, std::vector<float>>>, 2>
      constants_;  // B and C, if the model has them
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_
