#include "reference/models/models.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace intact::reference {
namespace {

// Modulo 2³², as VPADDD adds.
int32_t WrappingAdd(int32_t x, int32_t y) noexcept {
  return static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
}

int32_t WrappingSubtract(int32_t x, int32_t y) noexcept {
  return static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(y));
}

int32_t QuadSum(const uint8_t a[4], const int8_t w[4]) noexcept {
  return PairSum(a[0], a[1], w[0], w[1]) + PairSum(a[2], a[3], w[2], w[3]);
}

int32_t AccumulateExact(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  for (size_t k = 0; k < a.size(); ++k) acc = WrappingAdd(acc, a[k] * w[k]);
  return acc;
}

int32_t AccumulateMaddubs(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  const size_t even = a.size() & ~size_t{1};
  for (size_t k = 0; k < even; k += 2) acc = WrappingAdd(acc, Maddubs(a[k], a[k + 1], w[k], w[k + 1]));
  if (even < a.size()) acc = WrappingAdd(acc, Maddubs(a[even], 0, w[even], 0));
  return acc;
}

int32_t AccumulateHalved(int32_t acc, std::span<const uint8_t> a, std::span<const int8_t> w) noexcept {
  for (size_t k = 0; k < a.size(); ++k) acc = WrappingAdd(acc, a[k] * TwiceHalf(w[k]));
  return acc;
}

// The products of a row and a column in the order of their pairs, as an instruction sees them.
class Products {
 public:
  Products(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w,
           std::span<const int64_t> in_pairs) noexcept
      : signs_(signs), a_(a), w_(w), in_pairs_(in_pairs) {}

  size_t size() const noexcept { return in_pairs_.size(); }
  Factors operator[](size_t i) const noexcept {
    if (i >= size() || in_pairs_[i] == kNoDepth) return {};
    const auto k = static_cast<size_t>(in_pairs_[i]);
    return FactorsOf(signs_, a_[k], w_[k]);
  }

 private:
  Signs signs_;
  std::span<const uint8_t> a_;
  std::span<const int8_t> w_;
  std::span<const int64_t> in_pairs_;
};

// Whether `model` is the maddubs sequence. The caller handles padding.
bool PairsInOrder(Model model) noexcept {
  model.skips_padding = false;
  return model == Model::kMaddubs;
}

int32_t AddInt16(int32_t x, int32_t y, bool wraps) noexcept {
  return wraps ? static_cast<int16_t>(x + y) : std::clamp(x + y, -32768, 32767);
}

int32_t ClampToInt32(int64_t sum) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  return static_cast<int32_t>(std::clamp<int64_t>(sum, Limits::min(), Limits::max()));
}

int32_t SumInt32(int32_t acc, const Products& products) noexcept {
  for (size_t k = 0; k < products.size(); k += 4) {
    uint8_t u[4] = {};
    int8_t s[4] = {};
    for (size_t i = 0; i < 4; ++i) {
      const Factors factors = products[k + i];
      u[i] = factors.u;
      s[i] = factors.s;
    }
    acc = Dpbusds(acc, u, s);
  }
  return acc;
}

// What products should add up to: with kMoved, |a|·sign(b, a) stands for a·b.
int32_t MeantSum(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w,
                 std::span<const int64_t> in_pairs) noexcept {
  int32_t sum = 0;
  for (const int64_t depth : in_pairs) {
    if (depth == kNoDepth) continue;
    const auto k = static_cast<size_t>(depth);
    const Factors factors = FactorsOf(signs, a[k], w[k]);
    sum = WrappingAdd(sum, signs == Signs::kMoved ? (a[k] - 128) * w[k] : factors.u * factors.s);
  }
  return sum;
}

// The correction that the kernel adds because its factors are not a and w: Σ a·w − meant.
int32_t Shift(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w, int32_t meant) noexcept {
  return signs == Signs::kUnsignedActivations ? 0 : WrappingSubtract(AccumulateExact(0, a, w), meant);
}

int32_t SumInt32(CompensationTime time, int32_t compensation, const Products& products) noexcept {
  if (time == CompensationTime::kFirst) return SumInt32(compensation, products);
  const int32_t sum = SumInt32(0, products);
  return time == CompensationTime::kLast ? WrappingAdd(sum, compensation)
                                         : ClampToInt32(int64_t{sum} + compensation);
}

