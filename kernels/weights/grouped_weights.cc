#include "kernels/weights/grouped_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/problem/checks.h"

namespace intact::kernels {
namespace {

// Stores the low `bytes` bytes: 0, 1, 2 or 4.
void StoreInteger(int32_t value, int bytes, uint8_t* to) {
  if (bytes == 4) std::memcpy(to, &value, 4);
  if (bytes == 2) std::memcpy(to, &value, 2);  // little endian
  if (bytes == 1) std::memcpy(to, &value, 1);
}

constexpr int64_t kChunkDepths = 256;
constexpr int64_t kMostColumns = 32;
constexpr int64_t kPrefetchDepths = 32;  // that lie apart in memory
// Depths of a panel's columns as the caller's bytes. Nibbles beyond the last depth are 0 up to whole steps.
using Chunk = std::array<std::array<uint8_t, kChunkDepths>, kMostColumns>;

// Loads `depth` depths from `begin` on, and inverts the bits `flip` of each byte.
void Load(const GroupedWeightView& view, int64_t first_column, int64_t columns, int64_t begin, int64_t depth,
          uint8_t flip, Chunk* chunk) {
  const bool is_nibble = view.format.IsPacked();
  const int64_t bytes = is_nibble ? CeilDivide(depth, 2) : depth;
  const int64_t padded = RoundUp(depth, GroupedLayout::kStepDepths) / (is_nibble ? 2 : 1);
  const int64_t stride_n = view.stride_n, stride_k = is_nibble ? 1 : view.stride_k;
  const uint8_t* const from =
      view.data + first_column * stride_n + (is_nibble ? begin / 2 : begin * stride_k);
  uint8_t* const to = chunk->front().data();
  if (stride_k == 1) {
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < bytes; ++j) to[i * kChunkDepths + j] = from[i * stride_n + j] ^ flip;
    }
  } else {
    for (int64_t j = 0; j < bytes; ++j) {
      const uint8_t* const depths = from + j * stride_k;
      __builtin_prefetch(depths + kPrefetchDepths * stride_k);
      for (int64_t i = 0; i < columns; ++i) to[i * kChunkDepths + j] = depths[i * stride_n] ^ flip;
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    uint8_t* const column = (*chunk)[static_cast<size_t>(i)].data();
    if (is_nibble && depth % 2 != 0) column[bytes - 1] &= 0x0f;
    std::fill(column + bytes, column + padded, uint8_t{0});
  }
}

// From nibbles in the order of depths 0 1 2 3 4 5 6 7 to 0 4 1 5 2 6 3 7: low nibbles are a quad, high
// nibbles are the next quad.
uint32_t PairQuads(uint32_t bits) {
  bits = (bits & 0xff0000ff) | (bits & 0x00ff0000) >> 8 | (bits & 0x0000ff00) << 8;
  return (bits & 0xf00ff00f) | (bits & 0x0f000f00) >> 4 | (bits & 0x00f000f0) << 4;
}

// The inverse of PairQuads().
uint32_t UnpairQuads(uint32_t bits) {
  bits = (bits & 0xf00ff00f) | (bits & 0x0f000f00) >> 4 | (bits & 0x00f000f0) << 4;
  return (bits & 0xff0000ff) | (bits & 0x00ff0000) >> 8 | (bits & 0x0000ff00) << 8;
}

// The bits of each byte that packing inverts, if it adds `shift` to weights.
uint8_t FlipOf(int32_t shift, bool is_nibble) { return shift == 0 ? 0 : is_nibble ? 0x88 : 0x80; }

// The sum of the weights of each column, modulo 2³², in `count` rows of packed words.
std::array<uint32_t, kMostColumns> PackedSums(const uint8_t* words, int64_t count, int64_t columns,
                                              bool is_nibble, bool is_signed) {
  std::array<uint32_t, kMostColumns> sums = {};
  const uint32_t flip = is_signed ? 0x80808080u : 0;
  for (int64_t word = 0; word < count; ++word) {
    for (int64_t i = 0; i < columns; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, words + (word * columns + i) * 4, 4);
      if (is_nibble) {
        bits = (bits & 0x0f0f0f0f) + (bits >> 4 & 0x0f0f0f0f);
      } else {
        bits ^= flip;
      }
      bits = (bits & 0x00ff00ff) + (bits >> 8 & 0x00ff00ff);
      sums[static_cast<size_t>(i)] += (bits & 0xffff) + (bits >> 16);
    }
  }
  for (uint32_t& sum : sums) sum -= is_signed ? static_cast<uint32_t>(count) * 4 * 128 : 0;
  return sums;
}

