#include "kernels/weights/grouped_file.h"

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "core/isas.h"
#include "kernels/problem/checks.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {
namespace {

struct Header {
  ImageBegin begin;
  intact_grouped_desc desc;
  uint32_t has_zero_points, has_bias;
  int32_t columns;  // GroupedPacking
  uint32_t has_dot_products, has_common_zero_point;
  int32_t common_zero_point;  // 0 if has_common_zero_point is 0
  int32_t minimum_type;       // of GroupedWeights, or INTACT_TYPE_NONE
  uint32_t has_sign_bytes;
};
static_assert(std::has_unique_object_representations_v<ImageBegin> && sizeof(Header) % 8 == 0);
constexpr ImageBegin kBegin = {kGroupedMagic, 5, sizeof(Header), 0, 0};

// The offsets of the sections; absent ones have no bytes.
constexpr int64_t kPanels = RoundUp(sizeof(Header), 64);
struct Layout {
  int64_t minimums, bias, end;
};
Layout LayoutOf(const Header& header, const GroupedWeights& weights) {
  Layout layout = {};
  const auto next = [](int64_t offset, int64_t bytes) { return RoundUp(offset + bytes, 64); };
  layout.minimums = next(kPanels, weights.bytes());
  layout.bias = next(layout.minimums, weights.minimum_bytes());
  const int64_t bias = header.desc.experts * header.desc.n * int64_t{sizeof(float)};
  layout.end = next(layout.bias, header.has_bias != 0 ? bias : 0);
  return layout;
}

// Without the checksum.
Header HeaderOf(const GroupedProblem& problem, const GroupedWeights& weights) {
  const GroupedPacking& packing = weights.packing();
  Header header{};
  header.begin = kBegin;
  header.desc = problem.desc;
  header.has_zero_points = problem.has_b_zero_points ? 1 : 0;
  header.has_bias = problem.bias_f32.empty() ? 0 : 1;
  header.columns = packing.columns;
  header.has_dot_products = packing.has_dot_products ? 1 : 0;
  header.has_common_zero_point = packing.zero_point ? 1 : 0;
  header.common_zero_point = packing.zero_point.value_or(0);
  header.minimum_type = packing.minimum_type;
  header.has_sign_bytes = packing.has_sign_bytes ? 1 : 0;
  header.begin.file_bytes = static_cast<uint64_t>(LayoutOf(header, weights).end);
  return header;
}

// Sets what a descriptor says by its pointers.
void SetFlags(const Header& header, GroupedProblem* problem) {
  problem->has_b_zero_points = header.has_zero_points != 0;
  problem->has_b_minimums = header.minimum_type != INTACT_TYPE_NONE;
}

// Checks the fields that no descriptor has.
Error CheckHeader(const Header& header) {
  if (header.has_zero_points > 1 || header.has_bias > 1 || header.has_dot_products > 1 ||
      header.has_common_zero_point > 1 || header.has_sign_bytes > 1) {
    return InvalidArgument("corrupted: a flag is out of range");
  }
  // The format of the weights is checked with the descriptor.
  const bool is_s8_by_avx2 =
      header.desc.a_type == INTACT_S8 && header.has_dot_products == 0 && header.columns == 16;
  if (header.has_sign_bytes != 0 && !is_s8_by_avx2) {
    return InvalidArgument("corrupted: weights with signs are not for s8 activations and AVX2");
  }
  if (header.minimum_type != INTACT_TYPE_NONE && header.minimum_type != INTACT_F16 &&
      header.minimum_type != INTACT_F32) {
    return Unexpected("corrupted: the type of minimums", header.minimum_type, "0, 4 or 6");
  }
  if (header.has_zero_points != 0 && header.minimum_type != INTACT_TYPE_NONE) {
    return InvalidArgument("corrupted: there are zero points and minimums");
  }
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512}) {
    if (GroupedPacking::Of(isa, {}, INTACT_TYPE_NONE).columns == header.columns) return {};
  }
  return Unexpected("corrupted: the number of columns of a panel", header.columns, "16 or 32");
}

}  // namespace

