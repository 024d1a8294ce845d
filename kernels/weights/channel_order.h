// The order of a group's channels in a planar band, where weights are scheduled.
//
// Channels at places 2p and 2p + 1 of a group share int16 lanes. A pair of weights of one sign that is too
// heavy for a lane costs its quad a second item (schedule.h), in all columns of the strip: which channels are
// neighbours is free, as long as all columns of the group agree.
//
//   channels   c0 c1 | c2 c3 | c4 c5 | c6 c7    ─►    c0 c6 | c2 c3 | c5 c4 | c1 c7
//
// Such pairs are counted for each two channels, over taps and columns; then channels change places as long as
// that makes it fewer.
#ifndef INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_
#define INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_

#include <cstdint>
#include <vector>

#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

/// The channel at each place, group by group; places of a group hold its channels. `weights` are those of all
/// output channels, a depth for each (tap, channel of the group).
std::vector<int64_t> PairChannels(const LinearProblem& problem, const WeightView& weights,
                                  const ConvGeometry& geometry);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CHANNEL_ORDER_H_
