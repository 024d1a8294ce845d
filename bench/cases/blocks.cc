#include "bench/cases/blocks.h"

#include <fmt/format.h>
#include <intact/grouped.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "core/operation.h"
#include "core/types.h"
#include "support/random.h"

namespace intact::bench {
namespace {

constexpr int64_t kCheckedColumns = 40;
constexpr int64_t kCheckedRows = 128;
// The largest error of a peer, relative to the mean of Σ|a·w|. An activation that is quantized otherwise,
// weights in another order or a neighbour's scale make a larger error. Rounding in float32 makes a smaller
// error.
constexpr double kLargestError = 2e-6;

/// `count` numbers from 0 to extent − 1, evenly spaced, with both ends; fewer if the extent is smaller.
std::vector<int64_t> Sampled(int64_t extent, int64_t count) {
  std::vector<int64_t> sample(static_cast<size_t>(std::min(extent, count)));
  const int64_t last = std::max<int64_t>(std::ssize(sample) - 1, 1);
  for (int64_t i = 0; i < std::ssize(sample); ++i) {
    sample[static_cast<size_t>(i)] = i * (extent - 1) / last;
  }
  return sample;
}

}  // namespace

BlockOperands::BlockOperands(const Shape& shape)
    : shape_(shape), rows_(Sampled(shape.m, kCheckedRows)), columns_(Sampled(shape.n, kCheckedColumns)) {
  support::Random random(1, 0, 0);
  format_.b_type = shape.blocks->b_type;
  format_.group = shape.blocks->depth;
  b_.resize(static_cast<size_t>(shape.n * format_.ColumnBytes(shape.k)));
  for (size_t i = 0; i + sizeof(uint64_t) <= b_.size(); i += sizeof(uint64_t)) {
    const uint64_t bytes = random.Next();
    std::memcpy(b_.data() + i, &bytes, sizeof(bytes));
  }
  // Symmetric quantizers, such as that of GGUF's Q8_0, give no −128.
  if (format_.b_type == INTACT_S8) std::ranges::replace(b_, uint8_t{0x80}, uint8_t{0x81});
  // 2⁻⁷ to 2⁻⁵ as float16
  scales_.resize(static_cast<size_t>(shape.n * blocks()));
  for (uint16_t& scale : scales_) scale = static_cast<uint16_t>(0x2000 + random.Integer(0, 0x7ff));
  if (!a_.Resize(static_cast<size_t>(shape.m * shape.k))) throw std::bad_alloc();
  for (float& number : std::span(a_.data(), a_.size())) number = static_cast<float>(random.Gauss());
}

intact_grouped_desc BlockOperands::Describe(const Case& c) const {
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  const reference::Grouped sample = Sample(c.format == kByBlock);
  core::ForEachGroupedNumber(core::kCopyField, desc, sample);
  desc.n = shape_.n;
  desc.b_scales = scales_.data();
  desc.max_isa = static_cast<int32_t>(c.isa);
  return desc;
}

std::string BlockOperands::Check(Contender* contender, const Case& c) const {
  std::vector<float> all(static_cast<size_t>(shape_.m * shape_.n), std::nanf(""));
  if (!contender->Run(a(), reinterpret_cast<uint8_t*>(all.data()))) return "a run failed";
  std::vector<float> found;
  for (const int64_t row : rows_) {
    for (const int64_t column : columns_) found.push_back(all[static_cast<size_t>(row * shape_.n + column)]);
  }
  return c.peer.empty() ? CompareWithReference(found, c.format == kByBlock)
                        : CompareWithFloats(found, contender->BlockScaleType());
}

std::string BlockOperands::CompareWithReference(const std::vector<float>& found, bool by_groups) const {
  reference::Grouped sample = Sample(by_groups);
  reference::QuantizeActivations(&sample);
  const std::vector<uint8_t> expected = reference::Outputs(sample);
  const bool equal = std::memcmp(found.data(), expected.data(), expected.size()) == 0;
  return equal ? "" : "wrong outputs: they differ from the reference";
}

std::string BlockOperands::CompareWithFloats(const std::vector<float>& found, intact_type scale_type) const {
  const reference::Grouped sample = Sample(true);
  double largest = 0, magnitude = 0;
  std::vector<double> real(static_cast<size_t>(shape_.k));
  for (size_t i = 0; i < rows_.size(); ++i) {
    const float* const row = &a_[static_cast<size_t>(rows_[i] * shape_.k)];
    for (int64_t block = 0; block < blocks(); ++block) QuantizeByPeer(row, block, scale_type, real.data());
    for (size_t j = 0; j < columns_.size(); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < shape_.k; ++k) {
        const auto place = static_cast<size_t>(k);
        const double weight = Scale(columns_[j], k / format_.group) *
                              (sample.b[j * real.size() + place] - format_.DefaultZeroPoint());
        sum += real[place] * weight;
        magnitude += std::fabs(real[place] * weight);
      }
      const double error = std::fabs(static_cast<double>(found[i * columns_.size() + j]) - sum);
      if (std::isnan(error)) return "wrong outputs: not a number";
      largest = std::max(largest, error);
    }
  }
  magnitude /= static_cast<double>(found.size());
  if (largest <= kLargestError * magnitude) return "";
  return fmt::format(
      "wrong outputs: an error of {:.1e} of the mean sum of absolute products; expected at most {:.0e}",
      largest / magnitude, kLargestError);
}

double BlockOperands::Scale(int64_t n, int64_t block) const {
  return core::DecodeFloat(core::TraitsOf(INTACT_F16), scales_[static_cast<size_t>(n * blocks() + block)]);
}

/// The real numbers that the integers of a block represent, if a peer quantizes it by `127 / largest`, and
/// rounds the scale to `scale_type`.
void BlockOperands::QuantizeByPeer(const float* row, int64_t block, intact_type scale_type,
                                   double* real) const {
  const int64_t begin = block * format_.group, end = std::min(shape_.k, begin + format_.group);
  float largest = 0;
  for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float factor = 127.0f / largest;
  double scale = largest / 127.0f;
  const double unit = std::ldexp(1.0, std::ilogb(scale) - core::TraitsOf(scale_type).fraction);
  scale = std::nearbyint(scale / unit) * unit;
  for (int64_t k = begin; k < end; ++k)
    real[k] = scale * static_cast<double>(std::nearbyint(row[k] * factor));
}

/// The operation on the rows and columns that are checked.
reference::Grouped BlockOperands::Sample(bool by_groups) const {
  reference::Grouped sample;
  sample.m = std::ssize(rows_);
  sample.n = std::ssize(columns_);
  sample.k = shape_.k;
  static_cast<core::WeightFormat&>(sample) = format_;
  sample.SetGroupScales(by_groups);
  for (const int64_t row : rows_) {
    const auto* const begin = reinterpret_cast<const uint8_t*>(&a_[static_cast<size_t>(row * shape_.k)]);
    sample.a_source.insert(sample.a_source.end(), begin, begin + shape_.k * int64_t{sizeof(float)});
  }
  for (const int64_t column : columns_) {
    const uint8_t* const weights = &b_[static_cast<size_t>(column * format_.ColumnBytes(shape_.k))];
    for (int64_t k = 0; k < shape_.k; ++k) sample.b.push_back(static_cast<int16_t>(format_.Code(weights, k)));
    const auto* const begin =
        reinterpret_cast<const uint8_t*>(&scales_[static_cast<size_t>(column * blocks())]);
    sample.b_scales.insert(sample.b_scales.end(), begin, begin + blocks() * int64_t{sizeof(uint16_t)});
  }
  return sample;
}

}  // namespace intact::bench
