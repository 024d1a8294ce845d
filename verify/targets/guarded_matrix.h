// A matrix in guarded memory (guarded_buffer.h): a guard page follows its last row or precedes its first.
#ifndef INTACT_VERIFY_TARGETS_GUARDED_MATRIX_H_
#define INTACT_VERIFY_TARGETS_GUARDED_MATRIX_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verify/targets/guarded_buffer.h"

namespace intact::verify {

/// Rows of `row_bytes` bytes, which begin `stride_bytes` apart. In a batch, `item_pad_bytes` more bytes
/// follow every `item_rows` rows.
class GuardedMatrix {
 public:
  /// OUT_OF_MEMORY if the system has no memory left.
  static Result<GuardedMatrix> Allocate(int64_t rows, int64_t row_bytes, int64_t stride_bytes);
  static Result<GuardedMatrix> Allocate(int64_t rows, int64_t row_bytes, int64_t stride_bytes,
                                        int64_t item_rows, int64_t item_pad_bytes,
                                        const Surroundings& surroundings = {}, const char* name = nullptr);

  uint8_t* data() const noexcept { return buffer_.data().data(); }
  /// Copies `dense`, rows without gaps, into the matrix.
  void Write(const uint8_t* dense) noexcept;
  /// Write(), then makes the matrix read-only: later writes fault.
  void Load(const uint8_t* dense) noexcept;
  std::vector<uint8_t> Dense() const;
  /// Describes the first overwritten byte that does not belong to the matrix, if there is one.
  std::optional<std::string> StrayWrite() const;

 private:
  GuardedMatrix(GuardedBuffer buffer, int64_t rows, int64_t row_bytes, int64_t stride_bytes,
                int64_t item_rows, int64_t item_pad_bytes)
      : buffer_(std::move(buffer)),
        rows_(rows),
        row_bytes_(row_bytes),
        stride_bytes_(stride_bytes),
        item_rows_(item_rows),
        item_pad_bytes_(item_pad_bytes) {}
  uint8_t* Row(int64_t row) const noexcept {
    return data() + row * stride_bytes_ + row / item_rows_ * item_pad_bytes_;
  }

  GuardedBuffer buffer_;
  int64_t rows_, row_bytes_, stride_bytes_, item_rows_, item_pad_bytes_;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_MATRIX_H_
