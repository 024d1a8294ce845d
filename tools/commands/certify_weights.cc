#include "tools/commands/certify_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "support/counted.h"
#include "support/npy.h"

namespace intact::tools {
namespace {

constexpr std::array kOrders = {Order::kInputsLast, Order::kInputsSecond, Order::kOutputsLast};
constexpr std::array<size_t, 3> kDimensions = {4, 3, 5};  // of convolutions; the most common number first
constexpr int64_t kLargestKernel = 15;                    // a larger extent is probably a number of channels

Error Invalid(std::string message) { return {INTACT_INVALID_ARGUMENT, std::move(message)}; }

/// The meaning of the dimensions of a file.
struct Dimensions {
  size_t outputs, inputs;
  std::vector<size_t> kernel;

  bool operator==(const Dimensions&) const = default;
};

Dimensions DimensionsOf(Order order, size_t count) {
  const size_t first_of_kernel = order == Order::kInputsLast ? 1 : order == Order::kInputsSecond ? 2 : 0;
  Dimensions dimensions = {order == Order::kOutputsLast ? count - 1 : 0,
                           order == Order::kInputsLast     ? count - 1
                           : order == Order::kInputsSecond ? 1
                                                           : count - 2,
                           std::vector<size_t>(count - 2)};
  std::iota(dimensions.kernel.begin(), dimensions.kernel.end(), first_of_kernel);
  return dimensions;
}

std::vector<int64_t> KernelOf(const std::vector<int64_t>& shape, const Dimensions& dimensions) {
  std::vector<int64_t> kernel;
  for (const size_t i : dimensions.kernel) kernel.push_back(shape[i]);
  return kernel;
}

/// Whether extents look like those of most kernels: small, and equal in all dimensions.
bool LooksLikeAKernel(const std::vector<int64_t>& extents) {
  return std::ranges::adjacent_find(extents, std::not_equal_to()) == extents.end() &&
         extents.front() <= kLargestKernel;
}

/// Whether a file has the same weights in two orders: dimensions of one element may be anywhere.
bool MakeTheSame(const std::vector<int64_t>& shape, const Dimensions& a, const Dimensions& b) {
  const auto places = [&shape](const Dimensions& dimensions) {
    std::vector<size_t> of_each = dimensions.kernel;
    of_each.insert(of_each.begin(), dimensions.outputs);
    of_each.push_back(dimensions.inputs);
    for (size_t& i : of_each) i = shape[i] == 1 ? shape.size() : i;
    return of_each;
  };
  return places(a) == places(b);
}

/// A warning with the other orders that the shape of a convolution's weights fits; "" if there are none.
std::string WarningOf(const std::vector<int64_t>& shape, Order order) {
  const Dimensions assumed = DimensionsOf(order, shape.size());
  std::vector<std::string> others;
  for (const Order other : kOrders) {
    const Dimensions dimensions = DimensionsOf(other, shape.size());
    if (MakeTheSame(shape, assumed, dimensions) || !LooksLikeAKernel(KernelOf(shape, dimensions))) continue;
    others.push_back(NameOf(other, shape.size(), true));
  }
  if (others.empty()) return {};
  return fmt::format("the shape {} {} {}, and is read as {}; --layout names the order",
                     support::ShapeString(shape),
                     LooksLikeAKernel(KernelOf(shape, assumed)) ? "also fits" : "looks like",
                     fmt::join(others, " or "), NameOf(order, shape.size(), true));
}

/// Whether a convolution's weights look like those of TensorFlow Lite's DepthwiseConv2D: one output channel,
/// and more than one tap and input channel.
bool LooksDepthwise(const std::vector<int64_t>& shape, Order order) {
  return order == Order::kInputsLast && shape.size() == 4 && shape[0] == 1 && shape[1] * shape[2] > 1 &&
         shape[3] > 1;
}

/// Reorders values to: output channels, taps, input channels.
std::vector<uint8_t> InputsLast(std::vector<uint8_t> values, Order order, int64_t outputs, int64_t inputs) {
  if (order == Order::kInputsLast) return values;
  const auto o_count = static_cast<size_t>(outputs), i_count = static_cast<size_t>(inputs);
  const size_t taps = values.size() / (o_count * i_count);
  std::vector<uint8_t> ordered;
  ordered.reserve(values.size());
  for (size_t o = 0; o < o_count; ++o) {
    for (size_t tap = 0; tap < taps; ++tap) {
      for (size_t i = 0; i < i_count; ++i) {
        ordered.push_back(values[order == Order::kInputsSecond ? (o * i_count + i) * taps + tap
                                                               : (tap * i_count + i) * o_count + o]);
      }
    }
  }
  return ordered;
}

std::string_view KindInWords(bool is_conv) { return is_conv ? "convolutions" : "linear layers"; }

/// The order with this name, for any number of dimensions.
std::optional<Order> FindOrder(std::string_view name, bool is_conv) {
  for (const Order order : kOrders) {
    for (const size_t dimensions : kDimensions) {
      if (NameOf(order, dimensions, is_conv) == name) return order;
    }
  }
  return std::nullopt;
}

/// The zero points of `n` output channels.
Result<std::vector<int32_t>> ReadZeroPoints(const std::string& text, intact_type type, int64_t n,
                                            const std::string& file) {
  std::vector<int32_t> zero_points(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), zero_points[0]);
  if (error != std::errc() || end != text.data() + text.size()) {
    const Result<support::NpyArray> read = support::ReadNpy(text);
    if (!read) {
      std::error_code ignored;
      return Error{
          read.error().status,
          fmt::format("--zero-point: {}{}", read.error().message,
                      std::filesystem::exists(text, ignored) ? "" : "; expected an integer or a .npy file")};
    }
    const support::NpyArray& npy = *read;
    const auto bytes = static_cast<size_t>(core::BytesOf(npy.type));
    if ((!core::IsInt8(npy.type) && npy.type != INTACT_S32) || npy.shape.size() > 1) {
      return Invalid(fmt::format("--zero-point: {}: is {} {}; expected u1, i1 or i4, one value or {}", text,
                                 core::TraitsOf(npy.type).npy, support::ShapeString(npy.shape), n));
    }
    zero_points.clear();
    for (size_t i = 0; i < npy.bytes.size(); i += bytes) {
      zero_points.push_back(static_cast<int32_t>(core::Decode(npy.type, &npy.bytes[i])));
    }
  }
  if (zero_points.size() != 1 && std::ssize(zero_points) != n) {
    return Invalid(fmt::format("--zero-point: {} has {}; expected 1, or {}, the output channels of {}", text,
                               support::Counted(zero_points.size(), "value"), n, file));
  }
  for (const int32_t value : zero_points) {
    if (value >= core::LowestOf(type) && value <= core::HighestOf(type)) continue;
    return Invalid(fmt::format("--zero-point: {} is beyond the {} weights of {}; expected {} to {}", value,
                               core::NameOf(type), file, core::LowestOf(type), core::HighestOf(type)));
  }
  return zero_points;
}

}  // namespace

