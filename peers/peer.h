// Code that the peers share. A peer is a plug-in (include/intact/target.h) around another library, one file
// and one shared object. It is built if the library is found when intact is configured. `intact verify sweep
// --target NAME[:options]` runs it.
//
// A peer translates intact's problem to its library's terms; the head of its file lists the translations. It
// throws Unsupported for a problem that the library cannot compute, and adds no computation itself. So every
// finding is about the library.
#ifndef INTACT_PEERS_PEER_H_
#define INTACT_PEERS_PEER_H_

#include <intact/target.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"

namespace intact::peers {

/// Thrown for a problem that the library does not run.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void SetMessage(std::string_view text, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const size_t length = std::min<size_t>(text.size(), INTACT_TARGET_MESSAGE_BYTES - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

/// Calls `run`, and turns its exceptions into statuses and messages.
template <class Function>
intact_status Answer(char message[INTACT_TARGET_MESSAGE_BYTES], const Function& run) {
  try {
    run();
    return INTACT_OK;
  } catch (const Unsupported& error) {
    SetMessage(error.what(), message);
    return INTACT_UNSUPPORTED;
  } catch (const std::bad_alloc&) {
    return INTACT_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    SetMessage(error.what(), message);
    return INTACT_INVALID_ARGUMENT;
  }
}

/// Calls `open`, which returns a target. Returns nullptr with a message if it throws.
template <class Function>
const intact_target* Opened(uint32_t abi, char message[INTACT_TARGET_MESSAGE_BYTES], const Function& open) {
  try {
    if (abi != INTACT_TARGET_ABI) throw std::runtime_error("made for another version of intact/target.h");
    return open();
  } catch (const std::exception& error) {
    SetMessage(error.what(), message);
    return nullptr;
  }
}

/// The bits of `features`, for intact_target::supports.
template <class... Features>
constexpr uint64_t Supports(Features... features) {
  return (INTACT_TARGET_BIT(features) | ...);
}

/// Options as users write them: "isa=avx2,engine=onednn".
class Options {
 public:
  explicit Options(std::string_view text) {
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      const size_t equals = word.find('=');
      if (equals == std::string_view::npos)
        throw std::runtime_error("'" + std::string(word) + "' is no option; expected KEY=VALUE");
      values_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
  }

  /// The value that the user gave to `key`, if any, and its meaning. `choices`: the allowed values and their
  /// meanings. Throws if the value is not in `choices`.
  template <class Meaning, size_t count>
  std::optional<std::pair<std::string, Meaning>> Take(
      std::string_view key, const std::array<std::pair<std::string_view, Meaning>, count>& choices) {
    const auto found = std::ranges::find(values_, key, &std::pair<std::string, std::string>::first);
    if (found == values_.end()) return std::nullopt;
    const std::string value = found->second;
    values_.erase(found);
    std::string known;
    for (const auto& [name, meaning] : choices) {
      if (name == value) return std::pair(value, meaning);
      known.append(" ").append(name);
    }
    throw std::runtime_error(std::string(key) + ": '" + value + "' is unknown; expected one of" + known);
  }

