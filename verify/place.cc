#include "verify/place.h"

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

}  // namespace

std::string OutputPlace(const MaybeConv& conv, int64_t m, int64_t n) {
  if (!conv) return fmt::format("m {} n {}", m, n);
  const reference::Pixel pixel = reference::PixelOf(*conv, m);
  return fmt::format("n {}{} oc {}", pixel.batch, Coordinates(*conv, 'o', pixel.at), n);
}

std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k) {
  if (!conv) return fmt::format("k {}", k);
  const std::array<int64_t, 2> channels = InputChannels(*conv, n, k);
  return fmt::format("tap{}, channels {} {}", Coordinates(*conv, 'k', reference::TapChannelOf(*conv, k).tap),
                     channels[0], channels[1]);
}

std::vector<int64_t> OfItsDimensions(const reference::ConvGeometry& conv, const reference::Spatial& spatial) {
  return {spatial.end() - conv.dims, spatial.end()};
}

std::array<int64_t, 2> InputChannels(const reference::ConvGeometry& conv, int64_t n, int64_t k) {
  const int64_t first =
      n / conv.GroupOutputs() * conv.GroupInputs() + reference::TapChannelOf(conv, k).channel;
  return {first, first + 1};
}

}  // namespace intact::verify
