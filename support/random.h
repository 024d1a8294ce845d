// Random numbers that are equal on every platform. The code uses only integers and basic IEEE operations: the
// results of <random> distributions and of the libm logarithm differ between implementations.
#ifndef INTACT_SUPPORT_RANDOM_H_
#define INTACT_SUPPORT_RANDOM_H_

#include <cstdint>

namespace intact::support {

/// A SplitMix64 sequence. Each row and each column of a problem draws from its own sequence, so that a
/// smaller problem is the leading part of a larger one.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream, uint64_t index);

  uint64_t Next();
  int64_t Integer(int64_t low, int64_t high);  // uniform in [low, high]
  double Unit();                               // uniform in (0, 1)
  double Gauss();                              // standard normal
  double Laplace();                            // density exp(−|x|)/2
  double Student4();                           // Student-t with 4 degrees of freedom

 private:
  uint64_t state_;
};

}  // namespace intact::support
#endif  // INTACT_SUPPORT_RANDOM_H_