  /// Throws if an option was not taken.
  void End() const {
    if (!values_.empty()) throw std::runtime_error("unknown option '" + values_.front().first + "'");
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

inline int64_t BytesOf(int32_t type) { return core::BytesOf(static_cast<intact_type>(type)); }

/// `pointer` + `elements` elements of `type`.
inline const void* Advance(const void* pointer, int64_t elements, int32_t type) {
  return static_cast<const uint8_t*>(pointer) + elements * BytesOf(type);
}
inline void* Advance(void* pointer, int64_t elements, int32_t type) {
  return static_cast<uint8_t*>(pointer) + elements * BytesOf(type);
}

/// One product of a run: C = A·B with m rows. Strides that the arguments leave to a default are filled in.
struct Product {
  int64_t m, n, k;
  const void* a;
  int64_t a_stride;
  const void* b;
  int64_t b_stride_k, b_stride_n;
  void* c;
  int64_t c_stride;
  const void* residual;
  int64_t residual_stride;
  std::vector<float> scales;           // 1 or n elements, or empty
  std::vector<int32_t> b_zero_points;  // 1 or n elements, or empty
};

/// The products of a run, one for each item.
inline std::vector<Product> ProductsOf(const intact_gemm_desc& desc, const intact_linear_desc& linear,
                                       const void* b, const intact_gemm_args& args) {
  const auto or_default = [](int64_t stride, int64_t otherwise) { return stride != 0 ? stride : otherwise; };
  Product first = {.m = args.m,
                   .n = desc.n,
                   .k = desc.k,
                   .a = args.a,
                   .a_stride = or_default(args.a_stride, desc.k),
                   .b = desc.runtime_b != 0 ? args.b : b,
                   .b_stride_k = or_default(desc.b_stride_k, desc.n),
                   .b_stride_n = or_default(desc.b_stride_n, 1),
                   .c = args.c,
                   .c_stride = or_default(args.c_stride, desc.n),
                   .residual = args.residual,
                   .residual_stride = or_default(args.residual_stride, desc.n),
                   .scales = {linear.scales, linear.scales + linear.scale_count},
                   .b_zero_points = {linear.b_zero_points, linear.b_zero_points + linear.b_zero_point_count}};
  const int64_t a_batch_stride = or_default(args.a_batch_stride, args.m * first.a_stride);
  const int64_t c_batch_stride = or_default(args.c_batch_stride, args.m * first.c_stride);
  const int64_t residual_batch_stride =
      or_default(args.residual_batch_stride, args.m * first.residual_stride);
  const int64_t b_batch_stride = or_default(args.b_batch_stride, desc.n * desc.k);
  std::vector<Product> products;
  for (int64_t i = 0; i < args.batch; ++i) {
    Product item = first;
    item.a = args.a_items != nullptr ? args.a_items[i] : Advance(args.a, i * a_batch_stride, linear.a_type);
    item.c = args.c_items != nullptr ? args.c_items[i] : Advance(args.c, i * c_batch_stride, linear.c_type);
    if (args.residual_items != nullptr) {
      item.residual = args.residual_items[i];
    } else if (args.residual != nullptr) {
      item.residual = Advance(args.residual, i * residual_batch_stride, linear.residual_type);
    }
    if (args.b_items != nullptr) {
      item.b = args.b_items[i];
    } else if (desc.runtime_b != 0) {
      item.b = Advance(args.b, i * b_batch_stride, linear.b_type);
    }
    // One value for each item: peers do not support INTACT_TARGET_ITEM_COLUMNS.
    if (args.b_scales != nullptr) item.scales = {args.b_scales[i]};
    if (args.b_zero_points != nullptr) item.b_zero_points = {args.b_zero_points[i]};
    products.push_back(std::move(item));
  }
  return products;
}

/// A value for each spatial dimension, outermost first.
using Spatial = std::vector<int64_t>;

/// A convolution of a run. Values that the arguments leave to a default are filled in.
struct Convolution {
  bool transposed;
  int64_t batch, input_channels, output_channels, groups;
  Spatial input, output, kernel, stride, dilation, pad_begin, pad_end, output_pad;
  int64_t a_stride, c_stride, residual_stride;  // elements between pixels

  int64_t OutputPixels() const {
    int64_t pixels = batch;
    for (const int64_t extent : output) pixels *= extent;
    return pixels;
  }
};

inline Convolution ConvolutionOf(const intact_conv_desc& desc, const intact_conv_args& args) {
  const auto spatial = [&desc](const int64_t* values, int64_t least) {
    Spatial result(values, values + desc.spatial_dims);
    for (int64_t& value : result) value = std::max(value, least);
    return result;
  };
  Convolution conv = {.transposed = desc.transposed != 0,
                      .batch = args.batch,
                      .input_channels = desc.input_channels,
                      .output_channels = desc.output_channels,
                      .groups = std::max<int64_t>(desc.groups, 1),
                      .input = spatial(desc.input, 1),
                      .output = {},
                      .kernel = spatial(desc.kernel, 1),
                      .stride = spatial(desc.stride, 1),
                      .dilation = spatial(desc.dilation, 1),
                      .pad_begin = spatial(desc.pad_begin, 0),
                      .pad_end = spatial(desc.pad_end, 0),
                      .output_pad = spatial(desc.output_pad, 0),
                      .a_stride = std::max(args.a_stride, desc.input_channels),
                      .c_stride = std::max(args.c_stride, desc.output_channels),
                      .residual_stride = std::max(args.residual_stride, desc.output_channels)};
  for (size_t i = 0; i < conv.input.size(); ++i) {
    const int64_t reach = conv.dilation[i] * (conv.kernel[i] - 1) + 1;
    const int64_t pad = conv.pad_begin[i] + conv.pad_end[i];
    conv.output.push_back(conv.transposed
                              ? (conv.input[i] - 1) * conv.stride[i] - pad + reach + conv.output_pad[i]
                              : (conv.input[i] + pad - reach) / conv.stride[i] + 1);
  }
  return conv;
}

}  // namespace intact::peers
#endif  // INTACT_PEERS_PEER_H_
