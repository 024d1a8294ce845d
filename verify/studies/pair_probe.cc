#include "verify/studies/pair_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>
#include <tuple>

#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "support/counted.h"
#include "support/printable.h"
#include "verify/problem/element.h"
#include "verify/problem/problem.h"
#include "verify/targets/features.h"
#include "verify/targets/fit.h"

namespace intact::verify {
namespace {

using DepthPair = std::pair<int64_t, int64_t>;

constexpr int32_t kLargestActivation = 255, kLargestWeight = 127;  // as the instruction sees them
constexpr int64_t kProductDepths = 24;
constexpr double kLargestOutput = 100;  // for outputs that have scales: within u8 and s8
constexpr size_t kPairsListed = 4;

// An operator to probe. A convolution has one line of output.
struct Operator {
  std::string_view name;
  int64_t rows = 0;      // a GEMM's rows; 0: a convolution
  int64_t channels = 0;  // a group's input channels
  int64_t groups = 1;    // 0: depthwise
  // Depthwise: the outputs of each group. Other convolutions have an output for each pair, rounded up to a
  // multiple of this number.
  int64_t outputs = 0;
  // 8 of the 9 taps are outside the input, and the zero point is the largest activation.
  bool is_all_padding = false;
  int64_t kernel_height = 3, kernel_width = 3;
  int64_t columns = 1;  // of the output. Some engines take other kernels for wide outputs