size_t GroupedImageBytes(const GroupedProblem& problem, const GroupedWeights& weights) {
  return HeaderOf(problem, weights).begin.file_bytes;
}

std::vector<uint8_t> WriteGroupedImage(const GroupedProblem& problem, const GroupedWeights& weights) {
  Header header = HeaderOf(problem, weights);
  const Layout layout = LayoutOf(header, weights);
  std::vector<uint8_t> image(static_cast<size_t>(layout.end));
  std::memcpy(image.data() + kPanels, weights.data(), static_cast<size_t>(weights.bytes()));
  if (problem.has_b_minimums) {
    std::memcpy(image.data() + layout.minimums, weights.minimums(),
                static_cast<size_t>(weights.minimum_bytes()));
  }
  if (!problem.bias_f32.empty()) {
    std::memcpy(image.data() + layout.bias, problem.bias_f32.data(), problem.bias_f32.size() * sizeof(float));
  }
  std::memcpy(image.data(), &header, sizeof(header));
  header.begin.checksum = ImageChecksum(image.data(), image.size());
  std::memcpy(image.data(), &header, sizeof(header));
  return image;
}

Result<GroupedImage> ReadGroupedImage(const void* image, size_t size, std::shared_ptr<const void> owner) {
  RETURN_IF_ERROR(CheckImage(image, size, kBegin, "a file of grouped weights"));
  Header header{};
  std::memcpy(&header, image, sizeof(header));
  RETURN_IF_ERROR(CheckHeader(header));
  const Error mismatch = InvalidArgument("corrupted: the size does not match n, k and experts");
  // A column has at least a byte of weights. The check of the descriptor allocates memory for n columns.
  if (header.desc.n > static_cast<int64_t>(size)) return mismatch;
  // The sizes of the sections follow from checked fields.
  intact_grouped_desc desc = NumbersOf(header.desc);
  ASSIGN_OR_RETURN(GroupedProblem problem, CheckGrouped(desc));
  SetFlags(header, &problem);
  GroupedPacking packing = {header.columns, header.has_dot_products != 0, std::nullopt,
                            static_cast<intact_type>(header.minimum_type), header.has_sign_bytes != 0};
  if (header.has_common_zero_point != 0) packing.zero_point = header.common_zero_point;
  const bool is_zero_point = packing.zero_point ? header.common_zero_point >= problem.codes().lowest &&
                                                      header.common_zero_point <= problem.codes().highest
                                                : header.common_zero_point == 0;
  if (!is_zero_point) {
    return Unexpected("corrupted: the zero point of all weights", header.common_zero_point,
                      packing.zero_point ? std::to_string(problem.codes().lowest) + " to " +
                                               std::to_string(problem.codes().highest)
                                         : "0, because zero points differ");
  }
  if (!problem.has_b_zero_points && packing.zero_point != problem.DefaultZeroPoint()) {
    return InvalidArgument("corrupted: the zero point of all weights is wrong");
  }
  const auto* const bytes = static_cast<const uint8_t*>(image);
  const Layout layout = LayoutOf(header, GroupedWeights(problem, packing, nullptr, nullptr, nullptr));
  if (layout.end != static_cast<int64_t>(size)) return mismatch;
  auto weights = std::make_shared<GroupedWeights>(problem, packing, bytes + kPanels, bytes + layout.minimums,
                                                  std::move(owner));
  if (header.has_bias != 0) {
    desc.bias_f32 = reinterpret_cast<const float*>(bytes + layout.bias);
    ASSIGN_OR_RETURN(problem, CheckGrouped(desc));
    SetFlags(header, &problem);
  }
  return GroupedImage{std::move(problem), std::move(weights)};
}

}  // namespace intact::kernels