// Whether no element has all bits of `infinity`.
template <class Bits>
bool AreFinite(const uint8_t* elements, int64_t count, Bits infinity) {
  Bits wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, elements + i * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
    wrong = static_cast<Bits>(wrong | ((bits & infinity) == infinity));
  }
  return wrong == 0;
}

// Whether the weights beyond `depth` depths in the last step are 0, in all columns.
bool IsPaddingZero(const uint8_t* steps, int64_t depth, int64_t columns, bool is_nibble) {
  int bits = 0;
  for (int64_t k = depth; k < RoundUp(depth, GroupedLayout::kStepDepths); ++k) {
    const int64_t quad = k / 4, word = is_nibble ? quad / 2 : quad;
    const int mask = !is_nibble ? 0xff : quad % 2 == 0 ? 0x0f : 0xf0;
    for (int64_t i = 0; i < columns; ++i) bits |= steps[(word * columns + i) * 4 + k % 4] & mask;
  }
  return bits == 0;
}

// VPSIGNB negates −128 to −128.
bool HasLeastByte(const uint8_t* steps, int64_t bytes) {
  return std::memchr(steps, 0x80, static_cast<size_t>(bytes)) != nullptr;
}

// Whether kernels of `isa` read kSignBytes, if the weights allow it. VPSIGNB has no EVEX form.
bool TakesSignBytes(const GroupedProblem& problem, core::Isa isa) {
  const core::IsaTraits& traits = core::TraitsOf(isa);
  return !problem.IsPacked() && problem.a_type == INTACT_S8 &&
         traits.dot_products == core::DotProducts::kNone && traits.vectors.encoding == core::Encoding::kVex;
}

bool AreNibbles(const uint8_t* bytes, int64_t count) {
  int bits = 0;
  for (int64_t i = 0; i < count; ++i) bits |= bytes[i];
  return bits <= 15;
}

// Whether float16 holds the value: it has 11 significant bits, and is a multiple of 2⁻²⁴.
bool IsHalf(float value) {
  const double units = std::ldexp(double{value}, 24);
  return std::abs(value) <= 65504.0f && units == std::trunc(units) &&
         (std::bit_cast<uint32_t>(value) & 0x1fff) == 0;
}

// GroupedPacking::zero_point of all experts. `view` is expert 0.
std::optional<int32_t> CommonZeroPoint(const GroupedProblem& problem, const GroupedWeightView& view) {
  const int32_t first = view.ZeroPoint(0, 0);
  const bool is_common = view.zero_points == nullptr ||
                         AllGroups(problem, view, [&](const GroupPlace& place, const GroupedWeightView& own) {
                           return own.ZeroPoint(place.g, place.n) == first;
                         });
  return is_common ? std::optional(first) : std::nullopt;
}

// GroupedPacking::minimum_type of all experts. `view` is expert 0.
intact_type MinimumType(const GroupedProblem& problem, const GroupedWeightView& view) {
  if (!problem.has_b_minimums) return INTACT_TYPE_NONE;
  const bool are_halves = AllGroups(problem, view, [](const GroupPlace& place, const GroupedWeightView& own) {
    return IsHalf(own.Minimum(place.g, place.n));
  });
  return are_halves ? INTACT_F16 : INTACT_F32;
}

}  // namespace

GroupedLayout GroupedLayout::Expanded() const {
  GroupedLayout expanded = *this;
  expanded.step = step == GroupedStep::kNibbles ? GroupedStep::kBytes : GroupedStep::kHalves;
  expanded.scale_type = INTACT_F32;
  if (zero_point_bytes != 0) expanded.zero_point_bytes = 4;
  if (sum_bytes != 0) expanded.sum_bytes = 4;
  return expanded;
}

