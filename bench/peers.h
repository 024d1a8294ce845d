// Other libraries that the same cases run on, in the same process: those that were found when intact was
// configured.
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
  /// As benchmarks' names have it.
  virtual std::string Name() const = 0;
  virtual std::string Version() const = 0;
  /// Confines the library to what a machine of `isa` has and to one thread, for good and in the whole
  /// process: a process measures a peer on one ISA. To be called before anything else is asked of it.
  virtual std::optional<Error> Confine(core::Isa isa) const = 0;
  /// See MakeContender(). Weights are prepacked in whatever format the library prefers for the case.
  virtual Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const = 0;
};

std::span<const Peer* const> Peers();

/// nullptr if there is none of that name.
const Peer* FindPeer(std::string_view name);

/// Peer::Confine() for each.
std::optional<Error> Confine(std::span<const Peer* const> peers, core::Isa isa);

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_H_
