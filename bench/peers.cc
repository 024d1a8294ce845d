#include "bench/peers.h"

#include <algorithm>
#include <vector>

#ifdef INTACT_BENCH_ONEDNN
#include "bench/onednn_peer.h"
#include "core/isas.h"
#endif

namespace intact::bench {

std::span<const Peer* const> Peers() {
  static const std::vector<const Peer*> kPeers = {
#ifdef INTACT_BENCH_ONEDNN
      &OneDnn(),
#endif
  };
  return kPeers;
}

const Peer* FindPeer(std::string_view name) {
  const auto found = std::ranges::find(Peers(), name, &Peer::Name);
  return found == Peers().end() ? nullptr : *found;
}

std::optional<Error> Confine(std::span<const Peer* const> peers, core::Isa isa) {
  for (const Peer* peer : peers) {
    if (std::optional<Error> error = peer->Confine(isa)) return error;
  }
  return std::nullopt;
}

}  // namespace intact::bench