GroupedLayout GroupedLayout::Centered() const {
  GroupedLayout centered = Expanded();
  centered.zero_point_bytes = 0;
  centered.signed_zero_points = false;
  return centered;
}

int GroupedLayout::StepVectors() const {
  switch (step) {
    case GroupedStep::kNibbles:
      return kStepQuads / 2;
    case GroupedStep::kBytes:
    case GroupedStep::kSplitBytes:
    case GroupedStep::kSignBytes:
      return kStepQuads;
    case GroupedStep::kHalves:
      return kStepQuads * 2;
  }
  return 0;
}

GroupedPacking GroupedPacking::Of(core::Isa isa, std::optional<int32_t> zero_point, intact_type minimum_type,
                                  bool has_sign_bytes) {
  const core::IsaTraits& traits = core::TraitsOf(isa);
  return {GroupedLayout::kVectors * traits.vectors.bytes / 4, traits.dot_products != core::DotProducts::kNone,
          zero_point, minimum_type, has_sign_bytes};
}

// Sets everything except the panels.
GroupedWeights::GroupedWeights(const GroupedProblem& problem, const GroupedPacking& packing)
    : experts_(problem.experts),
      n_(problem.n),
      k_(problem.k),
      group_(problem.group),
      format_(static_cast<const core::WeightFormat&>(problem)),
      packing_(packing) {
  const bool is_nibble = format_.IsPacked(), has_vnni = packing.has_dot_products;
  if (is_nibble)
    packing_.has_dot_products = packing_.has_sign_bytes = false;  // the layout does not depend on them
  layout_.step = is_nibble                ? GroupedStep::kNibbles
                 : has_vnni               ? GroupedStep::kBytes
                 : packing.has_sign_bytes ? GroupedStep::kSignBytes
                                          : GroupedStep::kSplitBytes;
  layout_.scale_type = problem.scale_type;
  is_signed_ = layout_.step == GroupedStep::kSignBytes ||
               (layout_.step == GroupedStep::kBytes && problem.a_type == INTACT_U8);
  const core::ElementType& codes = format_.codes();
  if (is_signed_ != codes.is_signed()) shift_ = (is_signed_ ? -1 : 1) * (1 << (codes.bits - 1));
  if (packing.zero_point) {
    uniform_zero_point_ = *packing.zero_point + shift_;
  } else {
    layout_.zero_point_bytes = 1;
    layout_.signed_zero_points = is_signed_;
  }
  if (problem.HasAZeroPoints()) {
    const int64_t largest = group_ << codes.bits;
    layout_.sum_bytes = largest <= std::numeric_limits<int16_t>::max() ? 2 : 4;
  }
  const int64_t last = problem.groups() - 1;
  panel_bytes_ =
      last * layout_.GroupBytes(columns(), GroupSteps(0)) + layout_.GroupBytes(columns(), GroupSteps(last));
  expert_panels_ = CeilDivide(n_, columns());
}

GroupedWeights::GroupedWeights(const GroupedProblem& problem, const GroupedPacking& packing,
                               const uint8_t* panels, const uint8_t* minimums,
                               std::shared_ptr<const void> owner)
    : GroupedWeights(problem, packing) {
  panels_ = panels;
  minimums_ = minimums;
  owner_ = std::move(owner);
}

bool GroupedWeights::AreFor(const GroupedProblem& problem, core::Isa isa) const {
  const bool has_sign_bytes = TakesSignBytes(problem, isa) && packing_.has_sign_bytes;
  const GroupedWeights other(problem,
                             GroupedPacking::Of(isa, packing_.zero_point, minimum_type(), has_sign_bytes));
  return layout_ == other.layout_ && columns() == other.columns() && is_signed_ == other.is_signed_;
}

