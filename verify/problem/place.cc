#include "verify/problem/place.h"

#include <fmt/format.h>

namespace intact::verify {
namespace {

// " oh 2 ow 4"
std::string Coordinates(const reference::ConvGeometry& conv, char prefix, const reference::Spatial& spatial) {
  std::string text;
  for (size_t i = spatial.size() - static_cast<size_t>(conv.dims); i < spatial.size(); ++i) {
    text += fmt::format(" {}{} {}", prefix, "dhw"[i], spatial[i]);
  }
  return text;
}

// "tap kh 1 kw 0"
std::string Tap(const reference::ConvGeometry& conv, int64_t k) {
  return "tap" + Coordinates(conv, 'k', reference::TapChannelOf(conv, k).tap);
}

}  // namespace

std::string OutputPlace(const MaybeConv& conv, int64_t m, int64_t n) {
  if (!conv) return fmt::format("m {} n {}", m, n);
  const reference::Pixel pixel = reference::PixelOf(*conv, m);
  return fmt::format("n {}{} oc {}", pixel.batch, Coordinates(*conv, 'o', pixel.at), n);
}

std::string OutputPlace(const MaybeConv& conv, int64_t item_rows, int64_t m, int64_t n) {
  if (item_rows == 0) return OutputPlace(conv, m, n);
  return fmt::format("item {} {}", m / item_rows, OutputPlace({}, m % item_rows, n));
}

std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k) {
  if (!conv) return fmt::format("k {}", k);
  const int64_t channel = InputChannel(*conv, n, k);
  return fmt::format("{}, channels {} {}", Tap(*conv, k), channel, channel + 1);
}

std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k, int64_t k1) {
  if (!conv) return k1 == k + 1 ? PairPlace(conv, n, k) : fmt::format("k {} and {}", k, k1);
  const bool share_tap = k / conv->TapDepth() == k1 / conv->TapDepth();
  if (share_tap && k1 == k + 1) return PairPlace(conv, n, k);
  return fmt::format("{}, channel {} and {}, channel {}", Tap(*conv, k), InputChannel(*conv, n, k),
                     Tap(*conv, k1), InputChannel(*conv, n, k1));
}

std::vector<int64_t> OfItsDimensions(const reference::ConvGeometry& conv, const reference::Spatial& spatial) {
  return {spatial.end() - conv.dims, spatial.end()};
}

int64_t InputChannel(const reference::ConvGeometry& conv, int64_t n, int64_t k) {
  return n / conv.GroupOutputs() * conv.GroupInputs() + reference::TapChannelOf(conv, k).channel;
}

}  // namespace intact::verify
