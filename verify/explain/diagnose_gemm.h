// What may be wrong with an output of a GEMM whose rows are quantized each, or whose batch has items of their
// own: how A was quantized, and whose quantization, B or scale was taken.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_

#include <cstdint>
#include <vector>

#include "verify/explain/diagnose.h"

namespace intact::verify {

class GemmSuspects {
 public:
  explicit GemmSuspects(const reference::Gemm& gemm) : gemm_(gemm) {}
  /// `seen`: of item `item`.
  std::vector<Suspicion> Of(const Observation& seen, int64_t item);

 private:
  void SuspectQuantizer(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions);
  void SuspectRow(const Observation& seen, std::vector<Suspicion>* suspicions) const;
  void SuspectItem(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;

  const reference::Gemm& gemm_;
  std::vector<reference::Gemm> wrongly_quantized_;  // by WrongQuantizers(), once it is needed
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
