// oneDNN's matmul, convolution and deconvolution as a peer: u8×s8→s32, and →u8 with per-channel output scales
// and ReLU; for convolutions f32 with ReLU too. Activations are channels last, as in intact.
//
// Without VNNI oneDNN adds pairs in int16 with saturation, like intact's saturating mode: fast, but not
// exact.
#ifndef INTACT_BENCH_PEERS_ONEDNN_PEER_H_
#define INTACT_BENCH_PEERS_ONEDNN_PEER_H_

#include "bench/peers/peer.h"

namespace intact::bench {

const Peer& OneDnn();

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_ONEDNN_PEER_H_
