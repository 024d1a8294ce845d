// Peers in separate processes (peer_process.py). Libraries of these peers need another libc, or Python, or
// cannot be loaded in one process with a library of the same name. The process gets its operands in shared
// memory, and measures the time of its runs itself.
#ifndef INTACT_BENCH_PEERS_PEER_PROCESS_H_
#define INTACT_BENCH_PEERS_PEER_PROCESS_H_

#include <intact/intact.hpp>
#include <memory>
#include <string>

#include "bench/peers/peer.h"

namespace intact::bench {

/// What StartPeer() accepts.
inline constexpr const char* kPeerOptions =
    "onednn=LIBRARY, onnxruntime[=PYTHON], fbgemm[=PYTHON] or ggml=FOLDER";

/// The peer that `option` names (kPeerOptions). Starts its process once to learn its version, so a peer that
/// cannot run is an error here. `limit`: for each of its answers, in addition to the time of the runs. A
/// process that takes longer is killed.
Result<std::unique_ptr<Peer>> StartPeer(const std::string& option, Seconds limit = Seconds(60));

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_PEER_PROCESS_H_
