// A 3×3 convolution over images of any size. The weights are packed once; each run gives height and width.
// The caller provides scratch memory, so that runs allocate nothing.
#include <array>
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <vector>

namespace {
constexpr int64_t kInputChannels = 8, kOutputChannels = 16;

int Fail(const char* call, const intact::Error& error) {
  std::fprintf(stderr, "%s: %s\n", call, error.message.c_str());
  return 1;
}
}  // namespace

int main() {
  const std::vector<int8_t> weights(kOutputChannels * 3 * 3 * kInputChannels, 1);  // [out][kh][kw][in]
  const float scale = 1.0f / 32;

  intact::ConvDesc desc = intact::MakeConvDesc();  // two spatial dimensions
  desc.input_channels = kInputChannels;
  desc.output_channels = kOutputChannels;
  for (int i = 0; i < 2; ++i) {
    desc.input[i] = INTACT_ANY_EXTENT;  // each run has its own height and width
    desc.kernel[i] = 3;
    desc.stride[i] = 2;
    desc.pad_begin[i] = desc.pad_end[i] = 1;
  }
  desc.linear.a_zero_point = 10;  // also the value of the padding
  desc.linear.c_type = INTACT_U8;
  desc.linear.scales = &scale;
  desc.linear.scale_count = 1;  // one scale for the tensor
  const auto conv = intact::Conv::Create(desc, weights.data());
  if (!conv) return Fail("Create", conv.error());

  for (const auto& [height, width] : {std::array<int64_t, 2>{7, 9}, {32, 20}}) {
    intact::RunOptions options;
    options.threads = 1;
    const auto run = conv->Prepare(1, {height, width}, options);  // output extents, bytes of scratch
    if (!run) return Fail("Prepare", run.error());
    std::vector<uint8_t> input(height * width * kInputChannels, 14);  // [height][width][in]
    std::vector<uint8_t> output(run->output[0] * run->output[1] * kOutputChannels);
    std::vector<uint8_t> arena(run->scratch_bytes);
    options.scratch = arena.data();
    options.scratch_bytes = arena.size();
    const intact::Error error = conv->Run(
        intact::PixelView<const uint8_t>{input.data(), 1, {height, width}, kInputChannels},
        intact::PixelView<uint8_t>{output.data(), 1, {run->output[0], run->output[1]}, kOutputChannels},
        options);
    if (!error.ok()) return Fail("Run", error);
    // The first output sees 2×2 pixels of the image and five of padding: 4·8·(14 − 10)/32.
    std::printf("%dx%d -> %dx%d, first output %d\n", int(height), int(width), int(run->output[0]),
                int(run->output[1]), output[0]);
    if (output[0] != 4) return 1;
  }
}
