#include "bench/suites.h"

#include <algorithm>
#include <array>

namespace intact::bench {
namespace {

// All as m, n, k: B is K×N.

constexpr std::array kFigures = {
    Shape{1, 4096, 4096},  Shape{8, 4096, 4096},  Shape{32, 4096, 4096},   Shape{64, 1024, 1024},
    Shape{128, 768, 768},  Shape{128, 3072, 768}, Shape{128, 768, 3072},   Shape{196, 256, 2304},
    Shape{784, 128, 1152}, Shape{3136, 64, 576},  Shape{1024, 1024, 1024}, Shape{2048, 2048, 2048},
};

// One sequence of 128 or 384 tokens: projections, Q, K and V at once, and the two layers of the feed-forward
// network; hidden sizes 768 (base) and 1024 (large).
constexpr std::array kBert = {
    Shape{128, 768, 768},   Shape{128, 2304, 768},  Shape{128, 3072, 768},  Shape{128, 768, 3072},
    Shape{384, 768, 768},   Shape{384, 2304, 768},  Shape{384, 3072, 768},  Shape{384, 768, 3072},
    Shape{384, 1024, 1024}, Shape{384, 3072, 1024}, Shape{384, 4096, 1024}, Shape{384, 1024, 4096},
};

// Weights K×N 4096×4096, 4096×11008 and 11008×4096, as in a decoder of 7 billion weights.
constexpr std::array kLlm = {
    Shape{1, 4096, 4096},  Shape{8, 4096, 4096},  Shape{32, 4096, 4096},  Shape{128, 4096, 4096},
    Shape{1, 11008, 4096}, Shape{8, 11008, 4096}, Shape{32, 11008, 4096}, Shape{128, 11008, 4096},
    Shape{1, 4096, 11008}, Shape{8, 4096, 11008}, Shape{32, 4096, 11008}, Shape{128, 4096, 11008},
};

// The distinct convolutions of ResNet-50 (v1.5: the stride is in the 3×3), batch 1, as the GEMMs that they
// are without materialised im2col: m output positions, n output channels, k = KH·KW·input channels. Then the
// classifier.
constexpr std::array kResNet50 = {
    Shape{12544, 64, 147},
    // 56×56
    Shape{3136, 64, 64},
    Shape{3136, 64, 576},
    Shape{3136, 256, 64},
    Shape{3136, 64, 256},
    Shape{3136, 128, 256},
    // 28×28
    Shape{784, 128, 1152},
    Shape{784, 512, 128},
    Shape{784, 512, 256},
    Shape{784, 128, 512},
    Shape{784, 256, 512},
    // 14×14
    Shape{196, 256, 2304},
    Shape{196, 1024, 256},
    Shape{196, 1024, 512},
    Shape{196, 256, 1024},
    Shape{196, 512, 1024},
    // 7×7
    Shape{49, 512, 4608},
    Shape{49, 2048, 512},
    Shape{49, 2048, 1024},
    Shape{49, 512, 2048},
    Shape{1, 1000, 2048},
};

constexpr std::array kSquare = {
    Shape{64, 64, 64},    Shape{128, 128, 128},    Shape{256, 256, 256},
    Shape{512, 512, 512}, Shape{1024, 1024, 1024}, Shape{2048, 2048, 2048},
};

constexpr std::array kShort = {
    Shape{1, 4096, 4096},  Shape{8, 4096, 4096}, Shape{128, 768, 768},    Shape{128, 3072, 768},
    Shape{128, 768, 3072}, Shape{3136, 64, 64},  Shape{3136, 64, 576},    Shape{784, 128, 1152},
    Shape{196, 256, 2304}, Shape{256, 256, 256}, Shape{1024, 1024, 1024},
};

constexpr std::array kSuites = {
    Suite{"short", "a few of each of the others, in less than a minute", kShort},
    Suite{"figures", "twelve shapes from thin to square", kFigures},
    Suite{"bert", "BERT base and large, 128 and 384 tokens", kBert},
    Suite{"llm", "M = 1, 8, 32, 128 on weights K×N 4096×4096, 4096×11008, 11008×4096", kLlm},
    Suite{"resnet50", "ResNet-50's convolutions as implicit GEMMs, batch 1", kResNet50},
    Suite{"square", "M = N = K from 64 to 2048", kSquare},
};

}  // namespace

std::span<const Suite> Suites() { return kSuites; }

const Suite* FindSuite(std::string_view name) {
  const auto* const found = std::ranges::find(kSuites, name, &Suite::name);
  return found == kSuites.end() ? nullptr : found;
}

}  // namespace intact::bench
