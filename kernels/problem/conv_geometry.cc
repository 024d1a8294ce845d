#include "kernels/problem/conv_geometry.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/result.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::string Got(const std::string& field, int64_t value) { return field + " is " + std::to_string(value); }

std::string Index(int i) { return std::string("[").append(std::to_string(i)).append("]"); }

Error CheckWithin(const std::string& field, int64_t value, int64_t least) {
  if (value >= least && value <= kMaxExtent) return {};
  return InvalidArgument(Got(field, value) + "; expected " + std::to_string(least) + " to 2147483647");
}

// Copies the values of the caller's dimensions, with `otherwise` in place of 0, and checks them.
Error Read(const char* field, const int64_t* values, int dims, int64_t least, int64_t otherwise,
           Spatial* spatial) {
  spatial->fill(otherwise);
  for (int i = 0; i < dims; ++i) {
    const int64_t value = values[i] == 0 ? otherwise : values[i];
    RETURN_IF_ERROR(CheckWithin(field + Index(i), value, least));
    (*spatial)[static_cast<size_t>(INTACT_MAX_SPATIAL - dims + i)] = value;
  }
  return {};
}

Error CheckChannels(const ConvGeometry& geometry) {
  for (const auto& [field, value] :
       {std::pair("input_channels", geometry.input_channels),
        std::pair("output_channels", geometry.output_channels), std::pair("groups", geometry.groups)}) {
    RETURN_IF_ERROR(CheckWithin(field, value, 1));
  }
  if (geometry.input_channels % geometry.groups == 0 && geometry.output_channels % geometry.groups == 0) {
    return {};
  }
  return InvalidArgument(Got("groups", geometry.groups) + "; expected a divisor of input_channels = " +
                         std::to_string(geometry.input_channels) +
                         " and output_channels = " + std::to_string(geometry.output_channels));
}

// The factors' product; if it exceeds `limit`, some value beyond `limit`. Factors are at least 1.
int64_t Product(std::initializer_list<int64_t> factors, int64_t limit) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor > limit / product) return limit + 1;
    product *= factor;
  }
  return product;
}

Error SetOutput(ConvGeometry* geometry) {
  for (size_t i = 0; i < INTACT_MAX_SPATIAL; ++i) {
    // Below 2⁶³: each factor is below 2³¹.
    const int64_t padded = geometry->input[i] + geometry->pad_begin[i] + geometry->pad_end[i];
    const int64_t span = geometry->dilation[i] * (geometry->kernel[i] - 1) + 1;
    if (span > padded) {
      const std::string index = Index(static_cast<int>(i) - (INTACT_MAX_SPATIAL - geometry->dims));
      std::string message = Got(std::string("kernel").append(index), geometry->kernel[i]);
      message.append(" and spans ").append(std::to_string(span));
      message.append(" pixels with its dilation; expected at most ").append(std::to_string(padded));
      return InvalidArgument(message.append(", the padded input").append(index));
    }
    geometry->output[i] = (padded - span) / geometry->stride[i] + 1;
    RETURN_IF_ERROR(CheckWithin("the output's extent", geometry->output[i], 1));
    if (geometry->output[i] == 1) geometry->stride[i] = 1;  // the stride is not used
  }
  return {};
}

Error SetTransposedOutput(ConvGeometry* geometry) {
  for (size_t i = 0; i < INTACT_MAX_SPATIAL; ++i) {
    const std::string index = Index(static_cast<int>(i) - (INTACT_MAX_SPATIAL - geometry->dims));
    const int64_t most = std::max(geometry->stride[i], geometry->dilation[i]) - 1;
    if (geometry->output_pad[i] > most) {
      return InvalidArgument(Got(std::string("output_pad").append(index), geometry->output_pad[i]) +
                             "; expected at most " + std::to_string(most) + ", less than stride or dilation");
    }
    // Below 2⁶³ here too.
    const int64_t whole = (geometry->input[i] - 1) * geometry->stride[i] +
                          geometry->dilation[i] * (geometry->kernel[i] - 1) + 1 + geometry->output_pad[i];
    const int64_t cropped = geometry->pad_begin[i] + geometry->pad_end[i];
    geometry->output[i] = whole - cropped;
    if (geometry->output[i] < 1) {
      return InvalidArgument(
          Got(std::string("pad_begin").append(index).append(" + pad_end").append(index), cropped) +
          "; expected less than " + std::to_string(whole) + ", the output before it is cropped");
    }
    RETURN_IF_ERROR(CheckWithin("the output's extent", geometry->output[i], 1));
  }
  return {};
}

