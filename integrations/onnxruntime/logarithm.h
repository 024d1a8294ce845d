// The natural logarithm of a float, the same bits with every C library.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_LOGARITHM_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_LOGARITHM_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace intact::onnxruntime {

/// ln(x), with the algorithm and the constants of Arm's optimized routines (2017-2018 Arm Limited, MIT licence), which glibc has
/// had since 2.28: its `logf` on a CPU with FMA. The error is below 0.82 units in the last place. With x = z·2^k, z in
/// [0.699, 1.398), and c the table's value next to z:
///
///     r = z/c − 1,  y = (ln c + k·ln 2) + r + (a₀·r² + (a₁·r + a₂))·r²
///
/// A multiplication and the addition of its result are one fused operation in float64; y is then rounded to float32. 0: −∞, ∞: ∞,
/// below 0: NaN, NaN: itself, quiet. For all 2³² arguments the bits are those of glibc 2.36.
inline float LogOf(float x) {
  struct Entry {
    double reciprocal, logarithm;  // 1/c, ln c
  };
  static constexpr std::array<Entry, 16> kTable = {{{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2},
                                                    {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
                                                    {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},
                                                    {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
                                                    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3},
                                                    {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
                                                    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4},
                                                    {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
                                                    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5},
                                                    {0x1p+0, 0x0p+0},
                                                    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},
                                                    {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
                                                    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},
                                                    {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
                                                    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},
                                                    {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2}}};
  constexpr std::array kPolynomial = {-0x1.00ea348b88334p-2, 0x1.5575b0be00b6ap-2, -0x1.ffffef20a4123p-2};
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr uint32_t kLowest = 0x3f330000, kExponent = 0x1ffu << 23;  // of z; sign and exponent

  if (std::isnan(x)) return x + x;
  if (x == 0) return -std::numeric_limits<float>::infinity();
  if (std::signbit(x)) return -std::numeric_limits<float>::quiet_NaN();
  if (std::isinf(x)) return x;
  const bool is_small = x < std::numeric_limits<float>::min();
  const uint32_t bits = std::bit_cast<uint32_t>(is_small ? x * 0x1p23f : x) - (is_small ? 23u << 23 : 0);
  if (bits == std::bit_cast<uint32_t>(1.0f)) return 0;
  const uint32_t above = bits - kLowest;
  const Entry& entry = kTable[above >> 19 & 15];
  const auto k = static_cast<double>(static_cast<int32_t>(above) >> 23);
  const auto z = static_cast<double>(std::bit_cast<float>(bits - (above & kExponent)));
  const double r = std::fma(z, entry.reciprocal, -1.0), squared = r * r;
  const double inner = std::fma(kPolynomial[0], squared, std::fma(kPolynomial[1], r, kPolynomial[2]));
  return static_cast<float>(std::fma(inner, squared, std::fma(k, kLn2, entry.logarithm) + r));
}

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_LOGARITHM_H_
