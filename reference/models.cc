#include "reference/models.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace intact::reference {
namespace {

// Modulo 2³², as VPADDD adds.
int32_t WrappingAdd(int32_t x, int32_t y) noexcept {
  return static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
}

int32_t QuadSum(const uint8_t a[4], const int8_t w[4]) noexcept {
  return PairSum(a[0], a[1], w[0], w[1]) + PairSum(a[2], a[3], w[2], w[3]);
}

int32_t AccumulateExact(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  for (size_t k = 0; k < a.size(); ++k) acc = WrappingAdd(acc, a[k] * w[k]);
  return acc;
}

int32_t AccumulateTriple(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  const size_t even = a.size() & ~size_t{1};
  for (size_t k = 0; k < even; k += 2) acc = WrappingAdd(acc, Maddubs(a[k], a[k + 1], w[k], w[k + 1]));
  if (even < a.size()) acc = WrappingAdd(acc, Maddubs(a[even], 0, w[even], 0));
  return acc;
}

int32_t AccumulateDpbusds(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  for (size_t k = 0; k < a.size(); k += 4) {
    uint8_t a4[4] = {};
    int8_t w4[4] = {};
    const size_t count = std::min<size_t>(4, a.size() - k);
    std::copy_n(&a[k], count, a4);
    std::copy_n(&w[k], count, w4);
    acc = Dpbusds(acc, a4, w4);
  }
  return acc;
}

}  // namespace

std::string_view ToString(Model model) {
  switch (model) {
    case Model::kExact:
      return "exact";
    case Model::kTriple:
      return "triple";
    case Model::kDpbusds:
      return "dpbusds";
  }
  return "unknown";
}

int32_t Dpbusd(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept {
  return WrappingAdd(acc, QuadSum(a, w));
}

int32_t Dpbusds(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  const int64_t sum = int64_t{acc} + QuadSum(a, w);
  return static_cast<int32_t>(std::clamp<int64_t>(sum, Limits::min(), Limits::max()));
}

int64_t CountClampedPairs(std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  assert(a.size() == w.size());
  int64_t count = 0;
  for (size_t k = 0; k + 1 < a.size(); k += 2) {
    const int32_t sum = PairSum(a[k], a[k + 1], w[k], w[k + 1]);
    count += (sum < -32768 || sum > 32767) ? 1 : 0;
  }
  return count;
}

int32_t Accumulate(Model model, int32_t initial, std::span<const uint8_t> a,
                   std::span<const int8_t> w) noexcept {
  assert(a.size() == w.size());
  switch (model) {
    case Model::kExact:
      return AccumulateExact(initial, a, w);
    case Model::kTriple:
      return AccumulateTriple(initial, a, w);
    case Model::kDpbusds:
      return AccumulateDpbusds(initial, a, w);
  }
  return initial;
}

}  // namespace intact::reference