Error CheckSizes(const ConvGeometry& geometry) {
  const Spatial& kernel = geometry.kernel;
  const int64_t depth = Product({kernel[0], kernel[1], kernel[2], geometry.group_inputs()}, kMaxExtent);
  if (depth > kMaxExtent) return InvalidArgument("kernel × input_channels/groups is beyond 2147483647");
  if (Product({depth, geometry.output_channels}, kMaxElements) > kMaxElements) {
    return InvalidArgument("there are more than 2^40 weights");
  }
  const auto elements = [](const Spatial& extents, int64_t channels) {
    return Product({extents[0], extents[1], extents[2], channels}, kMaxElements);
  };
  Spatial padded = geometry.is_transposed ? geometry.output : geometry.input;
  for (size_t i = 0; i < padded.size(); ++i) padded[i] += geometry.pad_begin[i] + geometry.pad_end[i];
  // A band of a depthwise convolution holds one copy of an input channel for each output channel that reads
  // it.
  for (const auto& [field, channels] : {std::pair("input_channels", geometry.input_channels),
                                        std::pair("output_channels", geometry.output_channels)}) {
    if (elements(padded, channels) <= kMaxElements) continue;
    const char* const what = geometry.is_transposed ? "the output before it is cropped" : "the padded input";
    return InvalidArgument(std::string(what) + " has more than 2^40 pixels × " + field);
  }
  if (elements(geometry.output, 1) > kMaxExtent)
    return InvalidArgument("the output has more than 2147483647 pixels");
  if (elements(geometry.output, geometry.output_channels) > kMaxElements) {
    return InvalidArgument("the output has more than 2^40 elements");
  }
  return {};
}

Error SetExtents(ConvGeometry* geometry) {
  Error error = geometry->is_transposed ? SetTransposedOutput(geometry) : SetOutput(geometry);
  return error.status == INTACT_OK ? CheckSizes(*geometry) : error;
}

}  // namespace

Result<ConvGeometry> CheckGeometry(const intact_conv_desc& desc) {
  if (desc.spatial_dims < 1 || desc.spatial_dims > INTACT_MAX_SPATIAL) {
    return InvalidArgument(Got("spatial_dims", desc.spatial_dims) + "; expected 1, 2 or 3");
  }
  if (desc.transposed != 0 && desc.transposed != 1) {
    return InvalidArgument(Got("transposed", desc.transposed) + "; expected 0 or 1");
  }
  const int dims = desc.spatial_dims;
  ConvGeometry geometry;
  geometry.dims = dims;
  geometry.is_transposed = desc.transposed == 1;
  geometry.input_channels = desc.input_channels;
  geometry.output_channels = desc.output_channels;
  geometry.groups = desc.groups == 0 ? 1 : desc.groups;
  Error error = CheckChannels(geometry);
  const auto read = [&](const char* field, const int64_t* values, int64_t least, int64_t otherwise,
                        Spatial* to) {
    if (error.status == INTACT_OK) error = Read(field, values, dims, least, otherwise, to);
  };
  read("kernel", desc.kernel, 1, 1, &geometry.kernel);
  read("stride", desc.stride, 1, 1, &geometry.stride);
  read("dilation", desc.dilation, 1, 1, &geometry.dilation);
  read("pad_begin", desc.pad_begin, 0, 0, &geometry.pad_begin);
  read("pad_end", desc.pad_end, 0, 0, &geometry.pad_end);
  read("output_pad", desc.output_pad, 0, 0, &geometry.output_pad);
  for (int i = 0; error.status == INTACT_OK && i < dims && !geometry.is_transposed; ++i) {
    if (desc.output_pad[i] == 0) continue;
    error =
        Unexpected("output_pad" + Index(i), desc.output_pad[i], "0: only a transposed convolution has one");
  }
  geometry.input.fill(1);
  for (int i = 0; error.status == INTACT_OK && i < dims; ++i) {
    geometry.input[geometry.Place(i)] = desc.input[i];
    geometry.is_open[geometry.Place(i)] = desc.input[i] == INTACT_ANY_EXTENT;
    if (desc.input[i] != INTACT_ANY_EXTENT) error = CheckWithin("input" + Index(i), desc.input[i], 1);
  }
  if (error.status != INTACT_OK) return error;
  if (!geometry.IsOpen()) {
    RETURN_IF_ERROR(SetExtents(&geometry));
    return geometry;
  }
  ASSIGN_OR_RETURN(const ConvGeometry sized, TypicallySized(geometry));
  geometry.output = sized.output;
  for (size_t i = 0; i < geometry.output.size(); ++i) {
    if (geometry.is_open[i]) geometry.output[i] = INTACT_ANY_EXTENT;
  }
  return geometry;
}

