#include "verify/explain/oracle.h"

#include <algorithm>

#include "core/types.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::Model;
using reference::Predictor;
using reference::Rounding;

// The value of `key` in `known`; calls make() if it is missing.
template <class Known, class Key, class Make>
const auto& Once(Known* known, const Key& key, const Make& make) {
  const auto found = std::ranges::find(
      *known, key, [](const auto& entry) -> const auto& { return entry.first; });
  return found != known->end() ? found->second : known->emplace_back(key, make()).second;
}

}  // namespace

const reference::ConvGeometry* Oracle::geometry() const {
  const auto* conv = std::get_if<reference::Conv>(&operation_);
  return conv != nullptr ? &conv->geometry : nullptr;
}

const Predictor& Oracle::predictor() const {
  if (!predictor_) predictor_.emplace(operation_);
  return *predictor_;
}

const std::vector<int32_t>& Oracle::Accumulators(const Model& model) const {
  return Once(&accumulators_, model, [&] { return predictor().Accumulators(model); });
}

const Oracle::Bytes& Oracle::Wrapped(const Arithmetic& arithmetic) const {
  return Once(&wrapped_, arithmetic,
              [&] { return predictor().Outputs(Accumulators(arithmetic.model), arithmetic.rounding); });
}

const std::map<int64_t, int64_t>& Oracle::overflows() const {
  if (!overflows_) {
    overflows_.emplace();
    for (const reference::Overflow& overflow : predictor().Overflows()) {
      overflows_->emplace(overflow.output, overflow.sum);
    }
  }
  return *overflows_;
}

const Oracle::Bytes& Oracle::expected() const {
  if (grouped() != nullptr && !expected_) expected_ = reference::Outputs(*grouped());
  if (grouped() != nullptr) return *expected_;
  if (overflows().empty()) return Wrapped({});
  if (!expected_) {
    expected_ = Wrapped({});
    const auto size = static_cast<size_t>(core::BytesOf(type()));
    for (const auto& [output, sum] : overflows()) {
      predictor().StoreExact(output, sum, &(*expected_)[static_cast<size_t>(output) * size]);
    }
  }
  return *expected_;
}

const Oracle::Bytes& Oracle::Predict(const Arithmetic& arithmetic) const {
  return arithmetic == Arithmetic() ? expected() : Wrapped(arithmetic);
}

}  // namespace intact::verify