  int64_t Taps() const { return kernel_height * kernel_width; }
};
constexpr int64_t kWide = 8;
constexpr int64_t kMultipleOfMany = 16;  // some kernels need output channels in multiples
constexpr std::array kOperators = {
    Operator{"product, 1 row", 1},
    Operator{"product, 5 rows", 5},
    Operator{"convolution 3x3, 1 channel", 0, 1},
    Operator{"convolution 3x3, 3 channels", 0, 3},
    Operator{"convolution 3x3, 4 channels", 0, 4},
    Operator{"convolution 3x3, 2 groups of 3 channels", 0, 3, 2},
    Operator{"convolution 3x3, 2 groups of 2 channels", 0, 2, 2},
    Operator{"convolution 3x3, 2 groups of 4 channels", 0, 4, 2, kMultipleOfMany},
    Operator{"depthwise 3x3", 0, 1, 0, 1},
    Operator{"depthwise 3x3, 2 outputs for each channel", 0, 1, 0, 2},
    Operator{"padding, convolution 3x3, 4 channels", 0, 4, 1, 0, true},
    Operator{"convolution 5x5, 1 channel", 0, 1, 1, 0, false, 5, 5},
    Operator{"convolution 1x4, 1 channel", 0, 1, 1, 0, false, 1, 4},
    Operator{"convolution 3x3, 1 channel, wide", 0, 1, 1, 0, false, 3, 3, kWide},
    Operator{"convolution 5x5, 1 channel, wide", 0, 1, 1, 0, false, 5, 5, kWide},
    Operator{"convolution 1x4, 1 channel, wide", 0, 1, 1, 0, false, 1, 4, kWide},
    Operator{"convolution 3x3, 3 channels, wide", 0, 3, 1, 0, false, 3, 3, kWide},
    Operator{"depthwise 3x3, wide", 0, 1, 0, 1, false, 3, 3, kWide},
    Operator{"depthwise 3x3, 2 outputs for each channel, wide", 0, 1, 0, 2, false, 3, 3, kWide},
};
constexpr int64_t kCentre = 4;  // of 3×3 taps

constexpr int64_t RoundedUp(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

std::vector<DepthPair> AllPairs(int64_t depths) {
  std::vector<DepthPair> pairs;
  for (int64_t i = 0; i < depths; ++i) {
    for (int64_t j = i + 1; j < depths; ++j) pairs.emplace_back(i, j);
  }
  return pairs;
}

std::vector<DepthPair> AdjacentPairs(int64_t begin, int64_t end) {
  std::vector<DepthPair> pairs;
  for (int64_t i = begin; i + 1 < end; i += 2) pairs.emplace_back(i, i + 1);
  return pairs;
}

std::vector<DepthPair> PairsWithinTaps(int64_t depths, int64_t channels) {
  std::vector<DepthPair> pairs;
  for (int64_t tap = 0; tap < depths; tap += channels) {
    std::ranges::copy(AdjacentPairs(tap, tap + channels), std::back_inserter(pairs));
  }
  return pairs;
}

// Taps 2i and 2i + 1 in the order of the kernel's columns.
std::vector<DepthPair> PairsOfColumns(int64_t height, int64_t width) {
  std::vector<DepthPair> pairs = AdjacentPairs(0, height * width);
  const auto tap = [=](int64_t k) { return k % height * width + k / height; };
  for (auto& [first, second] : pairs) {
    std::tie(first, second) = std::minmax(tap(first), tap(second));
  }
  std::ranges::sort(pairs);
  return pairs;
}

// A probe without its tensors; nullopt if the target does not support its sizes.
std::optional<Problem> ProblemOf(const Operator& op, const Taken& taken, int64_t depths, int64_t pairs) {
  Problem problem;
  problem.a_type = taken.a;
  problem.b_type = taken.b;
  problem.c_type = taken.c;
  if (taken.c != INTACT_S32) problem.scale = ScaleKind::kTensor;
  if (op.rows != 0) {
    problem.m = RoundedUp(op.rows, taken.multiples[0]);
    problem.n = RoundedUp(pairs, taken.multiples[1]);
    problem.k = depths;
    return problem;
  }
  if (op.channels % taken.multiples[2] != 0) return std::nullopt;
  reference::ConvGeometry g;
  g.axes[1] = {.input = op.kernel_height, .kernel = op.kernel_height};
  g.axes[2] = {.input = op.kernel_width + op.columns - 1, .kernel = op.kernel_width};
  for (size_t i = 1; op.is_all_padding && i < g.axes.size(); ++i) {
    g.axes.at(i).input = g.axes.at(i).pad_begin = g.axes.at(i).pad_end = 1;
  }
  if (op.groups == 0) {
    g.groups = (pairs + op.outputs - 1) / op.outputs;
    g.output_channels = g.groups * op.outputs;
  } else {
    g.groups = op.groups;
    g.output_channels = g.groups * RoundedUp(pairs, std::max(taken.multiples[1], op.outputs));
  }
  g.input_channels = g.groups * op.channels;
  problem.conv = g;
  if (op.is_all_padding) problem.za = taken.a == INTACT_S8 ? 127 : 255;
  return problem;
}

// The pair of each output column; columns beyond the last pair have none.
std::vector<std::optional<DepthPair>> PairOfEachOutput(const Operator& op, std::span<const DepthPair> pairs,
                                                       int64_t columns) {
  std::vector<std::optional<DepthPair>> of(static_cast<size_t>(columns));
  const auto in_group = static_cast<size_t>(op.rows != 0 || op.groups == 0 ? columns : columns / op.groups);
  for (size_t n = 0; n < of.size(); ++n) {
    if (n % in_group < pairs.size()) of[n] = pairs[n % in_group];
  }
  return of;
}

// Sets the tensors. `weight` is +127 or −127.
void SetOperands(const std::vector<std::optional<DepthPair>>& columns, int64_t depths, int32_t weight,
                 bool has_zero_points, bool is_conv, reference::Linear* operation) {
  std::ranges::fill(operation->a, operation->a_type == INTACT_S8 ? uint8_t{127} : uint8_t{255});
  const int32_t shift =
      operation->b_type == INTACT_U8 ? 128 : 0;  // a u8 weight of 128 is 0 to the instruction
  if (shift != 0 && has_zero_points) operation->b_zero_points = {shift};
  std::ranges::fill(operation->b, static_cast<int8_t>(shift));
  const auto count = std::ssize(columns);
  for (int64_t n = 0; n < count; ++n) {
    const auto& pair = columns[static_cast<size_t>(n)];
    if (!pair) continue;
    for (const int64_t k : {pair->first, pair->second}) {
      operation->b[static_cast<size_t>(is_conv ? n * depths + k : k * count + n)] =
          static_cast<int8_t>(weight + shift);
    }
  }
}

// Exact accumulators, and accumulators with each column's pair added in int16.
struct Expected {
  std::vector<int32_t> exact, clamped;
};

Expected Expect(std::vector<int32_t> exact, const std::vector<std::optional<DepthPair>>& columns,
                int32_t weight) {
  const int32_t sum = 2 * kLargestActivation * weight;
  const int32_t change = std::clamp(sum, -32768, 32767) - sum;
  Expected expected{exact, std::move(exact)};
  for (size_t i = 0; i < expected.clamped.size(); ++i) {
    if (columns[i % columns.size()]) expected.clamped[i] += change;
  }
  return expected;
}

// The scale that brings all accumulators within the output's type.
float ScaleOf(const Expected& expected) {
  int64_t largest = 1;
  for (const auto* accumulators : {&expected.exact, &expected.clamped}) {
    for (const int64_t y : *accumulators) largest = std::max(largest, std::abs(y));
  }
  return static_cast<float>(kLargestOutput / static_cast<double>(largest));
}

void Sort(const reference::Linear& operation, const std::vector<std::optional<DepthPair>>& columns,
          const Expected& expected, const std::vector<uint8_t>& output, ProbedPairs* probed) {
  const auto count = std::ssize(columns);
  const std::vector<uint8_t> exact = reference::Outputs(operation, count, expected.exact);
  const std::vector<uint8_t> clamped = reference::Outputs(operation, count, expected.clamped);
  const auto size = static_cast<size_t>(core::BytesOf(operation.c_type));
  // Roundings differ, but exact and clamped outputs are farther apart.
  const double tolerance = operation.c_type == INTACT_S32 ? 0 : 1;
  for (size_t i = 0; i * size < output.size(); ++i) {
    const auto& pair = columns[i % columns.size()];
    const auto value = [&](const std::vector<uint8_t>& of) {
      return core::Decode(operation.c_type, of.data() + i * size);
    };
    if (std::fabs(value(output) - value(exact)) <= tolerance) continue;
    if (pair && std::fabs(value(output) - value(clamped)) <= tolerance) {
      probed->clamping.push_back(*pair);
    } else {
      ++probed->other_sums;
    }
  }
  std::ranges::sort(probed->clamping);
  probed->clamping.erase(std::unique(probed->clamping.begin(), probed->clamping.end()),
                         probed->clamping.end());
}

void Run(const Target& target, reference::Operation operation, const Operator& op, const RunOptions& options,
         ProbedPairs* probed) {
  const int64_t columns = OutputOf(operation).columns;
  const std::vector<DepthPair> pairs = AllPairs(probed->depths);
  const std::vector<std::optional<DepthPair>> of_columns = PairOfEachOutput(op, pairs, columns);
  const int32_t weight = op.is_all_padding ? -kLargestWeight : kLargestWeight;
  const bool has_zero_points =
      (target.Features().Of(operation) & INTACT_TARGET_BIT(INTACT_TARGET_B_ZERO_POINT)) != 0;
  reference::Linear& linear = LinearOf(operation);
  SetOperands(of_columns, probed->depths, weight, has_zero_points, op.rows == 0, &linear);
  const Expected expected =
      Expect(reference::Accumulators(operation, reference::Model::kExact), of_columns, weight);
  if (linear.c_type != INTACT_S32) linear.scales = {ScaleOf(expected)};
  const Result<std::vector<uint8_t>> output = target.Run(operation, options);
  if (!output) {
    probed->error = output.error();
    return;
  }
  Sort(linear, of_columns, expected, *output, probed);
}

// nullopt if the operator needs a feature that the target lacks.
std::optional<ProbedPairs> Probe(const Target& target, const Operator& op, const Taken& taken,
                                 intact_mode mode, intact_isa isa, intact_pairing pairing) {
  ProbedPairs probed;
  probed.operation = op.name;
  probed.is_padding = op.is_all_padding;
  probed.types = ToString(taken);
  probed.channels = op.channels;
  probed.depths = op.rows != 0 ? RoundedUp(kProductDepths, taken.multiples[2]) : op.channels * op.Taps();
  if (op.rows == 0) {
    probed.kernel_height = op.kernel_height;
    probed.kernel_width = op.kernel_width;
  }
  const std::optional<Problem> problem =
      ProblemOf(op, taken, probed.depths, probed.depths * (probed.depths - 1) / 2);
  if (!problem) return std::nullopt;
  RunOptions options = RunOptionsOf(*problem);
  options.isa = isa;
  reference::Operation operation = Materialize(*problem);
  LinearOf(operation).mode = mode;
  LinearOf(operation).pairing = pairing;
  if ((FeaturesOf(operation, options) & ~target.Features().Of(operation)) != 0) return std::nullopt;
  Run(target, std::move(operation), op, options, &probed);
  return probed;
}

std::string PairInWords(const ProbedPairs& pairs, const DepthPair& pair) {
  if (pairs.channels == 0) return fmt::format("{}-{}", pair.first, pair.second);
  const auto depth = [&](int64_t k) {
    const int64_t tap = k / pairs.channels;
    const std::string place = fmt::format("({},{})", tap / pairs.kernel_width, tap % pairs.kernel_width);
    return pairs.channels == 1 ? place : fmt::format("{} {}", place, k % pairs.channels);
  };
  return fmt::format("{}-{}", depth(pair.first), depth(pair.second));
}

std::string List(const ProbedPairs& pairs) {
  std::vector<std::string> words;
  for (const DepthPair& pair : pairs.clamping) {
    if (words.size() == kPairsListed) break;
    words.push_back(PairInWords(pairs, pair));
  }
  return fmt::format("{}{}", fmt::join(words, ", "), pairs.clamping.size() > kPairsListed ? ", ..." : "");
}

}  // namespace

std::string PairingOf(const ProbedPairs& pairs) {
  if (!pairs.error.ok()) return pairs.error.status == INTACT_UNSUPPORTED ? "unsupported" : "failed";
  if (pairs.other_sums != 0) return "other";
  if (pairs.clamping.empty()) return "none";
  const bool is_flattened = pairs.clamping == AdjacentPairs(0, pairs.depths);
  if (pairs.channels == 0 && is_flattened) return "depths";
  if (pairs.is_padding) {
    if (is_flattened) return "multiplied";
    return pairs.clamping == AdjacentPairs(kCentre * pairs.channels, (kCentre + 1) * pairs.channels)
               ? "skipped"
               : "other";
  }
  const bool is_within_tap =
      pairs.channels != 0 && pairs.clamping == PairsWithinTaps(pairs.depths, pairs.channels);
  if (is_flattened) return is_within_tap ? "within_tap_or_flattened" : "flattened";
  if (is_within_tap) return "within_tap";
  if (pairs.channels == 1) {
    if (pairs.clamping == PairsWithinTaps(pairs.depths, pairs.kernel_width)) return "kernel_row";
    if (pairs.clamping == PairsOfColumns(pairs.kernel_height, pairs.kernel_width)) return "kernel_column";
  }
  return pairs.clamping == AllPairs(pairs.depths) ? "all" : "other";
}

std::string InWords(const ProbedPairs& pairs) {
  const std::string pairing = PairingOf(pairs);
  if (pairing == "unsupported") return "not run: " + support::Printable(pairs.error.message);
  if (pairing == "failed") return "FAILED: " + support::Printable(pairs.error.message);
  if (pairing == "none") return "none";
  if (pairing == "depths") return "adjacent depths: " + List(pairs);
  if (pairing == "multiplied") return "multiplied, and its pairs clamp";
  if (pairing == "skipped") return "not multiplied: only pairs of taps inside the input clamp";
  if (pairing == "within_tap") return "adjacent channels of a tap";
  if (pairing == "within_tap_or_flattened")
    return "adjacent channels of a tap (also adjacent in the flattened window)";
  if (pairing == "flattened") {
    return fmt::format("adjacent {}: {}", pairs.channels == 1 ? "taps" : "depths of the flattened window",
                       List(pairs));
  }
  if (pairing == "kernel_row") return "adjacent taps of a kernel row: " + List(pairs);
  if (pairing == "kernel_column") return "adjacent taps column by column: " + List(pairs);
  if (pairing == "all") return "all pairs";
  if (pairs.other_sums != 0)
    return fmt::format("{} sums are neither exact nor those of a clamped pair", pairs.other_sums);
  return fmt::format("{}: {}", support::Counted(pairs.clamping.size(), "pair"), List(pairs));
}

std::vector<ProbedPairs> ProbePairs(const Target& target, intact_mode mode, intact_isa isa,
                                    intact_pairing pairing) {
  const Takes takes = TakesOf(target);
  std::vector<ProbedPairs> all;
  for (const Operator& op : kOperators) {
    for (const Taken& taken : op.rows != 0 ? takes.gemm : takes.conv) {
      if (std::optional<ProbedPairs> probed = Probe(target, op, taken, mode, isa, pairing))
        all.push_back(std::move(*probed));
    }
  }
  return all;
}

namespace {

// Operations and types that have equal pairs.
struct Line {
  std::string_view operation;
  std::string words;
  std::vector<std::string_view> types;
};

std::string_view InputsOf(std::string_view types) { return types.substr(0, std::string_view("u8s8").size()); }

bool Has(const Line& line, std::string_view inputs) {
  return std::ranges::any_of(line.types,
                             [inputs](std::string_view types) { return InputsOf(types) == inputs; });
}

// "u8s8 s8s8"; with output types, "u8s8bf16", if another line of the operation has the same inputs.
std::string TypesOf(const Line& line, std::span<const Line> lines) {
  const bool is_split = std::ranges::any_of(lines, [&line](const Line& other) {
    return &other != &line && other.operation == line.operation &&
           std::ranges::any_of(line.types,
                               [&](std::string_view types) { return Has(other, InputsOf(types)); });
  });
  std::vector<std::string_view> words;
  for (const std::string_view types : line.types) {
    const std::string_view word = is_split ? types : InputsOf(types);
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string ToText(const std::vector<ProbedPairs>& probed) {
  std::vector<Line> lines;
  size_t widest = 0;
  for (const ProbedPairs& pairs : probed) {
    std::string words = InWords(pairs);
    auto line = std::ranges::find_if(
        lines, [&](const Line& one) { return one.operation == pairs.operation && one.words == words; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{pairs.operation, std::move(words), {}});
    line->types.emplace_back(pairs.types);
    widest = std::max(widest, pairs.operation.size());
  }
  std::string text;
  for (const Line& line : lines) {
    text += fmt::format("  {:{}}  {}: {}\n", line.operation, widest, TypesOf(line, lines), line.words);
  }
  return text;
}

support::Json ToJson(const std::vector<ProbedPairs>& probed) {
  support::Json rows = support::Json::array();
  for (const ProbedPairs& pairs : probed) {
    support::Json row = {
        {"operation", pairs.operation}, {"types", pairs.types}, {"pairing", PairingOf(pairs)}};
    if (pairs.error.ok()) {
      row["clamping_pairs"] = pairs.clamping;
      row["other_sums"] = pairs.other_sums;
    } else {
      row["error"] = support::Printable(pairs.error.message);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace intact::verify