std::string NameOf(Order order, size_t dimensions, bool is_conv) {
  if (!is_conv) return order == Order::kOutputsLast ? "kn" : "nk";
  const std::string_view kernel = std::string_view("dhw").substr(2 + INTACT_MAX_SPATIAL - dimensions);
  switch (order) {
    case Order::kInputsLast:
      return fmt::format("o{}i", kernel);
    case Order::kInputsSecond:
      return fmt::format("oi{}", kernel);
    case Order::kOutputsLast:
      return fmt::format("{}io", kernel);
  }
  return {};
}

std::vector<std::string> OrderNames() {
  std::vector<std::string> names = {"nk", "kn"};
  for (const size_t dimensions : kDimensions) {
    for (const Order order : kOrders) names.push_back(NameOf(order, dimensions, true));
  }
  return names;
}

std::optional<Error> WeightChoice::WhyNot() const {
  for (const bool is_conv : {false, true}) {
    const auto of_kind = [&](const std::string& name) { return FindOrder(name, is_conv).has_value(); };
    const auto first = std::ranges::find_if(layouts, of_kind);
    if (first == layouts.end()) continue;
    const auto second = std::find_if(
        first + 1, layouts.end(), [&](const std::string& name) { return of_kind(name) && name != *first; });
    if (second == layouts.end()) continue;
    return Invalid(fmt::format("--layout: {} and {} are both for {}; expected one", *first, *second,
                               KindInWords(is_conv)));
  }
  return std::nullopt;
}

