// Other libraries that run the cases. A peer is there if its library was found when intact was configured, or
// if it was added (peer_process.h).
#ifndef INTACT_BENCH_PEERS_PEER_H_
#define INTACT_BENCH_PEERS_PEER_H_

#include <intact/intact.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases/contender.h"
#include "bench/cases/workload.h"
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
  virtual bool Takes(const Case& c) const { return !c.shape.blocks; }
  /// See MakeContender(). Weights are packed in the format that the library prefers for the case.
  virtual Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const = 0;
  /// The kinds of kernels that compute cases like `c`, by name. "": the library has one kind of them.
  virtual std::vector<std::string> Kernels(const Case& /*c*/) const { return {""}; }
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_PEER_H_
