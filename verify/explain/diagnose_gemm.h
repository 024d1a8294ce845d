// Suspicions about an output of a GEMM with quantized rows, with a batch of different items, or with a
// transposed A. Suspicions: A was quantized or read wrongly; the quantization, B, zero point or scale of
// another row or item was used.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/explain/diagnose.h"

namespace intact::verify {

/// `gemm` with the A that results if its transposed A is read as m×k.
reference::Gemm ReadByRows(const reference::Gemm& gemm);

class GemmSuspects {
 public:
  explicit GemmSuspects(const reference::Gemm& gemm) : gemm_(gemm) {}
  /// Call this if A is transposed in memory.
  void KnowTransposed() { read_by_rows_ = ReadByRows(gemm_); }
  /// `seen` is an output of item `item`.
  std::vector<Suspicion> Of(const Observation& seen, int64_t item);

 private:
  void SuspectQuantizer(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions);
  void SuspectLayout(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;
  void SuspectInput(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;
  void SuspectRow(const Observation& seen, std::vector<Suspicion>* suspicions) const;
  void SuspectItem(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;

  const reference::Gemm& gemm_;
  std::vector<reference::Gemm> wrongly_quantized_;  // one for each of WrongQuantizers(); made when needed
  std::optional<reference::Gemm> read_by_rows_;     // set if A is transposed
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