Result<std::optional<Order>> WeightChoice::OrderOf(bool is_conv) const {
  for (const std::string& name : layouts) {
    if (const std::optional<Order> order = FindOrder(name, is_conv)) return order;
  }
  if (layouts.empty()) return std::optional<Order>();
  return Invalid(fmt::format("has weights of {}, but --layout {} has no order for them; expected {} too",
                             KindInWords(is_conv), fmt::join(layouts, ","),
                             is_conv ? "ohwi, oihw or hwio" : "nk or kn"));
}

std::string Weights::Depths() const {
  if (!conv) return support::Counted(k, "depth");
  return fmt::format("{} taps × {}{}", fmt::join(Kernel(), "×"),
                     support::Counted(conv->GroupInputs(), "channel"),
                     conv->groups == 1 ? "" : fmt::format(" of {} groups", conv->groups));
}

std::vector<int64_t> Weights::Kernel() const {
  std::vector<int64_t> kernel;
  for (const reference::Axis& axis : std::span(conv->axes).last(static_cast<size_t>(conv->dims))) {
    kernel.push_back(axis.kernel);
  }
  return kernel;
}

Result<Weights> ReadWeights(const std::string& file, const WeightChoice& choice) {
  ASSIGN_OR_RETURN(support::NpyArray npy, support::ReadNpy(file));
  const auto invalid = [&](const std::string& what) { return Invalid(fmt::format("{}: {}", file, what)); };
  const size_t dimensions = npy.shape.size();
  if (!core::IsInt8(npy.type)) return invalid("elements are not int8 or uint8");
  if (dimensions < 2) {
    return invalid(
        fmt::format("shape is {}; expected (columns, depth) or (output channels, kernel…, channels)",
                    support::ShapeString(npy.shape)));
  }
  if (dimensions > 2 + INTACT_MAX_SPATIAL) {
    return invalid(fmt::format("shape is {}; expected a kernel of at most {} dimensions",
                               support::ShapeString(npy.shape), INTACT_MAX_SPATIAL));
  }
  const bool is_conv = choice.op.empty() ? dimensions > 2 : choice.op == "conv";
  if (!is_conv && choice.groups != 1) {
    return Invalid(
        fmt::format("--groups is {}; expected 1 for the weights of a linear layer", choice.groups));
  }
  const Result<std::optional<Order>> wanted = choice.OrderOf(is_conv);
  if (!wanted) return invalid(wanted.error().message);
  const Order order = wanted->value_or(Order::kInputsLast);
  const Dimensions places = DimensionsOf(order, dimensions);
  Weights weights;
  weights.shape = npy.shape;
  weights.order = NameOf(order, dimensions, is_conv);
  if (is_conv && LooksDepthwise(npy.shape, order)) {
    weights.warning =
        fmt::format("the shape {} looks like a depthwise kernel; expected (C, KH, KW, 1) and --groups C",
                    support::ShapeString(npy.shape));
  } else if (is_conv && dimensions > 2 && !*wanted) {
    weights.warning = WarningOf(npy.shape, order);
  }
  weights.type = npy.type;
  weights.n = npy.shape[places.outputs];
  if (weights.n % choice.groups != 0) {
    return Invalid(fmt::format("--groups is {}; expected a divisor of the {} output channels of {}",
                               choice.groups, weights.n, file));
  }
  if (is_conv) {
    reference::ConvGeometry& conv = weights.conv.emplace();
    std::vector<int64_t> kernel = KernelOf(npy.shape, places);
    if (kernel.empty()) kernel.push_back(1);
    conv.dims = static_cast<int>(kernel.size());
    for (size_t i = 0; i < kernel.size(); ++i)
      conv.axes[conv.axes.size() - kernel.size() + i].kernel = kernel[i];
    conv.input_channels = npy.shape[places.inputs] * choice.groups;
    conv.output_channels = weights.n;
    conv.groups = choice.groups;
  }
  if (!choice.zero_points.empty()) {
    ASSIGN_OR_RETURN(weights.zero_points, ReadZeroPoints(choice.zero_points, npy.type, weights.n, file));
  }
  weights.k = std::ssize(npy.bytes) / weights.n;
  const int64_t inputs = is_conv ? npy.shape[places.inputs] : weights.k;
  weights.values = InputsLast(std::move(npy.bytes), order, weights.n, inputs);
  return weights;
}

}  // namespace intact::tools
