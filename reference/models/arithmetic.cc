#include "reference/models/arithmetic.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

namespace intact::reference {
namespace {

constexpr std::string_view kSemicolon = "; ";

std::vector<Gemm> ItemsOf(const Gemm& gemm) {
  if (gemm.batch == 1 && !gemm.has_runtime_b) return {gemm};
  std::vector<Gemm> items;
  if (gemm.rows() == 0) {  // one empty item, because Predictor reads the first
    items.push_back(gemm);
    items.front().m = 0;
    items.front().batch = 1;
  }
  for (int64_t i = 0; i < gemm.batch && gemm.rows() > 0; ++i) items.push_back(Item(gemm, i));
  return items;
}

}  // namespace

std::string ToString(const Arithmetic& arithmetic) {
  std::string text = ToString(arithmetic.model);
  if (arithmetic.rounding == Rounding::kContract) return text;
  return text.append(kSemicolon).append(ToString(arithmetic.rounding));
}

std::optional<Arithmetic> ParseArithmetic(std::string_view text) {
  const size_t end = text.find(kSemicolon);
  const std::optional<Model> model = ParseModel(text.substr(0, end));
  const std::optional<Rounding> rounding = end == std::string_view::npos
                                               ? Rounding::kContract
                                               : ParseRounding(text.substr(end + kSemicolon.size()));
  if (!model || !rounding) return std::nullopt;
  return Arithmetic{*model, *rounding};
}

Predictor::Predictor(const Gemm& gemm) : Predictor(gemm.c_type, ItemsOf(gemm), 1) {}
Predictor::Predictor(const Conv& conv) : Predictor(conv.c_type, Lower(conv), conv.geometry.groups) {}
Predictor::Predictor(const Operation& operation)
    : Predictor(VisitLinear([](const auto& one) { return Predictor(one); }, operation)) {}

Predictor::Predictor(intact_type type, std::vector<Gemm> gemms, int64_t side_by_side)
    : type_(type),
      gemms_(std::move(gemms)),
      operands_(gemms_.begin(), gemms_.end()),
      side_by_side_(side_by_side),
      outputs_(gemms_.front().m * gemms_.front().n * std::ssize(gemms_)) {}

Predictor::Output Predictor::At(int64_t output) const noexcept {
  const int64_t rows = gemms_.front().m;
  const int64_t columns = gemms_.front().n;
  const int64_t row = output / (columns * side_by_side_);
  const int64_t column = output % (columns * side_by_side_);
  const int64_t item = side_by_side_ == 1 ? row / rows : 0;
  const auto at = static_cast<size_t>(item + column / columns);
  return {gemms_[at], operands_[at], row - item * rows, column % columns, item, column - column % columns};
}

Requantization Predictor::Output::OwnRequantization() const {
  return AtOutput(RequantizationOf(gemm, n), gemm, gemm.n, m * gemm.n + n);
}

Scales Predictor::Output::OwnScales() const {
  return {ActivationScale(gemm, m), RequantizationOf(gemm, n).scale};
}

std::vector<int32_t> Predictor::Accumulators(const Model& model) const {
  if (side_by_side_ > 1) return reference::Accumulators(operands_, model);
  std::vector<int32_t> y;
  for (const Operands& operands : operands_) {
    const std::vector<int32_t> item = reference::Accumulators(operands, model);
    y.insert(y.end(), item.begin(), item.end());
  }
  return y;
}

int32_t Predictor::Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t output) const {
  const Output at = At(output);
  return at.operands.Accumulator(model, in_pairs, at.m, at.n);
}

std::vector<Overflow> Predictor::Overflows() const {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int64_t kLargestProduct = 255 * 255;
  std::vector<Overflow> overflows;
  for (size_t i = 0; i < gemms_.size(); ++i) {
    if (gemms_[i].overflow == INTACT_OVERFLOW_WRAPS) continue;
    const Operands& operands = operands_[i];
    int64_t largest_bias = 0;
    for (const int32_t bias : operands.bias) largest_bias = std::max(largest_bias, std::abs(int64_t{bias}));
    if (operands.k * kLargestProduct + largest_bias <= kMax) continue;
    for (int64_t n = 0; n < operands.n; ++n) {
      const std::vector<int32_t> weights = operands.CenteredColumn(n);
      for (int64_t m = 0; m < operands.m; ++m) {
        const std::span<const uint8_t> row = operands.Row(m);
        const int64_t zero_point = operands.a_zero_points[static_cast<size_t>(m)];
        int64_t sum = operands.bias[static_cast<size_t>(n)];
        for (size_t k = 0; k < weights.size(); ++k) sum += (row[k] - zero_point) * weights[k];
        if (sum < kMin || sum > kMax) overflows.push_back({NumberOf(i, m, n), sum});
      }
    }
  }
  std::ranges::sort(overflows, {}, &Overflow::output);
  return overflows;
}

// The inverse of At().
int64_t Predictor::NumberOf(size_t gemm, int64_t m, int64_t n) const noexcept {
  const int64_t rows = gemms_.front().m;
  const int64_t columns = gemms_.front().n;
  const auto at = static_cast<int64_t>(gemm);
  if (side_by_side_ == 1) return (at * rows + m) * columns + n;
  return m * columns * side_by_side_ + at * columns + n;
}

void Predictor::StoreExact(int64_t output, int64_t y, uint8_t* destination) const noexcept {
  const Output at = At(output);
  StoreOutput(y, at.OwnRequantization(), destination);
}

void Predictor::Store(int64_t output, int32_t y, Rounding rounding, uint8_t* destination) const noexcept {
  const Output at = At(output);
  StoreRounded(y, at.OwnRequantization(), at.OwnScales(), rounding, destination);
}

std::vector<uint8_t> Predictor::Outputs(std::span<const int32_t> accumulators, Rounding rounding) const {
  const auto size = static_cast<size_t>(core::BytesOf(type_));
  std::vector<uint8_t> bytes(accumulators.size() * size);
  for (size_t i = 0; i < accumulators.size(); ++i) {
    Store(static_cast<int64_t>(i), accumulators[i], rounding, &bytes[i * size]);
  }
  return bytes;
}

std::vector<uint8_t> Predict(const Predictor& predictor, const Arithmetic& arithmetic) {
  std::vector<uint8_t> outputs =
      predictor.Outputs(predictor.Accumulators(arithmetic.model), arithmetic.rounding);
  if (arithmetic != Arithmetic()) return outputs;
  const auto size = static_cast<size_t>(core::BytesOf(predictor.type()));
  for (const Overflow& overflow : predictor.Overflows()) {
    predictor.StoreExact(overflow.output, overflow.sum,
                         &outputs[static_cast<size_t>(overflow.output) * size]);
  }
  return outputs;
}

}  // namespace intact::reference
