// Random plans on random numbers of threads for as long as the caller wants, like a process that loads and
// drops models all day:
//
//   worker   draw a problem │ create │ run │ compare │ now and then fork │ run a kept plan │ keep or drop
//   worker   …
//   caller   gets the state every tenth of a second, and decides when to stop
//
// Every output is compared with the scalar reference. Children of forks run plans that their parent made. The
// seed and i alone determine run number i, all runs are in exact mode, and the digest is a sum: for a seed
// and a number of runs it is equal on every machine and for any number of workers. Runs of kept plans depend
// on which plans other workers kept. Their outputs are compared, but are not part of the digest.
#ifndef INTACT_VERIFY_STUDIES_SOAK_H_
#define INTACT_VERIFY_STUDIES_SOAK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace intact::verify {

struct SoakOptions {
  uint64_t seed = 1;
  int workers = 2;
  int64_t most_runs = 0;  // 0: until the caller stops the soak
};

struct SoakFailure {
  std::string problem;  // the line
  std::string reason;
};
inline constexpr size_t kMaxSoakFailures = 8;  // that are reported

struct SoakState {
  int64_t runs = 0;       // of new plans
  int64_t kept_runs = 0;  // of plans that were kept
  int64_t forks = 0;
  int64_t plans = 0;        // kept now
  int64_t differences = 0;  // runs that failed or whose output differs, in children too
  uint64_t digest = 0;
  std::vector<SoakFailure> failures;
};

/// Runs until `most_runs` are done or `goes_on`, called on this thread, returns false. Returns after all
/// plans are dropped. If the system refuses threads, there are fewer workers, or only this thread; if it
/// refuses children, there are no forks.
SoakState RunSoak(const SoakOptions& options, const std::function<bool(const SoakState&)>& goes_on);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_SOAK_H_
