// The peers of this process.
#ifndef INTACT_BENCH_PEERS_PEERS_H_
#define INTACT_BENCH_PEERS_PEERS_H_

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "bench/peers/peer.h"
#include "core/isas.h"

namespace intact::bench {

std::span<const Peer* const> Peers();

/// Adds a peer to Peers(). Not thread-safe. An error if there is a peer of this name.
std::optional<Error> AddPeer(std::unique_ptr<Peer> peer);

/// nullptr if no peer has that name.
const Peer* FindPeer(std::string_view name);

/// Calls Peer::Confine() for each.
std::optional<Error> Confine(std::span<const Peer* const> peers, core::Isa isa);

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_PEERS_H_
