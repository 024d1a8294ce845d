// Random weights that resemble a trained layer in two figures: the share of adjacent pairs that can saturate
// once each output channel is quantized with its largest weight at ±127, and the kurtosis of the whole tensor
// before quantization.
//
// A weight is u·r^p: u uniform in (−1, 1), r the length of a Gaussian vector of three dimensions. The
// exponent p sets the shape of the distribution: 0 uniform, 1 Gaussian, 2 near Laplace, more with heavier
// tails. The heavier the tails, the fewer pairs can saturate, and the larger is the kurtosis.
//
// The share decides p, because kernels see nothing else. If several p give the same share, as in a layer with
// few or no such pairs, the kurtosis decides. In other layers the kurtosis depends on how much the scales of
// channels differ. Quantization by channel removes this difference, so the drawn weights have a lower
// kurtosis. In many layers no 8-bit weights have both figures: the kurtosis is at most 127²/E w², and a share
// s of failing pairs makes E w² at least 4160·s.
#ifndef INTACT_BENCH_CASES_TRAINED_WEIGHTS_H_
#define INTACT_BENCH_CASES_TRAINED_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace intact::bench {

struct WeightFigures {
  double failing_pairs_percent = 0;  // adjacent channels of a tap, activations in [0, 255]
  double kurtosis = 3;               // 3 is Gaussian, 6 Laplace
  bool operator==(const WeightFigures&) const = default;
};

/// The figures of `weights`, tap after tap of `channels` weights each.
WeightFigures FiguresOf(std::span<const int8_t> weights, int64_t channels);

/// Weights of `outputs` × `taps` × `channels`, the largest of each output channel at ±127. Equal arguments
/// give equal weights.
std::vector<int8_t> DrawLike(const WeightFigures& figures, int64_t outputs, int64_t taps, int64_t channels);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_TRAINED_WEIGHTS_H_
