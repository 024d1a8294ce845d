// Other libraries that run the cases. A peer is there if its library was found when intact was configured, or
// if it was added (peer_process.h).
#ifndef INTACT_BENCH_PEERS_PEER_H_
#define INTACT_BENCH_PEERS_PEER_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/contender.h"
#include "bench/cases/workload.h"
#include "core/isas.h"

namespace intact::bench {

/// Grouped weights for products of up to m rows. `b`: column by column; s8 with zero points of 0, or u4 with
/// zero points of 8 and the even depth in the low bits. `scales`: f16, by column and group.
struct GroupedOperands {
  GroupedShape shape;
  core::Isa isa = core::Isa::kPortable;
  int64_t m = 1;
  std::span<const uint8_t> b;
  std::span<const uint16_t> scales;
};

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
  /// The kernels that multiply grouped weights of this shape, by name. "": the library has one kind of them.
  virtual std::vector<std::string> GroupedKernels(const GroupedShape& /*shape*/, core::Isa /*isa*/) const {
    return {};
  }
  /// The type that scales of activations are rounded to.
  virtual intact_type GroupedScaleType() const { return INTACT_F32; }
  /// The operands are copied. `kernels`: one of GroupedKernels().
  virtual Result<std::unique_ptr<GroupedContender>> MakeGrouped(const GroupedOperands& /*operands*/,
                                                                const std::string& /*kernels*/) const {
    return Error{INTACT_UNSUPPORTED, Name() + " does not multiply grouped weights"};
  }
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_PEER_H_
