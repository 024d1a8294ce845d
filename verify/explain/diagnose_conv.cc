#include "verify/explain/diagnose_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/types.h"
#include "verify/targets/wrong_quantizers.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;
using reference::Spatial;

// How an implementation may have read its tensors.
struct Reading {
  ConvGeometry geometry;                          // the positions of taps
  int64_t group_step = 0;                         // how many groups away the input was read
  std::optional<int32_t> padding = std::nullopt;  // other than the zero point
  bool swaps_taps = false;                        // kh and kw of the filter are exchanged
  bool reverses_taps = false;
  bool reads_on = false;  // reads pixels that follow in memory beyond an end of the input
  std::optional<int64_t> channels = std::nullopt;  // how many channels of a tap count; nullopt: all
  int64_t channel_step = 0;                        // how many channels away the input was read
  int64_t first_channel_step = 0;                  // the same of the first channel of a group alone
  int64_t last_channel_step = 0;                   // the same of the last channel of a group alone
  int64_t channels_skipped = 0;  // how many channels of a tap, from the first on, do not count
  int64_t weight_step = 0;       // how many output channels away the weights were read
};

int32_t AccumulatorUnder(const Reading& reading, const reference::Conv& conv, int64_t m, int64_t n) {
  const ConvGeometry& g = conv.geometry;
  const reference::Pixel pixel = reference::PixelOf(g, m);
  const int64_t first_channel = (n / g.GroupOutputs() + reading.group_step) * g.GroupInputs();
  const int32_t zero_point = reference::ActivationZeroPoint(conv);
  const int32_t padding = reading.padding.value_or(zero_point);
  int64_t sum = conv.bias_s32.empty() ? 0 : conv.bias_s32[static_cast<size_t>(n)];
  for (int64_t tap = 0; tap < g.Taps(); ++tap) {
    Spatial at = reference::TapOf(g, tap);
    if (reading.swaps_taps) std::swap(at[1], at[2]);
    for (size_t i = 0; reading.reverses_taps && i < at.size(); ++i) at[i] = g.axes[i].kernel - 1 - at[i];
    int64_t row = reference::InputRow(reading.geometry, pixel, at);
    if (reading.reads_on) row = RowThatFollows(g, pixel, at).value_or(row);
    for (int64_t c = reading.channels_skipped; c < reading.channels.value_or(g.GroupInputs()); ++c) {
      int64_t step = reading.channel_step;
      if (c == 0) step += reading.first_channel_step;
      if (c == g.GroupInputs() - 1) step += reading.last_channel_step;
      const int64_t channel = std::clamp<int64_t>(first_channel + c + step, 0, g.input_channels - 1);
      const auto a_at = static_cast<size_t>(row * g.input_channels + channel);
      const auto b_at =
          static_cast<size_t>(((n + reading.weight_step) * g.Taps() + tap) * g.GroupInputs() + c);
      const int64_t a = row < 0 ? padding : core::DecodeInt8(conv.a_type, conv.a[a_at]);
      const int64_t b = core::DecodeInt8(conv.b_type, static_cast<uint8_t>(conv.b[b_at]));
      sum += (a - zero_point) * (b - reference::WeightZeroPoint(conv, n));
    }
  }
  return static_cast<int32_t>(static_cast<uint64_t>(sum));
}

// "2x3"
std::string Dilations(const ConvGeometry& geometry) {
  std::string text;
  for (const Axis& axis : std::span(geometry.axes).last(static_cast<size_t>(geometry.dims))) {
    text += fmt::format("{}{}", text.empty() ? "" : "x", axis.dilation);
  }
  return text;
}

// Mistakes of transposed convolutions only.
template <class Suspect>
void SuspectPhases(const ConvGeometry& g, const Suspect& suspect) {
  Reading reversed{g};
  reversed.reverses_taps = true;
  suspect("taps of the filter in reverse order", reversed);
  for (size_t i = g.axes.size() - static_cast<size_t>(g.dims); i < g.axes.size(); ++i) {
    for (const int64_t shift : {-1, 1}) {
      Reading shifted{g};
      shifted.geometry.axes[i].pad_begin += shift;
      suspect("that of another output", shifted,
              fmt::format("that of output o{} {} instead: of another phase, or cropped otherwise", "dhw"[i],
                          shift < 0 ? "- 1" : "+ 1"));
    }
  }
}

// Mistakes with the first or the last channel of a group.
template <class Suspect>
void SuspectGroupEdges(const ConvGeometry& g, const Suspect& suspect) {
  Reading reading{g};
  reading.last_channel_step = 1;
  suspect("the last channel of a group read from the next group", reading);
  reading = {g};
  reading.first_channel_step = -1;
  suspect("the first channel of a group read from the group before", reading);
  reading = {g};
  reading.channels = g.GroupInputs() - 1;
  suspect("the last channel of a group missing", reading);
  reading = {g};
  reading.channels_skipped = 1;
  suspect("the first channel of a group missing", reading);
}

