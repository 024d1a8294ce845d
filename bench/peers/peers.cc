#include "bench/peers/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#ifdef INTACT_BENCH_ONEDNN
#include "bench/peers/onednn_peer.h"
#include "core/isas.h"
#endif

namespace intact::bench {

namespace {

std::vector<const Peer*>& AllPeers() {
  static std::vector<const Peer*> peers = {
#ifdef INTACT_BENCH_ONEDNN
      &OneDnn(),
#endif
  };
  return peers;
}

}  // namespace

std::span<const Peer* const> Peers() { return AllPeers(); }

std::optional<Error> AddPeer(std::unique_ptr<Peer> peer) {
  if (FindPeer(peer->Name()) != nullptr) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("a second peer is called {}", peer->Name())};
  }
  static std::vector<std::unique_ptr<Peer>> added;
  AllPeers().push_back(added.emplace_back(std::move(peer)).get());
  return std::nullopt;
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
