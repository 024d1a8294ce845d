#include "verify/explain/diagnose_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "verify/targets/wrong_quantizers.h"

namespace intact::verify {
namespace {

using reference::Gemm;

// The numbers next to `own` in [0, count), and 0.
std::vector<int64_t> Neighbours(int64_t own, int64_t count) {
  std::vector<int64_t> neighbours;
  for (const int64_t other : {own - 1, own + 1, int64_t{0}}) {
    if (other >= 0 && other < count && other != own) neighbours.push_back(other);
  }
  return neighbours;
}

// The accumulator of a row of `gemm` with `column`: weights less their zero point.
int32_t Accumulator(const Gemm& gemm, int64_t row, int64_t n, std::span<const int32_t> column) {
  const auto at = static_cast<size_t>(row);
  const int64_t zero_point = reference::ActivationZeroPoint(gemm, row);
  int64_t sum = gemm.bias_s32.empty() ? 0 : gemm.bias_s32[static_cast<size_t>(n)];
  for (size_t k = 0; k < column.size(); ++k) {
    sum += (core::DecodeInt8(gemm.a_type, gemm.a[at * column.size() + k]) - zero_point) * column[k];
  }
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

float ColumnScale(const Observation& seen) { return reference::RequantizationOf(seen.gemm, seen.n).scale; }

}  // namespace

reference::Gemm ReadByRows(const Gemm& gemm) {
  const auto m = static_cast<size_t>(gemm.m), k = static_cast<size_t>(gemm.k);
  const auto read = [=](const std::vector<uint8_t>& a, size_t element) {
    std::vector<uint8_t> elements(a.size());
    for (size_t i = 0; i < a.size() / element; ++i) {
      const size_t place = i % (m * k);
      std::copy_n(&a[(i - place + place % m * k + place / m) * element], element, &elements[i * element]);
    }
    return elements;
  };
  Gemm misread = gemm;
  misread.a = read(gemm.a, 1);
  if (!gemm.IsDynamic()) return misread;
  misread.a_source = read(gemm.a_source, static_cast<size_t>(gemm.GivenABytes()));
  reference::QuantizeActivations(&misread);
  return misread;
}

std::vector<Suspicion> GemmSuspects::Of(const Observation& seen, int64_t item) {
  std::vector<Suspicion> suspicions;
  if (read_by_rows_) SuspectLayout(seen, item, &suspicions);
  if (gemm_.IsDynamic()) SuspectQuantizer(seen, item, &suspicions);
  SuspectInput(seen, item, &suspicions);
  SuspectRow(seen, &suspicions);
  if (gemm_.has_runtime_b) SuspectItem(seen, item, &suspicions);
  return suspicions;
}

void GemmSuspects::SuspectQuantizer(const Observation& seen, int64_t item,
                                    std::vector<Suspicion>* suspicions) {
  if (wrongly_quantized_.empty()) {
    for (const WrongQuantizer& wrong : WrongQuantizers()) {
      reference::Operation operation = gemm_;
      wrong.quantize(&operation);
      wrongly_quantized_.push_back(std::get<Gemm>(std::move(operation)));
    }
  }
  const std::vector<int32_t> column = seen.operands.CenteredColumn(seen.n);
  const int64_t row = item * gemm_.m + seen.m;
  for (size_t i = 0; i < wrongly_quantized_.size(); ++i) {
    const Gemm& wrong = wrongly_quantized_[i];
    suspicions->push_back({WrongQuantizers()[i].fault, Accumulator(wrong, row, seen.n, column),
                           wrong.a_scales[static_cast<size_t>(row)] * ColumnScale(seen)});
  }
}

void GemmSuspects::SuspectLayout(const Observation& seen, int64_t item,
                                 std::vector<Suspicion>* suspicions) const {
  const int64_t row = item * gemm_.m + seen.m;
  Suspicion suspicion = {"A read as m×k, which is k×m",
                         Accumulator(*read_by_rows_, row, seen.n, seen.operands.CenteredColumn(seen.n))};
  if (gemm_.IsDynamic())
    suspicion.scale = read_by_rows_->a_scales[static_cast<size_t>(row)] * ColumnScale(seen);
  suspicions->push_back(std::move(suspicion));
}

void GemmSuspects::SuspectInput(const Observation& seen, int64_t item,
                                std::vector<Suspicion>* suspicions) const {
  constexpr int64_t kMost = 16;  // items that are tried
  if (!gemm_.a_zero_points.empty() || gemm_.IsDynamic()) return;
  const std::vector<int32_t> column = seen.operands.CenteredColumn(seen.n);
  for (int64_t other = 0; other < std::min(gemm_.batch, kMost); ++other) {
    if (other == item) continue;
    suspicions->push_back({"A of another item",
                           Accumulator(gemm_, other * gemm_.m + seen.m, seen.n, column),
                           {},
                           fmt::format("A of item {} taken for that of item {}", other, item)});
  }
}

void GemmSuspects::SuspectRow(const Observation& seen, std::vector<Suspicion>* suspicions) const {
  const Gemm& gemm = seen.gemm;
  const std::vector<int32_t> column = seen.operands.CenteredColumn(seen.n);
  const auto own = static_cast<size_t>(seen.m);
  for (const int64_t row : Neighbours(seen.m, gemm.m)) {
    const auto other = static_cast<size_t>(row);
    int32_t y = seen.exact;
    if (!gemm.a_zero_points.empty()) {
      int64_t sum = 0;
      for (const int32_t w : column) sum += w;
      const int64_t step = gemm.a_zero_points[own] - gemm.a_zero_points[other];
      y = static_cast<int32_t>(static_cast<uint32_t>(seen.exact + step * sum));
      suspicions->push_back({"the zero point of another row",
                             y,
                             {},
                             fmt::format("the zero point of row {} taken for that of row {}", row, seen.m)});
    }
    if (gemm.a_scales.empty()) continue;
    const float scale = gemm.a_scales[other] * ColumnScale(seen);
    suspicions->push_back({"the scale of another row", seen.exact, scale,
                           fmt::format("the scale of row {} taken for that of row {}", row, seen.m)});
    suspicions->push_back({"the quantization of another row", y, scale,
                           fmt::format("the quantization of row {} taken for that of row {}", row, seen.m)});
  }
}

void GemmSuspects::SuspectItem(const Observation& seen, int64_t item,
                               std::vector<Suspicion>* suspicions) const {
  for (const int64_t other : Neighbours(item, gemm_.batch)) {
    const int64_t zero_point = reference::WeightZeroPoint(seen.gemm, seen.n);
    const Gemm neighbour = reference::Item(gemm_, other);
    std::vector<int32_t> column;
    for (int64_t k = 0; k < gemm_.k; ++k) {
      const auto at = static_cast<size_t>(k * gemm_.n + seen.n);
      const int32_t b = core::DecodeInt8(gemm_.b_type, static_cast<uint8_t>(neighbour.b[at]));
      column.push_back(b - static_cast<int32_t>(zero_point));
    }
    suspicions->push_back({"B of another item",
                           Accumulator(seen.gemm, seen.m, seen.n, column),
                           {},
                           fmt::format("B of item {} taken for that of item {}", other, item)});
    if (!gemm_.item_zero_points.empty()) {
      column = seen.operands.CenteredColumn(seen.n);
      const int32_t step = reference::WeightZeroPoint(neighbour, seen.n) - static_cast<int32_t>(zero_point);
      for (int32_t& w : column) w -= step;
      suspicions->push_back(
          {"the zero point of another item",
           Accumulator(seen.gemm, seen.m, seen.n, column),
           {},
           fmt::format("the zero point of item {} taken for that of item {}", other, item)});
    }
    if (gemm_.item_scales.empty()) continue;
    suspicions->push_back({"the scale of another item", seen.exact,
                           reference::RequantizationOf(neighbour, seen.n).scale * seen.RowScale(),
                           fmt::format("the scale of item {} taken for that of item {}", other, item)});
  }
}

}  // namespace intact::verify
