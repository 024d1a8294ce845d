#include "kernels/weights/grouped_file.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "core/types.h"
#include "kernels/problem/checks.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {
namespace {

struct Header {
  ImageBegin begin;
  int64_t n, k, group, experts;
  int32_t a_source_type, a_type, a_granularity, b_type, scale_type, c_type, activation;
  float clamp_min, clamp_max;
  uint32_t has_zero_points, has_bias;
  uint32_t reserved;  // 0
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) % 8 == 0);
constexpr ImageBegin kBegin = {{'I', 'N', 'T', 'A', 'C', 'T', 'G', 'W'}, 1, sizeof(Header), 0, 0};

// Copies the fields that the header and the descriptor share.
template <class From, class To>
void CopyFields(const From& from, To* to) {
  to->n = from.n;
  to->k = from.k;
  to->group = from.group;
  to->experts = from.experts;
  to->a_source_type = from.a_source_type;
  to->a_type = from.a_type;
  to->a_granularity = from.a_granularity;
  to->b_type = from.b_type;
  to->scale_type = from.scale_type;
  to->c_type = from.c_type;
  to->activation = from.activation;
  to->clamp_min = from.clamp_min;
  to->clamp_max = from.clamp_max;
}

// The offsets of the sections; absent ones have no bytes.
struct Layout {
  int64_t weights, scales, zero_points, bias, end;
};
Layout LayoutOf(const Header& header, const GroupedProblem& problem) {
  const int64_t columns = problem.experts * problem.n, values = columns * problem.groups();
  Layout layout = {};
  const auto next = [](int64_t offset, int64_t bytes) { return RoundUp(offset + bytes, 64); };
  layout.weights = next(0, sizeof(Header));
  layout.scales = next(layout.weights, columns * problem.column_bytes());
  layout.zero_points = next(layout.scales, values * core::BytesOf(problem.scale_type));
  layout.bias = next(layout.zero_points, header.has_zero_points != 0 ? values : 0);
  layout.end = next(layout.bias, header.has_bias != 0 ? columns * int64_t{sizeof(float)} : 0);
  return layout;
}

// Without the checksum.
Header HeaderOf(const intact_grouped_desc& desc, const GroupedProblem& problem) {
  Header header{};
  header.begin = kBegin;
  CopyFields(desc, &header);
  header.has_zero_points = problem.has_b_zero_points ? 1 : 0;
  header.has_bias = problem.bias_f32.empty() ? 0 : 1;
  header.begin.file_bytes = static_cast<uint64_t>(LayoutOf(header, problem).end);
  return header;
}

}  // namespace

size_t GroupedImageBytes(const intact_grouped_desc& desc, const GroupedProblem& problem) {
  return HeaderOf(desc, problem).begin.file_bytes;
}

std::vector<uint8_t> WriteGroupedImage(const intact_grouped_desc& desc, const GroupedProblem& problem,
                                       const std::function<void(const GroupedColumns&)>& unpack) {
  Header header = HeaderOf(desc, problem);
  const Layout layout = LayoutOf(header, problem);
  std::vector<uint8_t> image(static_cast<size_t>(layout.end));
  unpack({image.data() + layout.weights, image.data() + layout.scales,
          problem.has_b_zero_points ? image.data() + layout.zero_points : nullptr});
  if (!problem.bias_f32.empty()) {
    std::memcpy(image.data() + layout.bias, problem.bias_f32.data(), problem.bias_f32.size() * sizeof(float));
  }
  std::memcpy(image.data(), &header, sizeof(header));
  header.begin.checksum = ImageChecksum(image.data(), image.size());
  std::memcpy(image.data(), &header, sizeof(header));
  return image;
}

Result<GroupedImage> ReadGroupedImage(const void* image, size_t size) {
  RETURN_IF_ERROR(CheckImage(image, size, kBegin, "a file of grouped weights"));
  Header header{};
  std::memcpy(&header, image, sizeof(header));
  if (header.has_zero_points > 1 || header.has_bias > 1 || header.reserved != 0) {
    return InvalidArgument("corrupted: a flag is out of range");
  }
  const Error mismatch = InvalidArgument("corrupted: the size does not match n, k and experts");
  // A column has at least a byte of weights. The check of the descriptor allocates memory for n columns.
  if (header.n > static_cast<int64_t>(size)) return mismatch;
  GroupedImage read;
  CopyFields(header, &read.desc);
  // The sizes of the sections follow from checked fields.
  ASSIGN_OR_RETURN(const GroupedProblem problem, CheckGrouped(read.desc));
  const Layout layout = LayoutOf(header, problem);
  if (layout.end != static_cast<int64_t>(size)) return mismatch;
  const auto* const bytes = static_cast<const uint8_t*>(image);
  read.weights = bytes + layout.weights;
  read.desc.b_scales = bytes + layout.scales;
  if (header.has_zero_points != 0) read.desc.b_zero_points = bytes + layout.zero_points;
  if (header.has_bias != 0) read.desc.bias_f32 = reinterpret_cast<const float*>(bytes + layout.bias);
  return read;
}

}  // namespace intact::kernels