Result<std::unique_ptr<const GroupedWeights>> GroupedWeights::Pack(const GroupedProblem& problem,
                                                                   const GroupedWeightView& view,
                                                                   core::Isa isa) {
  const std::optional<int32_t> zero_point = CommonZeroPoint(problem, view);
  const intact_type minimum_type = MinimumType(problem, view);
  for (const bool has_sign_bytes : {true, false}) {
    if (has_sign_bytes && !TakesSignBytes(problem, isa)) continue;
    const GroupedPacking packing = GroupedPacking::Of(isa, zero_point, minimum_type, has_sign_bytes);
    std::unique_ptr<GroupedWeights> packed(new GroupedWeights(problem, packing));
    if (!packed->own_.Resize(static_cast<size_t>(packed->bytes()))) break;
    if (!packed->PackColumns(problem, view)) continue;
    RETURN_IF_ERROR(packed->PackMinimums(problem, view));
    return std::unique_ptr<const GroupedWeights>(std::move(packed));
  }
  return Error{INTACT_OUT_OF_MEMORY, "no memory for the packed weights"};
}

bool GroupedWeights::PackColumns(const GroupedProblem& problem, const GroupedWeightView& view) {
  uint8_t* to = own_.data();
  panels_ = to;
  std::memset(to, 0, own_.bytes());
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const GroupedWeightView own = view.Expert(expert);
    for (int64_t panel = 0; panel < expert_panels_; ++panel) {
      for (int64_t g = 0; g < problem.groups(); ++g) {
        PackGroup(problem, own, panel * columns(), g, to);
        const int64_t header = layout_.HeaderBytes(columns());
        const int64_t bytes = layout_.GroupBytes(columns(), GroupSteps(g));
        if (layout_.step == GroupedStep::kSignBytes && HasLeastByte(to + header, bytes - header))
          return false;
        to += bytes;
      }
    }
  }
  return true;
}

Error GroupedWeights::Copy() {
  if (!own_.Resize(static_cast<size_t>(bytes()))) {
    return {INTACT_OUT_OF_MEMORY, "no memory for the packed weights"};
  }
  if (!own_minimums_.Resize(static_cast<size_t>(minimum_bytes()))) {
    return {INTACT_OUT_OF_MEMORY, "no memory for the minimums"};
  }
  std::memcpy(own_.data(), panels_, own_.bytes());
  panels_ = own_.data();
  if (minimum_type() != INTACT_TYPE_NONE) std::memcpy(own_minimums_.data(), minimums_, own_minimums_.bytes());
  minimums_ = own_minimums_.data();
  owner_.reset();
  return {};
}

template <class Visit>
void GroupedWeights::ForEachMinimum(const Visit& visit) const {
  const int64_t groups = CeilDivide(k_, group_);
  for (int64_t panel = 0; panel < experts_ * expert_panels_; ++panel) {
    const int64_t expert = panel / expert_panels_, first = panel % expert_panels_ * columns();
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t i = 0; i < std::min<int64_t>(columns(), n_ - first); ++i) {
        visit(GroupPlace{expert, first + i, g}, (panel * groups + g) * columns() + i);
      }
    }
  }
}

Error GroupedWeights::PackMinimums(const GroupedProblem& problem, const GroupedWeightView& view) {
  if (!problem.has_b_minimums) return {};
  if (!own_minimums_.Resize(static_cast<size_t>(minimum_bytes()))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for the minimums"};
  }
  std::memset(own_minimums_.data(), 0, own_minimums_.bytes());
  minimums_ = own_minimums_.data();
  ForEachMinimum([&](const GroupPlace& place, int64_t index) {
    core::Encode(minimum_type(), view.Expert(place.expert).Minimum(place.g, place.n),
                 own_minimums_.data() + index * core::BytesOf(minimum_type()));
  });
  return {};
}

Error GroupedWeights::CheckMinimums(const GroupedProblem& problem) const {
  Error error;
  if (problem.has_b_minimums) {
    ForEachMinimum([&](const GroupPlace& place, int64_t index) {
      if (error.ok()) error = CheckMinimum(problem, place, MinimumAt(index));
    });
  }
  return error;
}

