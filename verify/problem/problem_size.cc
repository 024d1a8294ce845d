#include "verify/problem/problem_size.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>
#include <string_view>

#include "verify/problem/line.h"

namespace intact::verify {
namespace {

using reference::ConvGeometry;

constexpr int64_t kMaxElements = int64_t{1} << 28;      // elements of one tensor
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 40;  // minutes of scalar reference
constexpr int64_t kMaxBytes = int64_t{1} << 33;         // bytes of all tensors

// Bytes per element of a tensor, per row or column, and per group.
constexpr int64_t kElementBytes = 32;
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kGroupBytes = 2048;
constexpr int64_t kFixedBytes = int64_t{1} << 16;

constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

// The product or the sum, saturated at the largest int64.
int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kHighest;
  }
  return product;
}
int64_t Sum(std::initializer_list<int64_t> terms) {
  int64_t sum = 0;
  for (const int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return kHighest;
  }
  return sum;
}

struct Tensor {
  std::string_view name;
  int64_t elements;
};

std::optional<Error> CheckTensors(std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.elements <= kMaxElements) continue;
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{} has {} elements; at most {} can be verified",
                                                      tensor.name, tensor.elements, kMaxElements)};
  }
  return std::nullopt;
}

std::optional<Error> CheckWork(std::string_view name, int64_t work) {
  if (work <= kMaxMultiplyAdds) return std::nullopt;
  return Error{INTACT_INVALID_ARGUMENT,
               fmt::format("{} is {}; at most {} can be verified", name, work, kMaxMultiplyAdds)};
}

std::optional<Error> CheckGemmSizes(const Problem& p) {
  const auto items = [&p](int64_t rows, int64_t stride) {
    return Product({p.batch, Product({rows, stride}) + p.item_pad});
  };
  const int64_t b_rows = p.b_by_columns ? p.n : p.k;
  std::optional<Error> error =
      CheckTensors({{"A", p.a_by_columns ? items(p.k, p.m + p.a_pad) : items(p.m, p.k + p.a_pad)},
                    {"B", Product({p.runtime_b ? p.batch : 1, b_rows, p.n + p.k - b_rows + p.b_pad})},
                    {"C", items(p.m, p.n + p.c_pad)},
                    {"the residual", items(p.m, p.n + p.res_pad)}});
  if (error) return error;
  return CheckWork(p.batch == 1 ? "m·n·k" : "batch·m·n·k", Product({p.batch, p.m, p.n, p.k}));
}

std::optional<Error> CheckGroupedSizes(const Problem& p) {
  const int64_t experts = p.grouped->experts;
  if (experts * p.n * p.k > kMaxDimension) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("experts·n·k is beyond {}: experts={} n={} k={}",
                                                      kMaxDimension, experts, p.n, p.k)};
  }
  if (p.m * p.k <= kMaxDimension && p.m * p.n <= kMaxDimension) return std::nullopt;
  return Error{INTACT_INVALID_ARGUMENT,
               fmt::format("m·k or m·n is beyond {}: m={} n={} k={}", kMaxDimension, p.m, p.n, p.k)};
}

// Numbers of elements.
struct ConvSizes {
  int64_t inputs, outputs;  // pixels
  int64_t filter;
  int64_t lowered;  // the input under all taps
};
ConvSizes SizesOf(const ConvGeometry& g) {
  const auto& [d, h, w] = g.axes;
  const int64_t outputs = Product({g.batch, d.Output(), h.Output(), w.Output()});
  return {Product({g.batch, d.input, h.input, w.input}), outputs,
          Product({d.kernel, h.kernel, w.kernel, g.GroupInputs(), g.output_channels}),
          Product({outputs, d.kernel, h.kernel, w.kernel, g.groups, g.TapDepth()})};
}

}  // namespace

std::optional<Error> CheckSizes(const ConvGeometry& geometry, int64_t a_pad, int64_t c_pad) {
  const ConvSizes sizes = SizesOf(geometry);
  std::optional<Error> error =
      CheckTensors({{"the input", Product({sizes.inputs, geometry.input_channels + a_pad})},
                    {"the output", Product({sizes.outputs, geometry.output_channels + c_pad})},
                    {"the filter", sizes.filter},
                    {"the input under all taps", sizes.lowered}});
  if (error) return error;
  return CheckWork("the number of products", Product({sizes.lowered, geometry.GroupOutputs()}));
}

std::optional<Error> CheckSizes(const Problem& problem) {
  if (problem.grouped) return CheckGroupedSizes(problem);
  std::optional<Error> error =
      problem.conv ? CheckSizes(*problem.conv, problem.a_pad, problem.c_pad) : CheckGemmSizes(problem);
  if (error) return error;
  const int64_t bytes = MemoryOf(problem);
  if (bytes <= kMaxBytes) return std::nullopt;
  return Error{INTACT_INVALID_ARGUMENT,
               fmt::format("its tensors may take {} bytes; at most {} can be verified", bytes, kMaxBytes)};
}

int64_t MemoryOf(const Problem& problem) {
  int64_t elements = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t groups = 1;
  if (const auto& grouped = problem.grouped) {
    rows = problem.m;
    columns = Product({grouped->experts, problem.n});
    elements = Sum({Product({rows, problem.k}), Product({rows, problem.n}), Product({columns, problem.k})});
    groups = Product({columns, grouped->Groups(problem.k)});
  } else if (problem.conv) {
    const ConvGeometry& g = *problem.conv;
    const ConvSizes sizes = SizesOf(g);
    elements = Sum({Product({sizes.inputs, g.input_channels}), Product({sizes.outputs, g.output_channels}),
                    sizes.filter, sizes.lowered});
    rows = Product({sizes.outputs, g.groups});
    columns = g.output_channels;
    groups = g.groups;
  } else {
    rows = Product({problem.batch, problem.m});
    columns = Product({problem.runtime_b ? problem.batch : 1, problem.n});
    elements = Sum({Product({rows, problem.k}), Product({rows, problem.n}), Product({columns, problem.k})});
  }
  return Sum({Product({elements, kElementBytes}), Product({rows, kVectorBytes}),
              Product({columns, kVectorBytes}), Product({groups, kGroupBytes}), kFixedBytes});
}

std::array<int64_t, 3> GemmSizesOf(const Problem& problem) {
  if (!problem.conv) return {problem.m, problem.n, problem.k};
  return {problem.conv->OutputPixels(), problem.conv->GroupOutputs(),
          problem.conv->Taps() * problem.conv->GroupInputs()};
}

}  // namespace intact::verify
