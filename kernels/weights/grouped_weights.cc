#include "kernels/weights/grouped_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

// The zero point that all columns and groups of all experts have; nothing if zero points differ.
std::optional<int32_t> CommonZeroPoint(const GroupedProblem& problem, const GroupedWeightView& view) {
  const int32_t first = view.ZeroPoint(0, 0);
  if (view.zero_points == nullptr) return first;
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const GroupedWeightView own = view.Expert(expert);
    for (int64_t n = 0; n < problem.n; ++n) {
      for (int64_t g = 0; g < problem.groups(); ++g) {
        if (own.ZeroPoint(g, n) != first) return std::nullopt;
      }
    }
  }
  return first;
}

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
  const bool is_nibble = view.type.bits == 4;
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

// The sum of the weights in `bytes` packed bytes.
int32_t SumOf(const uint8_t* packed, int64_t bytes, bool is_nibble, bool is_signed) {
  const auto sum = [&](const auto& value) {
    int32_t total = 0;
    for (int64_t i = 0; i < bytes; ++i) total += value(packed[i]);
    return total;
  };
  if (is_nibble) return sum([](uint8_t byte) { return (byte & 15) + (byte >> 4); });
  return is_signed ? sum([](uint8_t byte) { return int32_t{static_cast<int8_t>(byte)}; })
                   : sum([](uint8_t byte) { return int32_t{byte}; });
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

int GroupedLayout::StepVectors() const {
  switch (step) {
    case GroupedStep::kNibbles:
      return kStepQuads / 2;
    case GroupedStep::kBytes:
    case GroupedStep::kSplitBytes:
      return kStepQuads;
    case GroupedStep::kHalves:
      return kStepQuads * 2;
  }
  return 0;
}

Result<std::unique_ptr<const GroupedWeights>> GroupedWeights::Pack(const GroupedProblem& problem,
                                                                   const GroupedWeightView& view,
                                                                   core::Isa isa) {
  auto packed = std::make_unique<GroupedWeights>();
  const core::IsaTraits& traits = core::TraitsOf(isa);
  const bool has_vnni = traits.dot_products != core::DotProducts::kNone;
  const bool is_nibble = problem.b_type.bits == 4;
  packed->experts_ = problem.experts;
  packed->n_ = problem.n;
  packed->k_ = problem.k;
  packed->group_ = problem.group;
  packed->type_ = problem.b_type;
  GroupedLayout& layout = packed->layout_;
  layout.step = is_nibble ? GroupedStep::kNibbles : has_vnni ? GroupedStep::kBytes : GroupedStep::kSplitBytes;
  layout.scale_type = problem.scale_type;
  const bool is_signed = packed->is_signed_ = !is_nibble && has_vnni && problem.a_type == INTACT_U8;
  if (is_signed != problem.b_type.is_signed) {
    packed->shift_ = (is_signed ? -1 : 1) * (1 << (problem.b_type.bits - 1));
  }
  if (const std::optional<int32_t> common = CommonZeroPoint(problem, view)) {
    packed->uniform_zero_point_ = *common + packed->shift_;
  } else {
    layout.zero_point_bytes = 1;
    layout.signed_zero_points = is_signed;
  }
  if (problem.HasAZeroPoints()) {
    const int64_t largest = problem.group << problem.b_type.bits;
    layout.sum_bytes = largest <= std::numeric_limits<int16_t>::max() ? 2 : 4;
  }
  packed->columns_ = GroupedLayout::kVectors * traits.vectors.bytes / 4;
  const int columns = packed->columns_;
  const int64_t groups = problem.groups();
  const auto group_bytes = [&](int64_t g) {
    return layout.GroupBytes(columns, CeilDivide(problem.GroupDepth(g), GroupedLayout::kStepDepths));
  };
  packed->panel_bytes_ = (groups - 1) * group_bytes(0) + group_bytes(groups - 1);
  const int64_t panels = packed->expert_panels_ = CeilDivide(problem.n, columns);
  if (!packed->data_.Resize(static_cast<size_t>(problem.experts * panels * packed->panel_bytes_))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for the packed weights"};
  }
  std::memset(packed->data_.data(), 0, packed->data_.bytes());
  uint8_t* to = packed->data_.data();
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const GroupedWeightView own = view.Expert(expert);
    for (int64_t panel = 0; panel < panels; ++panel, to += packed->panel_bytes_) {
      for (int64_t g = 0; g < groups; ++g) {
        packed->PackGroup(problem, own, panel * columns, g, to + g * group_bytes(0));
      }
    }
  }
  return std::unique_ptr<const GroupedWeights>(std::move(packed));
}