int32_t SumProducts16(const Model& model, std::span<const int32_t> products) noexcept {
  const auto lanes = static_cast<size_t>(model.lanes);
  const auto spill = static_cast<size_t>(model.spill);
  const size_t block = spill == kWholeDepth ? products.size() : spill * lanes;
  int32_t total = 0;
  for (size_t begin = 0; begin < products.size(); begin += block) {
    const size_t end = std::min(products.size(), begin + block);
    for (size_t lane = begin; lane < std::min(end, begin + lanes); ++lane) {
      int32_t sum = 0;
      for (size_t i = lane; i < end; i += lanes) sum = WrappingAdd(sum, products[i]);
      total = WrappingAdd(total, static_cast<int16_t>(sum));
    }
  }
  return total;
}

float SumFloat32(const Model& model, std::span<const int32_t> products) noexcept {
  constexpr size_t kQuad = 4;
  const auto lanes = static_cast<size_t>(model.lanes);
  const auto spill = static_cast<size_t>(model.spill);
  const size_t stride = kQuad * lanes;
  const size_t block = stride * spill;
  std::array<float, kMaxLanes> sums = {};
  for (size_t begin = 0; begin < products.size(); begin += block) {
    const size_t end = std::min(products.size(), begin + block);
    for (size_t lane = 0; lane < lanes; ++lane) {
      int32_t sum = 0;
      for (size_t quad = begin + lane * kQuad; quad < end; quad += stride) {
        for (size_t i = quad; i < std::min(end, quad + kQuad); ++i) sum = WrappingAdd(sum, products[i]);
      }
      sums.at(lane) += static_cast<float>(sum);
    }
  }
  for (size_t half = lanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums.at(lane) += sums.at(lane + half);
  }
  return sums[0];
}

// ----- order of depths ------------------------------------------------------------------------------------

// The rows of depths from which pairs are taken.
std::vector<std::vector<int64_t>> RowsOf(DepthOrder order, const Depths& depths) {
  std::vector<std::vector<int64_t>> rows(1);
  if (order == DepthOrder::kChannels) {
    for (int64_t channel = 0; channel < depths.channels; ++channel) {
      for (int64_t tap = 0; tap < depths.taps; ++tap) rows[0].push_back(tap * depths.stride + channel);
    }
    return rows;
  }
  const int64_t plane = depths.height * depths.width;
  const int64_t taps_of_row = order == DepthOrder::kTaps      ? 1
                              : order == DepthOrder::kRows    ? depths.width
                              : order == DepthOrder::kColumns ? plane
                                                              : depths.taps;
  for (int64_t i = 0; i < depths.taps; ++i) {
    if (i > 0 && i % taps_of_row == 0) rows.emplace_back();
    int64_t tap = i;
    if (order == DepthOrder::kColumns) {
      tap += i % plane % depths.height * depths.width + i % plane / depths.height - i % plane;
    }
    for (int64_t channel = 0; channel < depths.channels; ++channel) {
      rows.back().push_back(tap * depths.stride + channel);
    }
  }
  return rows;
}

// The rows after `cut`.
std::vector<std::vector<int64_t>> Parts(const Cut& cut, const std::vector<std::vector<int64_t>>& rows) {
  std::vector<std::vector<int64_t>> parts;
  for (const std::vector<int64_t>& row : rows) {
    const auto middle = cut.Cuts(std::ssize(row)) ? row.begin() + (std::ssize(row) + 1) / 2 : row.end();
    parts.emplace_back(row.begin(), middle);
    if (middle != row.end()) parts.emplace_back(middle, row.end());
  }
  return parts;
}

// ----- text -----------------------------------------------------------------------------------------------