// The accumulator (m, n) under each mistake with the geometry; n is the output channel.
void SuspectGeometry(const reference::Conv& conv, int64_t m, int64_t n, std::vector<Suspicion>* suspicions) {
  const ConvGeometry& g = conv.geometry;
  const auto suspect = [&](std::string_view mistake, const Reading& reading, std::string text = {}) {
    suspicions->push_back({mistake, AccumulatorUnder(reading, conv, m, n), {}, std::move(text)});
  };
  Reading padded{g};
  padded.padding = 0;
  suspect("padding read as 0 instead of the zero point", padded);
  padded.padding = -128;
  if (conv.a_type == INTACT_S8) suspect("padding read as -128, which is 0 after the shift", padded);

  Reading read_on{g};
  read_on.reads_on = true;
  suspect("pixels that follow in memory read for padding at the end", read_on);

  const auto suspect_dilation = [&](auto dilation_of) {
    Reading dilated{g};
    for (Axis& axis : std::span(dilated.geometry.axes).last(static_cast<size_t>(g.dims))) {
      axis.dilation = dilation_of(axis);
    }
    suspect(
        "another dilation", dilated,
        fmt::format("taps read {} pixels apart instead of {}", Dilations(dilated.geometry), Dilations(g)));
  };
  suspect_dilation([](const Axis& axis) { return std::max<int64_t>(axis.dilation - 1, 1); });
  suspect_dilation([](const Axis&) { return int64_t{1}; });
  suspect_dilation([&](const Axis&) { return g.axes.back().dilation; });

  Reading swapped_ends{g};
  for (Axis& axis : swapped_ends.geometry.axes) std::swap(axis.pad_begin, axis.pad_end);
  suspect("padding at the end taken for that at the beginning", swapped_ends);

  if (g.axes[1].kernel == g.axes[2].kernel) {
    Reading swapped{g};
    swapped.swaps_taps = true;
    suspect("rows and columns of the filter swapped", swapped);
  }

  if (g.IsTransposed()) SuspectPhases(g, suspect);

  for (const int64_t block : {2, 4, 8, 16, 32, 64}) {
    const int64_t whole = g.GroupInputs() / block * block;
    if (whole == g.GroupInputs()) continue;
    Reading cut{g};
    cut.channels = whole;
    suspect("channel tail of each tap missing", cut,
            fmt::format("channels {}…{} of each tap missing", whole, g.GroupInputs() - 1));
  }
  for (const int64_t step : {-1, 1}) {
    if (g.input_channels == 1) break;
    Reading shifted{g};
    shifted.channel_step = step;
    suspect("channels read one off", shifted,
            fmt::format("each input channel read one {}", step < 0 ? "too early" : "too late"));
  }

  for (const int64_t step : {-1, 1}) {
    if (n + step < 0 || n + step >= g.output_channels) continue;
    Reading shifted{g};
    shifted.weight_step = step;
    suspect("the weights of another output channel", shifted,
            fmt::format("the weights of output channel {} taken for those of {}", n + step, n));
  }
  const int64_t group = n / g.GroupOutputs();
  if (g.groups > 1) SuspectGroupEdges(g, suspect);
  for (const int64_t step : {-1, 1}) {
    if (group + step < 0 || group + step >= g.groups) continue;
    Reading shifted{g};
    shifted.group_step = step;
    suspect("the channels of another group", shifted,
            fmt::format("read the channels of group {} instead of group {}", group + step, group));
  }
}

}  // namespace

std::optional<int64_t> RowThatFollows(const ConvGeometry& g, const reference::Pixel& output,
                                      const Spatial& tap) {
  int64_t row = output.batch;
  bool is_beyond = false;
  for (size_t i = 0; i < g.axes.size(); ++i) {
    const int64_t position = g.axes[i].Position(output.at[i], tap[i]);
    if (position < 0) return std::nullopt;
    is_beyond = is_beyond || position >= g.axes[i].input;
    row = row * g.axes[i].input + position;
  }
  if (!is_beyond || row >= g.InputPixels()) return std::nullopt;
  return row;
}

std::vector<Suspicion> ConvSuspects::Of(const Observation& seen) {
  const int64_t n = seen.first_column + seen.n;
  std::vector<Suspicion> suspicions;
  if (conv_.IsDynamic()) {
    if (wrongly_quantized_.empty()) {
      for (const WrongQuantizer& wrong : WrongQuantizers()) {
        reference::Operation operation = conv_;
        wrong.quantize(&operation);
        wrongly_quantized_.push_back(std::get<reference::Conv>(std::move(operation)));
      }
    }
    for (size_t i = 0; i < wrongly_quantized_.size(); ++i) {
      const reference::Conv& wrong = wrongly_quantized_[i];
      suspicions.push_back({WrongQuantizers()[i].fault, AccumulatorUnder({wrong.geometry}, wrong, seen.m, n),
                            reference::ActivationScale(wrong) * reference::RequantizationOf(wrong, n).scale});
    }
  }
  SuspectGeometry(conv_, seen.m, n, &suspicions);
  return suspicions;
}

}  // namespace intact::verify
