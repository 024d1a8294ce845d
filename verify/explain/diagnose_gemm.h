// What may be wrong with an output of a GEMM whose rows are quantized each, whose batch has items of their
// own, or whose A is transposed: how A was quantized and read, and whose quantization, B, zero point or scale
// was taken.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/explain/diagnose.h"

namespace intact::verify {

/// `gemm` with the A that a transposed one is for whoever takes it for m×k.
reference::Gemm ReadByRows(const reference::Gemm& gemm);

class GemmSuspects {
 public:
  explicit GemmSuspects(const reference::Gemm& gemm) : gemm_(gemm) {}
  /// A is transposed in memory.
  void KnowTransposed() { read_by_rows_ = ReadByRows(gemm_); }
  /// `seen`: of item `item`.
  std::vector<Suspicion> Of(const Observation& seen, int64_t item);

 private:
  void SuspectQuantizer(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions);
  void SuspectLayout(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;
  void SuspectRow(const Observation& seen, std::vector<Suspicion>* suspicions) const;
  void SuspectItem(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;

  const reference::Gemm& gemm_;
  std::vector<reference::Gemm> wrongly_quantized_;  // by WrongQuantizers(), once it is needed
  std::optional<reference::Gemm> read_by_rows_;     // of a transposed A
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