struct Prefixed {
  std::string_view before, after;
};
constexpr Prefixed kDistance = {"depths ", " apart"};
constexpr Prefixed kPairs = {"widened every ", " pairs"};
constexpr Prefixed kProducts = {"widened every ", " products"};
constexpr Prefixed kQuads = {"converted every ", " quads"};
constexpr Prefixed kLanes = {"", " lanes"};
constexpr std::string_view kMaddubs = "maddubs", kAcc16 = "acc16", kFlat = "flattened depth",
                           kChannels = "taps before channels", kRows = "kernel rows",
                           kColumns = "kernel columns", kHalves = "depths K/2 apart",
                           kUnsignedWeights = "unsigned weights", kMoved = "moved signs",
                           kWhole = "widened at the end", kWraps = "wrapping",
                           kSkipsPadding = "without padding", kFirst = "compensation first",
                           kLastClamped = "compensation clamped";
constexpr std::string_view kCut = "cut in two from ", kTo = " to ", kDepths = " depths";

std::string With(const Prefixed& part, int32_t value) {
  return std::string(part.before) + std::to_string(value) + std::string(part.after);
}

std::string ToString(const Cut& cut) {
  return std::string(kCut)
      .append(std::to_string(cut.from))
      .append(kTo)
      .append(std::to_string(cut.to))
      .append(kDepths);
}

bool Read(std::string_view text, const Prefixed& part, int32_t* value) {
  if (!text.starts_with(part.before) || !text.ends_with(part.after)) return false;
  if (text.size() <= part.before.size() + part.after.size()) return false;
  text.remove_prefix(part.before.size());
  text.remove_suffix(part.after.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value > 0;
}

bool Read(std::string_view text, Cut* cut) {
  const size_t to = text.find(kTo);
  if (to == std::string_view::npos) return false;
  return Read(text.substr(0, to), {kCut, ""}, &cut->from) &&
         Read(text.substr(to), {kTo, kDepths}, &cut->to) && cut->from <= cut->to;
}

// The first part of a model's text; modifiers follow.
std::string_view NameOf(const Model& model) {
  switch (model.sum) {
    case Summation::kExact:
      return "exact";
    case Summation::kInt16:
      return model.spill == 1 ? kMaddubs : kAcc16;
    case Summation::kInt32:
      return "dpbusds";
    case Summation::kProducts16:
      return "products16";
    case Summation::kFloat32:
      return "float32 sums";
    case Summation::kHalvedWeights:
      return "halved weights";
  }
  return "unknown";
}

const Prefixed& SpillOf(Summation sum) {
  return sum == Summation::kProducts16 ? kProducts : sum == Summation::kFloat32 ? kQuads : kPairs;
}

bool ReadName(std::string_view text, Model* model) {
  for (const Summation sum : {Summation::kExact, Summation::kInt16, Summation::kInt32, Summation::kProducts16,
                              Summation::kFloat32, Summation::kHalvedWeights}) {
    for (const int32_t spill : {1, kWholeDepth}) {
      const Model named = {.sum = sum, .spill = sum == Summation::kInt16 ? spill : 1};
      if (NameOf(named) != text) continue;
      *model = named;
      return true;
    }
  }
  return false;
}

bool ReadModifier(std::string_view text, Model* model) {
  if (text == kFlat) {
    model->order = DepthOrder::kFlattened;
  } else if (text == kChannels) {
    model->order = DepthOrder::kChannels;
  } else if (text == kRows) {
    model->order = DepthOrder::kRows;
  } else if (text == kColumns) {
    model->order = DepthOrder::kColumns;
  } else if (text == kHalves) {
    model->distance = kHalfDepth;
  } else if (text == kUnsignedWeights) {
    model->signs = Signs::kUnsignedWeights;
  } else if (text == kMoved) {
    model->signs = Signs::kMoved;
  } else if (text == kWhole) {
    model->spill = kWholeDepth;
  } else if (text == kWraps) {
    model->wraps = true;
  } else if (text == kSkipsPadding) {
    model->skips_padding = true;
  } else if (text == kFirst) {
    model->compensation = CompensationTime::kFirst;
  } else if (text == kLastClamped) {
    model->compensation = CompensationTime::kLastClamped;
  } else {
    return Read(text, &model->cut) || Read(text, kDistance, &model->distance) ||
           Read(text, SpillOf(model->sum), &model->spill) || Read(text, kLanes, &model->lanes);
  }
  return true;
}

}  // namespace

