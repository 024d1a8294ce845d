// A target that runs GEMMs only.
#ifndef INTACT_TESTS_SUPPORT_GEMM_TARGET_H_
#define INTACT_TESTS_SUPPORT_GEMM_TARGET_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "verify/problem/target.h"

namespace intact::verify {

class GemmTarget : public Target {
 public:
  virtual Result<std::vector<uint8_t>> RunGemm(const reference::Gemm& gemm,
                                               const RunOptions& options) const = 0;

  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    if (const auto* gemm = std::get_if<reference::Gemm>(&operation)) return RunGemm(*gemm, options);
    return Error{INTACT_UNSUPPORTED, "target " + Name() + " runs no convolutions"};
  }
};

}  // namespace intact::verify
#endif  // INTACT_TESTS_SUPPORT_GEMM_TARGET_H_
