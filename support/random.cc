#include "support/random.h"

#include <cmath>

namespace intact::support {
namespace {

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// ln(x) for x > 0: x = f·2^e with f in [½, 1). Then ln f = 2·artanh((f − 1)/(f + 1)), as a series; its
// argument is at most ⅓ in size.
double Log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const double t = (fraction - 1.0) / (fraction + 1.0);
  double power = t;
  double sum = 0.0;
  for (int i = 1; i < 40; i += 2) {
    sum += power / i;
    power *= t * t;
  }
  return 2.0 * sum + exponent * kLn2;
}

}  // namespace

Random::Random(uint64_t seed, uint64_t stream, uint64_t index)
    : state_(Mix(Mix(seed + 0x9e3779b97f4a7c15u) ^ Mix(stream * 0xd1342543de82ef95u + index + 1))) {}

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  return Mix(state_);
}

int64_t Random::Integer(int64_t low, int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high - low) + 1;
  return low + static_cast<int64_t>((Next() >> 32) * range >> 32);
}

double Random::Unit() { return (static_cast<double>(Next() >> 12) + 0.5) * 0x1p-52; }

double Random::Gauss() {
  // Marsaglia's polar method; its second value is dropped, to keep the state one integer.
  for (;;) {
    const double u = 2.0 * Unit() - 1.0;
    const double v = 2.0 * Unit() - 1.0;
    const double s = u * u + v * v;
    if (s > 0.0 && s < 1.0) return u * std::sqrt(-2.0 * Log(s) / s);
  }
}

double Random::Laplace() {
  const double magnitude = -Log(Unit());
  return (Next() >> 63) != 0 ? magnitude : -magnitude;
}

double Random::Student4() {
  // A chi-square of 4 degrees of freedom is the sum of two exponentials of mean 2.
  const double chi_square = -2.0 * (Log(Unit()) + Log(Unit()));
  return Gauss() / std::sqrt(chi_square / 4.0);
}

}  // namespace intact::support
