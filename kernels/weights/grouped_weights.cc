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

// The zero point that all columns and groups have; nothing if zero points differ.
std::optional<int32_t> CommonZeroPoint(const GroupedProblem& problem, const GroupedWeightView& view) {
  const int32_t first = view.ZeroPoint(0, 0);
  if (view.zero_points == nullptr) return first;
  for (int64_t n = 0; n < problem.n; ++n) {
    for (int64_t g = 0; g < problem.groups(); ++g) {
      if (view.ZeroPoint(g, n) != first) return std::nullopt;
    }
  }
  return first;
}

void StoreInteger(int32_t value, int bytes, uint8_t* to) {
  std::memcpy(to, &value, static_cast<size_t>(bytes));  // little endian
}

}  // namespace

GroupedLayout GroupedLayout::Expanded() const {
  GroupedLayout expanded = *this;
  expanded.form = form == GroupedForm::kNibbles ? GroupedForm::kBytes : GroupedForm::kHalves;
  expanded.scale_type = INTACT_F32;
  if (zero_point_bytes != 0) expanded.zero_point_bytes = 4;
  if (sum_bytes != 0) expanded.sum_bytes = 4;
  return expanded;
}

int GroupedLayout::StepVectors() const {
  switch (form) {
    case GroupedForm::kNibbles:
      return kStepQuads / 2;
    case GroupedForm::kBytes:
    case GroupedForm::kSplitBytes:
      return kStepQuads;
    case GroupedForm::kHalves:
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
  GroupedLayout& layout = packed->layout_;
  layout.form = is_nibble ? GroupedForm::kNibbles : has_vnni ? GroupedForm::kBytes : GroupedForm::kSplitBytes;
  layout.scale_type = problem.scale_type;
  const bool is_signed = !is_nibble && has_vnni && problem.a_type == INTACT_U8;
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
  const int64_t panels = CeilDivide(problem.n, columns);
  if (!packed->data_.Resize(static_cast<size_t>(panels * packed->panel_bytes_))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for the packed weights"};
  }
  std::memset(packed->data_.data(), 0, packed->data_.bytes());
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t g = 0; g < groups; ++g) {
      packed->PackGroup(problem, view, panel * columns, g,
                        packed->data_.data() + panel * packed->panel_bytes_ + g * group_bytes(0));
    }
  }
  return std::unique_ptr<const GroupedWeights>(std::move(packed));
}

// Depths and columns beyond the matrix stay 0.
void GroupedWeights::PackGroup(const GroupedProblem& problem, const GroupedWeightView& view,
                               int64_t first_column, int64_t g, uint8_t* to) const {
  const int scale_bytes = core::BytesOf(layout_.scale_type);
  const int64_t depth = problem.GroupDepth(g),
                columns = std::min<int64_t>(columns_, problem.n - first_column);
  const int64_t vector_columns = columns_ / GroupedLayout::kVectors;
  uint8_t* const steps = to + layout_.HeaderBytes(columns_);
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t n = first_column + i;
    StoreInteger(static_cast<int32_t>(view.ScaleBits(g, n)), scale_bytes, to + i * scale_bytes);
    StoreInteger(view.ZeroPoint(g, n) + shift_, layout_.zero_point_bytes,
                 to + layout_.ZeroPointOffset(columns_) + i * layout_.zero_point_bytes);
    int32_t sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const int32_t weight = view.At(g * problem.group + k, n) + shift_;
      sum += weight;
      const bool is_nibble = layout_.form == GroupedForm::kNibbles;
      const int64_t quad = k / 4, vector_of_quad = is_nibble ? quad / 2 : quad;
      const int64_t vector = vector_of_quad * GroupedLayout::kVectors + i / vector_columns;
      uint8_t& byte = steps[(vector * vector_columns + i % vector_columns) * 4 + k % 4];
      byte = static_cast<uint8_t>(byte | weight << (is_nibble && quad % 2 == 1 ? 4 : 0));
    }
    StoreInteger(sum, layout_.sum_bytes, to + layout_.SumOffset(columns_) + i * layout_.sum_bytes);
  }
}

}  // namespace intact::kernels
