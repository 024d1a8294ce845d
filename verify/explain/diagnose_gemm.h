// Suspicions about an output of a GEMM with quantized rows, with a batch of different items, or with a
// transposed A: how A was quantized and read, and which row's or item's quantization, B, zero point or scale
// was used.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/explain/diagnose.h"

namespace intact::verify {

/// `gemm` as if its transposed A had been read as m×k.
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
  void SuspectRow(const Observation& seen, std::vector<Suspicion>* suspicions) const;
  void SuspectItem(const Observation& seen, int64_t item, std::vector<Suspicion>* suspicions) const;

  const reference::Gemm& gemm_;
  std::vector<reference::Gemm> wrongly_quantized_;  // by each of WrongQuantizers(), when first needed
  std::optional<reference::Gemm> read_by_rows_;     // of a transposed A
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_GEMM_H_
