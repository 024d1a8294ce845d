#include "verify/studies/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/input.h"
#include "fuzz/scratch.h"
#include "support/random.h"
#include "verify/studies/layer_check.h"

namespace intact::fuzz {
namespace {

// Larger layers are not run.
constexpr int64_t kMostOutputs = 4096;
constexpr int64_t kMostProducts = 1 << 18;
constexpr std::string_view kMagic("\x93NUMPY\x01\0", 8);

// A .npy file of version 1.0 with random bytes or small numbers.
std::vector<uint8_t> Npy(std::string_view descr, const std::vector<int64_t>& shape) {
  std::string extents;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    extents += fmt::format("{},", extent);
    count *= extent;
  }
  const std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}\n", descr, extents);
  std::vector<uint8_t> image(kMagic.begin(), kMagic.end());
  image.push_back(static_cast<uint8_t>(header.size()));
  image.push_back(0);
  image.insert(image.end(), header.begin(), header.end());
  support::Random random(1, 0, static_cast<uint64_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    if (descr.ends_with('1')) {
      image.push_back(static_cast<uint8_t>(random.Integer(0, 255)));
      continue;
    }
    const auto value =
        descr == "<i4"
            ? std::bit_cast<std::array<uint8_t, 4>>(static_cast<int32_t>(random.Integer(-9999, 9999)))
            : std::bit_cast<std::array<uint8_t, 4>>(static_cast<float>(random.Gauss()));
    image.insert(image.end(), value.begin(), value.end());
  }
  return image;
}

// The tensors of a layer folder. Each kind of tensors has a folder, which is written once.
struct Tensors {
  explicit Tensors(Input* input)
      : rank(input->Pick<size_t>({2, 4, 3, 5})),
        a_type(input->Pick({"|u1", "|i1", "<f4"})),
        b_type(input->Pick({"|i1", "|u1"})),
        extras(input->Byte()),
        a_depth(input->Pick<int64_t>({6, 2, 3})),
        b_depth(input->Pick<int64_t>({6, 2, 1, 3})) {}

  // The input has an extent of 3 in each dimension, the filter 2. There are four output columns.
  std::string Write() const {
    constexpr std::array<std::string_view, 4> kResiduals = {"", "|u1", "|i1", "<f4"};
    const bool has_bias = extras % 2 == 1, has_integer_bias = extras / 2 % 4 == 3;
    const std::string_view residual = kResiduals[extras / 8 % 4];
    std::string name = fmt::format("layer_{}_{}_{}_{}{}{}_{}_{}/", rank, a_type[1], b_type[1], has_bias,
                                   has_integer_bias ? "s" : "", residual.empty() ? "" : residual.substr(1),
                                   a_depth, b_depth);
    static std::vector<std::string> made;
    if (std::ranges::find(made, name) != made.end()) return name;
    std::vector<int64_t> a(rank, 3);
    std::vector<int64_t> b(rank, 2);
    a.back() = a_depth;
    b.back() = b_depth;
    b.front() = 4;
    WriteScratch(name + "activations.npy", Npy(a_type, a));
    WriteScratch(name + "weights.npy", Npy(b_type, b));
    if (has_bias) WriteScratch(name + "bias.npy", Npy("<f4", {4}));
    if (has_integer_bias) WriteScratch(name + "bias_int32.npy", Npy("<i4", {4}));
    if (!residual.empty()) {  // shaped as the output of a layer without padding, stride and dilation
      std::vector<int64_t> c(rank, 2);
      c.front() = 3;
      c.back() = 4;
      WriteScratch(name + "residual.npy", Npy(residual, c));
    }
    made.push_back(name);
    return name;
  }

  size_t rank;
  std::string_view a_type, b_type;
  uint8_t extras;  // selects the optional tensors
  int64_t a_depth, b_depth;
};

bool CanBeRun(const verify::Layer& layer) {
  if (layer.grouped() != nullptr) return false;
  if (layer.conv() == nullptr) return true;
  const reference::ConvGeometry& g = layer.conv()->geometry;
  const int64_t outputs = g.OutputPixels() * g.output_channels;
  return outputs <= kMostOutputs && outputs * g.Taps() * g.TapDepth() <= kMostProducts;
}

}  // namespace

std::string CheckLayerFolder(std::span<const uint8_t> bytes) {
  Input input(bytes.first(std::min<size_t>(bytes.size(), 6)));
  const std::string name = Tensors(&input).Write();
  WriteScratch(name + "layer.json", bytes.subspan(std::min<size_t>(bytes.size(), 6)));
  const std::string folder = ScratchFolder() + "/" + name.substr(0, name.size() - 1);
  const Result<verify::Layer> layer = verify::ReadLayer(folder);
  if (!layer) return WrongFileRefusal(folder, layer.error());
  if (!CanBeRun(*layer)) return "";
  const Result<verify::LayerCheck> check =
      verify::CheckLayer(*layer, INTACT_EXACT, INTACT_ISA_ANY, std::nullopt);
  if (!check) {
    const bool is_expected =
        check.error().status == INTACT_OVERFLOW || check.error().status == INTACT_UNSUPPORTED;
    return is_expected ? "" : "a layer is read, but cannot be run: " + check.error().message;
  }
  return check->Passed() ? "" : "a layer differs from its model";
}

}  // namespace intact::fuzz
