// The order of a group's channels in a planar band, for scheduled weights.
//
// Channels at places 2p and 2p + 1 of a group share int16 lanes. If two weights of one sign are too heavy for
// a lane, their quad needs a second item (schedule.h), in all columns of the strip. Any channels may be
// neighbours, if all columns of the group have the same order.
//
//   channels   c0 c1 | c2 c3 | c4 c5 | c6 c7    ─►    c0 c6 | c2 c3 | c5 c4 | c1 c7
//
// Heavy pairs are counted for each two channels, over taps and columns. Then channels are exchanged as long
// as this lowers the number of heavy pairs.
#ifndef INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_
#define INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_

#include <cstdint>
#include <vector>

#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

/// The channel at each place, group by group; places of a group hold its channels. `weights` holds all output
/// channels, with a depth for each (tap, channel of the group).
std::vector<int64_t> PairChannels(const LinearProblem& problem, const WeightView& weights,
                                  const ConvGeometry& geometry);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_
