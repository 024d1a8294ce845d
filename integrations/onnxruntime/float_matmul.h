// Products of float matrices that each run gives, with one order of additions for every number of threads and rows.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_

#include <array>
#include <cstdint>
#include <string>

#include "linear.h"
#include "node.h"
#include "operators.h"
#include "run.h"

namespace intact::onnxruntime {

/// C = A·B of float32, the items of [..., M, K] and [..., K, N] with broadcasting. The depths are added in blocks of D:
///
///     block = fma(a[m][k], b[k][n], … fma(a[m][k0 + 1], b[k0 + 1][n], fma(a[m][k0], b[k0][n], 0)))      k = k0 … k0 + D − 1
///     c[m][n] = block 0 + block 1 + …      added from left to right
///
/// D is 128, and doubles as often as N fits into half of 128, a quarter, …, an eighth, but only if N < K: then C has the bytes of
/// ONNX Runtime's CPU provider with one thread (MlasSgemmOperation()), except for M = 1, where its order is another one.
/// ONNX Runtime itself cuts N among the threads, so that D, and with it the bytes, depends on their number if K > 128. Rows do
/// not depend on other rows.
///
/// Refuses all nodes without the option `reproducible`, and nodes whose bytes do not depend on the threads: B is a constant matrix,
/// or K is known to be at most 128.
class FloatMatMul : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"A", "B"};

  /// ONNX Runtime adds at most so many depths in one order for every number of threads.
  static constexpr int64_t kMostDepthOfOneOrder = 128;

  FloatMatMul(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override;

  /// Whether the bytes of a MatMul or Gemm depend on the number of threads in ONNX Runtime.
  static bool DependsOnThreads(const Node& product);

 private:
  // A product of `rows` rows. Matrices are row-major, one row behind the other. `block`: D.
  using Function = void (*)(const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k,
                            int64_t block);

  const Function function_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATMUL_H_