// Depths and columns beyond the matrix stay 0.
void GroupedWeights::PackGroup(const GroupedProblem& problem, const GroupedWeightView& view,
                               int64_t first_column, int64_t g, uint8_t* to) const {
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const int64_t columns = std::min<int64_t>(columns_, problem.n - first_column);
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t n = first_column + i;
    StoreInteger(static_cast<int32_t>(view.ScaleBits(g, n)), scale_bytes, to + i * scale_bytes);
    StoreInteger(view.ZeroPoint(g, n) + shift_, layout_.zero_point_bytes,
                 to + layout_.ZeroPointOffset(columns_) + i * layout_.zero_point_bytes);
  }
  const bool is_nibble = layout_.step == GroupedStep::kNibbles;
  const uint8_t flip = shift_ == 0 ? 0 : is_nibble ? 0x88 : 0x80;
  std::array<uint32_t, kMostColumns> sums = {};  // modulo 2³²
  uint8_t* steps = to + layout_.HeaderBytes(columns_);
  Chunk chunk;
  for (int64_t begin = 0; begin < problem.GroupDepth(g); begin += kChunkDepths) {
    const int64_t depth = std::min(kChunkDepths, problem.GroupDepth(g) - begin);
    Load(view, first_column, columns, g * problem.group + begin, depth, flip, &chunk);
    const int64_t words = CeilDivide(depth, GroupedLayout::kStepDepths) * layout_.StepVectors();
    for (int64_t i = 0; i < columns; ++i) {
      const uint8_t* const column = chunk[static_cast<size_t>(i)].data();
      if (layout_.sum_bytes != 0) {
        sums[static_cast<size_t>(i)] +=
            static_cast<uint32_t>(SumOf(column, words * 4, is_nibble, is_signed_));
      }
      for (int64_t word = 0; word < words; ++word) {
        uint32_t bits = 0;
        std::memcpy(&bits, column + word * 4, 4);
        if (is_nibble) bits = PairQuads(bits);
        std::memcpy(steps + (word * columns_ + i) * 4, &bits, 4);
      }
    }
    steps += words * columns_ * 4;
  }
  for (int64_t i = 0; i < columns; ++i) {
    StoreInteger(static_cast<int32_t>(sums[static_cast<size_t>(i)]), layout_.sum_bytes,
                 to + layout_.SumOffset(columns_) + i * layout_.sum_bytes);
  }
}

void GroupedWeights::Unpack(const GroupedColumns& to) const noexcept {
  const int64_t groups = CeilDivide(k_, group_), column_bytes = type_.ColumnBytes(k_);
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const bool is_nibble = layout_.step == GroupedStep::kNibbles;
  for (int64_t column = 0; column < experts_ * n_; ++column) {
    const int64_t n = column % n_, i = n % columns_;
    const uint8_t* group = Panel(column / n_, n / columns_);
    uint8_t* const weights = to.weights + column * column_bytes;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t depth = std::min(group_, k_ - g * group_), place = column * groups + g;
      std::memcpy(to.scales + place * scale_bytes, group + i * scale_bytes, static_cast<size_t>(scale_bytes));
      if (to.zero_points != nullptr) {
        const bool is_uniform = layout_.zero_point_bytes == 0;
        const int32_t stored =
            is_uniform ? uniform_zero_point_ : group[layout_.ZeroPointOffset(columns_) + i];
        to.zero_points[place] = static_cast<uint8_t>(stored - shift_);
      }
      const uint8_t* const steps = group + layout_.HeaderBytes(columns_);
      for (int64_t j = 0; j < depth; ++j) {
        const int64_t quad = j / 4, word = is_nibble ? quad / 2 : quad;
        const int32_t byte = steps[(word * columns_ + i) * 4 + j % 4];
        type_.Store((is_nibble ? byte >> (quad % 2 * 4) : byte) - shift_, g * group_ + j, weights);
      }
      group += layout_.GroupBytes(columns_, CeilDivide(depth, GroupedLayout::kStepDepths));
    }
  }
}

}  // namespace intact::kernels