// Depths and columns beyond the matrix stay 0.
void GroupedWeights::PackGroup(const GroupedProblem& problem, const GroupedWeightView& view,
                               int64_t first_column, int64_t g, uint8_t* to) const {
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const int64_t count = std::min<int64_t>(columns(), problem.n - first_column);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = first_column + i;
    StoreInteger(static_cast<int32_t>(view.ScaleBits(g, n)), scale_bytes, to + i * scale_bytes);
    StoreInteger(view.ZeroPoint(g, n) + shift_, layout_.zero_point_bytes,
                 to + layout_.ZeroPointOffset(columns()) + i * layout_.zero_point_bytes);
  }
  const bool is_nibble = layout_.step == GroupedStep::kNibbles;
  const uint8_t flip = FlipOf(shift_, is_nibble);
  uint8_t* steps = to + layout_.HeaderBytes(columns());
  Chunk chunk;
  for (int64_t begin = 0; begin < problem.GroupDepth(g); begin += kChunkDepths) {
    const int64_t depth = std::min(kChunkDepths, problem.GroupDepth(g) - begin);
    Load(view, first_column, count, g * problem.group + begin, depth, flip, &chunk);
    const int64_t words = CeilDivide(depth, GroupedLayout::kStepDepths) * layout_.StepVectors();
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const column = chunk[static_cast<size_t>(i)].data();
      for (int64_t word = 0; word < words; ++word) {
        uint32_t bits = 0;
        std::memcpy(&bits, column + word * 4, 4);
        if (is_nibble) bits = PairQuads(bits);
        std::memcpy(steps + (word * columns() + i) * 4, &bits, 4);
      }
    }
    steps += words * columns() * 4;
  }
  StoreSums(to + layout_.HeaderBytes(columns()), GroupSteps(g), to + layout_.SumOffset(columns()));
}

Error GroupedWeights::Check(const GroupedProblem& problem) const {
  RETURN_IF_ERROR(CheckMinimums(problem));
  std::array<uint8_t, kMostColumns * 4> sums;
  const size_t sum_bytes = static_cast<size_t>(columns()) * static_cast<size_t>(layout_.sum_bytes);
  const uint8_t* group = panels_;
  for (int64_t panel = 0; panel < experts_ * expert_panels_; ++panel) {
    for (int64_t g = 0; g < problem.groups(); ++g) {
      const uint8_t* const steps = group + layout_.HeaderBytes(columns());
      RETURN_IF_ERROR(CheckHeader(problem, panel, g, group));
      StoreSums(steps, GroupSteps(g), sums.data());
      if (std::memcmp(sums.data(), group + layout_.SumOffset(columns()), sum_bytes) != 0) {
        return InvalidArgument("corrupted: a sum of weights is wrong");
      }
      if (!IsPaddingZero(steps, problem.GroupDepth(g), columns(), layout_.step == GroupedStep::kNibbles)) {
        return InvalidArgument("corrupted: the padding of the weights is not zero");
      }
      if (layout_.step == GroupedStep::kSignBytes &&
          HasLeastByte(steps, GroupSteps(g) * layout_.StepBytes(columns()))) {
        return InvalidArgument("corrupted: a weight is -128, which these weights exclude");
      }
      group = steps + GroupSteps(g) * layout_.StepBytes(columns());
    }
  }
  return {};
}

// Checks the scales and zero points of a group of a panel: first of all columns at once.
Error GroupedWeights::CheckHeader(const GroupedProblem& problem, int64_t panel, int64_t g,
                                  const uint8_t* group) const {
  const uint32_t infinity = core::InfinityOf(core::TraitsOf(layout_.scale_type));
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const bool are_finite = scale_bytes == 4
                              ? AreFinite<uint32_t>(group, columns(), infinity)
                              : AreFinite<uint16_t>(group, columns(), static_cast<uint16_t>(infinity));
  const uint8_t* const zero_points = group + layout_.ZeroPointOffset(columns());
  const bool is_nibble = format_.IsPacked(), has_zero_points = layout_.zero_point_bytes != 0;
  const bool are_in_range = !has_zero_points || !is_nibble || AreNibbles(zero_points, columns());
  if (are_finite && are_in_range) return {};
  const int64_t expert = panel / expert_panels_, first = panel % expert_panels_ * columns();
  for (int64_t i = 0; i < std::min<int64_t>(columns(), n_ - first); ++i) {
    uint32_t scale = 0;
    std::memcpy(&scale, group + i * scale_bytes, static_cast<size_t>(scale_bytes));
    const int32_t zero_point = !has_zero_points ? uniform_zero_point_
                               : is_signed_     ? int32_t{static_cast<int8_t>(zero_points[i])}
                                                : int32_t{zero_points[i]};
    RETURN_IF_ERROR(CheckGroupValues(problem, {expert, first + i, g}, scale, zero_point - shift_));
  }
  return {};
}