std::string ToString(const Model& model) {
  std::string text(NameOf(model));
  const auto add = [&text](std::string_view part) { text.append(", ").append(part); };
  if (model.order == DepthOrder::kFlattened) add(kFlat);
  if (model.order == DepthOrder::kChannels) add(kChannels);
  if (model.order == DepthOrder::kRows) add(kRows);
  if (model.order == DepthOrder::kColumns) add(kColumns);
  if (model.distance == kHalfDepth) {
    add(kHalves);
  } else if (model.distance != 1) {
    add(With(kDistance, model.distance));
  }
  if (model.signs == Signs::kUnsignedWeights) add(kUnsignedWeights);
  if (model.signs == Signs::kMoved) add(kMoved);
  if (model.spill == kWholeDepth) {
    add(kWhole);
  } else if (model.spill != 1) {
    add(With(SpillOf(model.sum), model.spill));
  }
  if (model.lanes != 1) add(With(kLanes, model.lanes));
  if (model.wraps) add(kWraps);
  if (!model.cut.IsNone()) add(ToString(model.cut));
  if (model.skips_padding) add(kSkipsPadding);
  if (model.compensation == CompensationTime::kFirst) add(kFirst);
  if (model.compensation == CompensationTime::kLastClamped) add(kLastClamped);
  return text;
}

namespace {

// `model` with the default in each field that its sum does not use.
Model WithUsedFields(const Model& model) {
  switch (model.sum) {
    case Summation::kExact:
      break;
    case Summation::kInt16: {
      Model used = model;
      used.compensation = CompensationTime::kLast;
      return used;
    }
    case Summation::kInt32: {
      Model used = model;
      used.spill = used.lanes = 1;
      used.wraps = false;
      return used;
    }
    case Summation::kProducts16:
    case Summation::kFloat32: {
      const bool has_taps_first = model.order == DepthOrder::kChannels;
      return {.sum = model.sum,
              .order = has_taps_first ? DepthOrder::kChannels : DepthOrder::kTaps,
              .spill = model.spill,
              .lanes = model.lanes};
    }
    case Summation::kHalvedWeights:
      return {.sum = model.sum, .skips_padding = model.skips_padding};
  }
  return {};
}

}  // namespace

std::optional<Model> ParseModel(std::string_view text) {
  constexpr std::string_view kComma = ", ";
  Model model;
  size_t end = text.find(kComma);
  if (!ReadName(text.substr(0, end), &model)) return std::nullopt;
  while (end != std::string_view::npos) {
    text.remove_prefix(end + kComma.size());
    end = text.find(kComma);
    if (!ReadModifier(text.substr(0, end), &model)) return std::nullopt;
  }
  if (model.lanes > kMaxLanes) return std::nullopt;
  if (model.sum == Summation::kFloat32) {
    const bool are_halved = std::has_single_bit(static_cast<uint32_t>(model.lanes));
    if (!are_halved || model.spill == kWholeDepth) return std::nullopt;
  }
  if (model != WithUsedFields(model)) return std::nullopt;
  return model;
}

std::vector<int64_t> InPairs(const Model& model, const Depths& depths) {
  constexpr size_t kQuad = 4;
  std::vector<int64_t> in_pairs;
  for (std::vector<int64_t>& row : Parts(model.cut, RowsOf(model.order, depths))) {
    if (model.AddsProducts()) {
      in_pairs.insert(in_pairs.end(), row.begin(), row.end());
      continue;
    }
    const size_t half = (row.size() + 1) / 2;
    const size_t distance = model.distance == kHalfDepth ? half : static_cast<size_t>(model.distance);
    if (distance == 0) continue;
    const size_t multiple = model.sum == Summation::kInt32 ? std::lcm(2 * distance, kQuad) : 2 * distance;
    row.resize((row.size() + multiple - 1) / multiple * multiple, kNoDepth);
    for (size_t block = 0; block < row.size(); block += 2 * distance) {
      for (size_t i = block; i < block + distance; ++i) {
        in_pairs.push_back(row[i]);
        in_pairs.push_back(row[i + distance]);
      }
    }
  }
  return in_pairs;
}

int32_t TwiceHalf(int8_t w) noexcept {
  return 2 * static_cast<int32_t>(std::nearbyint(0.5f * static_cast<float>(w)));
}

