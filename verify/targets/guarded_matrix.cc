#include "verify/targets/guarded_matrix.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/result.h"

namespace intact::verify {

Result<GuardedMatrix> GuardedMatrix::Allocate(int64_t rows, int64_t row_bytes, int64_t stride_bytes) {
  return Allocate(rows, row_bytes, stride_bytes, rows, 0);
}

Result<GuardedMatrix> GuardedMatrix::Allocate(int64_t rows, int64_t row_bytes, int64_t stride_bytes,
                                              int64_t item_rows, int64_t item_pad_bytes,
                                              const Surroundings& surroundings, const char* name) {
  const int64_t last = rows == 0 ? 0 : rows - 1;
  const int64_t bytes = rows == 0 ? 0 : last * stride_bytes + last / item_rows * item_pad_bytes + row_bytes;
  ASSIGN_OR_RETURN(GuardedBuffer buffer,
                   GuardedBuffer::Allocate(static_cast<size_t>(bytes), surroundings, name));
  return GuardedMatrix(std::move(buffer), rows, row_bytes, stride_bytes, item_rows, item_pad_bytes);
}

void GuardedMatrix::Write(const uint8_t* dense) noexcept {
  for (int64_t row = 0; row < rows_; ++row) std::copy_n(dense + row * row_bytes_, row_bytes_, Row(row));
}

void GuardedMatrix::Load(const uint8_t* dense) noexcept {
  Write(dense);
  buffer_.MakeReadOnly();
}

std::vector<uint8_t> GuardedMatrix::Dense() const {
  std::vector<uint8_t> dense;
  dense.reserve(static_cast<size_t>(rows_ * row_bytes_));
  for (int64_t row = 0; row < rows_; ++row) dense.insert(dense.end(), Row(row), Row(row) + row_bytes_);
  return dense;
}

std::optional<std::string> GuardedMatrix::StrayWrite() const {
  if (!buffer_.FrontIntact()) return "before its first row";
  if (!buffer_.BackIntact()) return "behind its last row";
  for (int64_t row = 0; row + 1 < rows_; ++row) {
    const uint8_t* end = Row(row + 1);
    const uint8_t* stray = std::find_if<const uint8_t*>(
        Row(row) + row_bytes_, end, [this](uint8_t byte) { return byte != buffer_.canary(); });
    if (stray != end) return fmt::format("row {}, {} bytes behind its start", row, stray - Row(row));
  }
  return std::nullopt;
}

}  // namespace intact::verify