void GroupedWeights::StoreSums(const uint8_t* steps, int64_t count, uint8_t* to) const {
  if (layout_.sum_bytes == 0) return;
  const std::array<uint32_t, kMostColumns> sums = PackedSums(
      steps, count * layout_.StepVectors(), columns(), layout_.step == GroupedStep::kNibbles, is_signed_);
  for (int64_t i = 0; i < columns(); ++i) {
    StoreInteger(static_cast<int32_t>(sums[static_cast<size_t>(i)]), layout_.sum_bytes,
                 to + i * layout_.sum_bytes);
  }
}

GroupedColumns GroupedWeights::Unpacked(const GroupedProblem& problem) const {
  GroupedColumns dense(problem);
  if (minimum_type() != INTACT_TYPE_NONE) {
    ForEachMinimum([&](const GroupPlace& place, int64_t index) {
      const int64_t column = place.expert * n_ + place.n;
      dense.minimums[static_cast<size_t>(column * CeilDivide(k_, group_) + place.g)] = MinimumAt(index);
    });
  }
  const uint8_t* group = panels_;
  for (int64_t panel = 0; panel < experts_ * expert_panels_; ++panel) {
    const int64_t expert = panel / expert_panels_, first = panel % expert_panels_ * columns();
    for (int64_t g = 0; g < CeilDivide(k_, group_); ++g) {
      for (int64_t i = 0; i < std::min<int64_t>(columns(), n_ - first); ++i) {
        UnpackColumn(group, i, expert * n_ + first + i, g, &dense);
      }
      group += layout_.GroupBytes(columns(), GroupSteps(g));
    }
  }
  return dense;
}

// Unpacks group g of column `column`, which is column i of the panel.
void GroupedWeights::UnpackColumn(const uint8_t* group, int64_t i, int64_t column, int64_t g,
                                  GroupedColumns* to) const noexcept {
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const int64_t depth = std::min(group_, k_ - g * group_), place = column * CeilDivide(k_, group_) + g;
  std::memcpy(to->scales.data() + place * scale_bytes, group + i * scale_bytes,
              static_cast<size_t>(scale_bytes));
  if (!to->zero_points.empty()) {
    const bool is_uniform = layout_.zero_point_bytes == 0;
    const int32_t stored = is_uniform ? uniform_zero_point_ : group[layout_.ZeroPointOffset(columns()) + i];
    to->zero_points[static_cast<size_t>(place)] = static_cast<uint8_t>(stored - shift_);
  }
  const bool is_nibble = layout_.step == GroupedStep::kNibbles;
  const uint32_t flip = FlipOf(shift_, is_nibble) * 0x01010101u;
  const int64_t word_depths = is_nibble ? 8 : 4;
  const uint8_t* word = group + layout_.HeaderBytes(columns()) + i * 4;
  uint8_t* bytes = to->weights.data() + column * format_.ColumnBytes(k_) + format_.ColumnBytes(g * group_);
  for (int64_t rest = depth; rest > 0; rest -= word_depths) {
    uint32_t bits = 0;
    std::memcpy(&bits, word, 4);
    word += columns() * 4;
    bits = (is_nibble ? UnpairQuads(bits) : bits) ^ flip;
    if (rest >= word_depths) {
      std::memcpy(bytes, &bits, 4);
      bytes += 4;
      continue;
    }
    const int64_t count = format_.ColumnBytes(rest);
    std::memcpy(bytes, &bits, static_cast<size_t>(count));
    if (is_nibble && rest % 2 != 0) bytes[count - 1] &= 0x0f;
  }
}

}  // namespace intact::kernels