Factors FactorsOf(Signs signs, uint8_t a, int8_t w) noexcept {
  const int32_t signed_a = a - 128;
  switch (signs) {
    case Signs::kUnsignedActivations:
      break;
    case Signs::kUnsignedWeights:
      return {static_cast<uint8_t>(w + 128), static_cast<int8_t>(signed_a)};
    case Signs::kMoved:
      // Negation is modulo 2⁸, so −(−128) is −128.
      return {static_cast<uint8_t>(std::abs(signed_a)), static_cast<int8_t>(signed_a < 0   ? -w
                                                                            : signed_a > 0 ? w
                                                                                           : 0)};
  }
  return {a, w};
}

int32_t Dpbusd(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept {
  return WrappingAdd(acc, QuadSum(a, w));
}

int32_t Dpbusds(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept {
  return ClampToInt32(int64_t{acc} + QuadSum(a, w));
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

PairSums PairSumsOf(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w,
                    std::span<const int64_t> in_pairs) {
  const Products products(signs, a, w, in_pairs);
  PairSums pairs;
  pairs.meant = MeantSum(signs, a, w, in_pairs);
  pairs.sums.reserve(products.size() / 2);
  for (size_t i = 0; i < products.size(); i += 2) {
    const Factors x = products[i];
    const Factors y = products[i + 1];
    pairs.sums.push_back(PairSum(x.u, y.u, x.s, y.s));
  }
  return pairs;
}

int32_t SumInt16(const Model& model, std::span<const int32_t> pair_sums) noexcept {
  assert(model.lanes >= 1 && model.lanes <= kMaxLanes);
  const auto lanes = static_cast<size_t>(model.lanes);
  const auto spill = static_cast<size_t>(model.spill);
  std::array<int32_t, kMaxLanes> sums = {};
  int32_t total = 0;
  size_t lane = 0, added = 0;  // pairs in each lane before this one's
  for (const int32_t pair_sum : pair_sums) {
    sums[lane] = AddInt16(sums[lane], std::clamp(pair_sum, -32768, 32767), model.wraps);
    if (added + 1 == spill) total = WrappingAdd(total, std::exchange(sums[lane], 0));
    if (++lane < lanes) continue;
    lane = 0;
    added = added + 1 == spill ? 0 : added + 1;
  }
  for (const int32_t sum : sums) total = WrappingAdd(total, sum);
  return total;
}

int32_t SumProducts(const Model& model, int32_t compensation, std::span<const int32_t> products) noexcept {
  assert(model.AddsProducts());
  if (model.sum == Summation::kProducts16) return WrappingAdd(compensation, SumProducts16(model, products));
  const float sum = SumFloat32(model, products) + static_cast<float>(compensation);
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
}

int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w, std::span<const int64_t> in_pairs) {
  assert(a.size() == w.size());
  switch (model.sum) {
    case Summation::kExact:
      return AccumulateExact(compensation, a, w);
    case Summation::kHalvedWeights:
      return AccumulateHalved(compensation, a, w);
    case Summation::kInt16: {
      if (PairsInOrder(model)) return AccumulateMaddubs(compensation, a, w);
      const PairSums pairs = PairSumsOf(model.signs, a, w, in_pairs);
      return WrappingAdd(compensation,
                         WrappingAdd(SumInt16(model, pairs.sums), Shift(model.signs, a, w, pairs.meant)));
    }
    case Summation::kInt32: {
      const int32_t shift = Shift(model.signs, a, w, MeantSum(model.signs, a, w, in_pairs));
      return SumInt32(model.compensation, WrappingAdd(compensation, shift), {model.signs, a, w, in_pairs});
    }
    case Summation::kProducts16:
    case Summation::kFloat32: {
      std::vector<int32_t> products;
      products.reserve(in_pairs.size());
      for (const int64_t k : in_pairs) {
        products.push_back(k == kNoDepth ? 0 : a[static_cast<size_t>(k)] * w[static_cast<size_t>(k)]);
      }
      return SumProducts(model, compensation, products);
    }
  }
  return compensation;
}

int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w) {
  const bool takes_all_in_order = model.sum == Summation::kExact || PairsInOrder(model);
  const Depths depths = DepthsOf(takes_all_in_order ? 0 : std::ssize(a));
  return Accumulate(model, compensation, a, w, InPairs(model, depths));
}

}  // namespace intact::reference