intact_conv_desc DescOf(const ConvGeometry& geometry) {
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.spatial_dims = geometry.dims;
  desc.transposed = geometry.is_transposed ? 1 : 0;
  desc.input_channels = geometry.input_channels;
  desc.output_channels = geometry.output_channels;
  desc.groups = geometry.groups;
  for (int i = 0; i < geometry.dims; ++i) {
    const size_t place = geometry.Place(i);
    desc.input[i] = geometry.input[place];
    desc.kernel[i] = geometry.kernel[place];
    desc.stride[i] = geometry.stride[place];
    // In dimensions of one output the caller's stride is not kept. The smallest stride that leads beyond the
    // input is equivalent.
    const int64_t padded = geometry.input[place] + geometry.pad_begin[place] + geometry.pad_end[place];
    const int64_t beyond = padded - geometry.Span(static_cast<Dimension>(place), 1) + 1;
    if (!geometry.is_transposed && geometry.output[place] == 1)
      desc.stride[i] = std::max(beyond, desc.stride[i]);
    desc.dilation[i] = geometry.dilation[place];
    desc.pad_begin[i] = geometry.pad_begin[place];
    desc.pad_end[i] = geometry.pad_end[place];
    desc.output_pad[i] = geometry.output_pad[place];
  }
  return desc;
}

Result<ConvGeometry> Sized(const ConvGeometry& geometry, const int64_t* given) {
  ConvGeometry sized = geometry;
  for (int i = 0; i < geometry.dims; ++i) {
    const size_t place = geometry.Place(i);
    if (geometry.is_open[place]) {
      RETURN_IF_ERROR(CheckWithin("input" + Index(i), given[i], 1));
      sized.input[place] = given[i];
    } else if (given[i] != 0 && given[i] != geometry.input[place]) {
      return Unexpected("input" + Index(i), given[i],
                        "the descriptor's " + std::to_string(geometry.input[place]));
    }
  }
  if (!geometry.IsOpen()) return sized;
  RETURN_IF_ERROR(SetExtents(&sized));
  return sized;
}

Result<ConvGeometry> TypicallySized(const ConvGeometry& geometry) {
  if (!geometry.IsOpen()) return geometry;
  const auto sized_for = [&](int64_t outputs) -> Result<ConvGeometry> {
    ConvGeometry sized = geometry;
    for (size_t i = 0; i < sized.input.size(); ++i) {
      if (!geometry.is_open[i]) continue;
      const int64_t padding = geometry.pad_begin[i] + geometry.pad_end[i];
      // A transposed convolution gets at least one output for each phase.
      const int64_t least =
          geometry.is_transposed
              ? CeilDivide(std::max(outputs, geometry.stride[i]) + padding, geometry.stride[i]) + 1
              : geometry.Span(static_cast<Dimension>(i), outputs) - padding;
      sized.input[i] = std::max<int64_t>(least, 1);
    }
    RETURN_IF_ERROR(SetExtents(&sized));
    // Other sizes have more outputs and use the stride; its exact value does not affect choices.
    for (size_t i = 0; i < sized.stride.size() && !geometry.is_transposed; ++i) {
      if (geometry.is_open[i] && sized.output[i] == 1) {
        sized.stride[i] = std::min<int64_t>(geometry.stride[i], 2);
      }
    }
    return sized;
  };
  constexpr int64_t kTypical = 56;
  Result<ConvGeometry> sized = sized_for(kTypical);
  return sized ? sized : sized_for(1);
}

}  // namespace intact::kernels
