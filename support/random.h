// Random numbers that are equal on every platform. The code uses only integers and basic IEEE operations: the
// results of <random> distributions and of the libm logarithm differ between implementations.
#ifndef INTACT_SUPPORT_RANDOM_H_
#define INTACT_SUPPORT_RANDOM_H_

#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace intact::support {

/// A SplitMix64 sequence. Each row and each column of a problem draws from its own sequence, so that a
/// smaller problem is the leading part of a larger one.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream, uint64_t index);

  uint64_t Next();
  int64_t Integer(int64_t low, int64_t high);           // uniform in [low, high]
  bool OneIn(int64_t n) { return Integer(1, n) == n; }  // with probability 1/n
  /// One of `values`, an array or a list, each with the same probability.
  template <class Values>
  auto Of(const Values& values) {
    return std::begin(values)[Integer(0, std::ssize(values) - 1)];
  }
  template <class T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Integer(0, std::ssize(values) - 1)];
  }
  double Unit();      // uniform in (0, 1)
  double Gauss();     // standard normal
  double Laplace();   // density exp(−|x|)/2
  double Student4();  // Student-t with 4 degrees of freedom

 private:
  uint64_t state_;
};

}  // namespace intact::support
#endif  // INTACT_SUPPORT_RANDOM_H_
