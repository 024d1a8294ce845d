// Other libraries that run the cases. A peer is there if its library was found when intact was configured, or
// if it was added (peer_process.h).
#ifndef INTACT_BENCH_PEERS_H_
#define INTACT_BENCH_PEERS_H_

#include <intact/intact.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/contender.h"
#include "core/isas.h"

namespace intact::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  /// As in benchmarks' names.
  virtual std::string Name() const = 0;
  virtual std::string Version() const = 0;
  /// The time of a call alone, which each run includes; 0 if the library is called directly.
  virtual double CallMicroseconds() const { return 0; }
  /// Confines the library to the instructions of `isa` and to one thread, for the rest of the process: a
  /// process measures a peer on one ISA. Call this before the library's other functions.
  virtual std::optional<Error> Confine(core::Isa isa) const = 0;
  /// Whether the library computes cases like `c`.
  virtual bool Takes(const Case& /*c*/) const { return true; }
  /// See MakeContender(). Weights are packed in the format that the library prefers for the case.
  virtual Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const = 0;
};

std::span<const Peer* const> Peers();

/// Adds a peer to Peers(). Not thread-safe. An error if there is a peer of this name.
std::optional<Error> AddPeer(std::unique_ptr<Peer> peer);

/// nullptr if no peer has that name.
const Peer* FindPeer(std::string_view name);

/// Calls Peer::Confine() for each.
std::optional<Error> Confine(std::span<const Peer* const> peers, core::Isa isa);

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_H_
