#include "verify/targets/intact_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "verify/guarded_buffer.h"

namespace intact::verify {
namespace {

// A matrix in guarded memory: rows of `row_bytes`, `stride_bytes` apart; the last row ends at the guard page.
class GuardedMatrix {
 public:
  static Result<GuardedMatrix> Allocate(int64_t rows, int64_t row_bytes, int64_t stride_bytes) {
    Result<GuardedBuffer> buffer =
        GuardedBuffer::Allocate(static_cast<size_t>((rows - 1) * stride_bytes + row_bytes));
    if (!buffer) return buffer.error();
    return GuardedMatrix(std::move(*buffer), rows, row_bytes, stride_bytes);
  }

  uint8_t* data() const noexcept { return buffer_.data().data(); }

  // Copies dense rows in; from then on a write faults.
  void Load(const uint8_t* dense) noexcept {
    for (int64_t row = 0; row < rows_; ++row) std::copy_n(dense + row * row_bytes_, row_bytes_, Row(row));
    buffer_.MakeReadOnly();
  }

  std::vector<uint8_t> Dense() const {
    std::vector<uint8_t> dense;
    dense.reserve(static_cast<size_t>(rows_ * row_bytes_));
    for (int64_t row = 0; row < rows_; ++row) dense.insert(dense.end(), Row(row), Row(row) + row_bytes_);
    return dense;
  }

  // Where a byte that does not belong to the matrix was written, if anywhere.
  std::optional<std::string> StrayWrite() const {
    if (!buffer_.FrontIntact()) return "before its first row";
    for (int64_t row = 0; row + 1 < rows_; ++row) {
      const uint8_t* end = Row(row + 1);
      const uint8_t* stray = std::find_if<const uint8_t*>(
          Row(row) + row_bytes_, end, [](uint8_t byte) { return byte != GuardedBuffer::kCanary; });
      if (stray != end) return fmt::format("row {}, {} bytes behind its start", row, stray - Row(row));
    }
    return std::nullopt;
  }

 private:
  GuardedMatrix(GuardedBuffer buffer, int64_t rows, int64_t row_bytes, int64_t stride_bytes)
      : buffer_(std::move(buffer)), rows_(rows), row_bytes_(row_bytes), stride_bytes_(stride_bytes) {}
  uint8_t* Row(int64_t row) const noexcept { return data() + row * stride_bytes_; }

  GuardedBuffer buffer_;
  int64_t rows_, row_bytes_, stride_bytes_;
};

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

template <class T>
const T* DataOrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  if (options.isa != INTACT_ISA_ANY && intact_isa_available(options.isa) == 0) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{} is not available on this machine", intact_isa_name(options.isa))};
  }
  Result<GuardedMatrix> b = GuardedMatrix::Allocate(gemm.k, gemm.n, gemm.n);
  if (!b) return b.error();
  b->Load(reinterpret_cast<const uint8_t*>(gemm.b.data()));
  Result<Gemm> plan = Gemm::Create(DescOf(gemm, options), b->data());
  if (!plan) return plan;
  const intact_gemm_info info = plan->Info();
  if (options.isa != INTACT_ISA_ANY && info.isa != options.isa) {
    return Error{INTACT_UNSUPPORTED, fmt::format("asked for {}, the plan chose {}",
                                                 intact_isa_name(options.isa), intact_isa_name(info.isa))};
  }
  if (info.mode != options.mode) return Failed("the plan has another mode than asked for");
  return plan;
}

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.a_type = gemm.a_type;
  desc.b_type = gemm.b_type;
  desc.c_type = gemm.c_type;
  desc.mode = options.mode;
  desc.max_isa = options.isa;
  desc.a_zero_point = gemm.a_zero_point;
  desc.c_zero_point = gemm.c_zero_point;
  desc.b_zero_points = DataOrNull(gemm.b_zero_points);
  desc.b_zero_point_count = static_cast<int64_t>(gemm.b_zero_points.size());
  desc.bias_s32 = DataOrNull(gemm.bias_s32);
  desc.bias_f32 = DataOrNull(gemm.bias_f32);
  desc.scales = DataOrNull(gemm.scales);
  desc.scale_count = static_cast<int64_t>(gemm.scales.size());
  desc.activation = gemm.activation;
  desc.clamp_min = gemm.clamp_min;
  desc.clamp_max = gemm.clamp_max;
  if (options.declared_min > 0 || options.declared < 255) {
    const int32_t lowest = gemm.a_type == INTACT_S8 ? -128 : 0;
    desc.a_min = lowest + options.declared_min;
    desc.a_max = lowest + options.declared;
  }
  desc.range_check = options.range_check;
  return desc;
}

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Gemm& gemm, const RunOptions& options) const {
  const Result<Gemm> plan = CreatePlan(gemm, options);
  if (!plan) return plan.error();

  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a_stride = gemm.k + options.a_pad;
  args.c_stride = gemm.n + options.c_pad;
  args.threads = options.threads;
  const int64_t size = reference::ElementSize(gemm.c_type);
  Result<GuardedMatrix> a = GuardedMatrix::Allocate(gemm.m, gemm.k, args.a_stride);
  if (!a) return a.error();
  const Result<GuardedMatrix> c = GuardedMatrix::Allocate(gemm.m, gemm.n * size, args.c_stride * size);
  if (!c) return c.error();
  a->Load(gemm.a.data());
  args.a = a->data();
  args.c = c->data();

  const intact_status status = intact_gemm_run(plan->handle(), &args);
  if (status != INTACT_OK) return Error{status, intact_last_error()};
  if (const std::optional<std::string> stray = c->StrayWrite()) {
    return Failed(fmt::format("kernel {} wrote outside C: {}", plan->Info().kernel, *stray));
  }
  return c->Dense();
}

}  // namespace intact::verify
