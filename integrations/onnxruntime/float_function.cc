#include "float_function.h"

#include <emmintrin.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>

namespace intact::onnxruntime {
namespace {

using Parameters = FloatFunction::Parameters;

constexpr int64_t kLanes = 4;
constexpr int64_t kElementsOfTask = 1 << 13;

__m128 Set(float value) { return _mm_set1_ps(value); }
__m128 Select(__m128 mask, __m128 a, __m128 b) {
  return _mm_or_ps(_mm_and_ps(mask, a), _mm_andnot_ps(mask, b));
}
__m128 MulAdd(__m128 a, __m128 b, __m128 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
// x if one is a NaN, or if they are equal.
__m128 Max(__m128 x, __m128 y) { return _mm_max_ps(y, x); }
__m128 Min(__m128 x, __m128 y) { return _mm_min_ps(y, x); }

__m128 PowerOf2(__m128i exponent) {
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(exponent, _mm_set1_epi32(127)), 23));
}

// x = m·2^e with m from ½ to below 1; positive numbers only.
struct Parts {
  __m128 m, e;
};
Parts PartsOf(__m128 x) {
  const __m128 is_denormal = _mm_cmplt_ps(x, Set(0x1p-126f));
  const __m128i bits = _mm_castps_si128(Select(is_denormal, _mm_mul_ps(x, Set(0x1p24f)), x));
  const __m128i e = _mm_sub_epi32(_mm_srli_epi32(bits, 23), _mm_set1_epi32(126));
  const __m128i m = _mm_or_si128(_mm_and_si128(bits, _mm_set1_epi32(0x007fffff)), _mm_set1_epi32(0x3f000000));
  return {_mm_castsi128_ps(m), _mm_sub_ps(_mm_cvtepi32_ps(e), _mm_and_ps(is_denormal, Set(24)))};
}

// log(x) = e·ln 2 + log(1 + r) with 1 + r from √½ to √2: a rational function of degree (3, 3).
__m128 Log(__m128 x) {
  const Parts parts = PartsOf(x);
  const __m128 is_small = _mm_cmplt_ps(parts.m, Set(0.707106781186547524f));
  const __m128 e = _mm_sub_ps(parts.e, _mm_and_ps(is_small, Set(1)));
  const __m128 r = _mm_add_ps(_mm_sub_ps(parts.m, Set(1)), _mm_and_ps(is_small, parts.m));
  __m128 p = MulAdd(r, Set(0.18256296349849254f), Set(1.0000000190281063f));
  p = _mm_mul_ps(r, MulAdd(r, p, Set(1.0000000190281136f)));
  __m128 q = MulAdd(r, Set(0.049616247954120038f), Set(0.59923249590823520f));
  q = MulAdd(r, MulAdd(r, q, Set(1.4999999999999927f)), Set(1));
  __m128 y = MulAdd(e, Set(0.693147180559945309f), _mm_div_ps(p, q));
  const __m128 infinity = Set(INFINITY), zero = _mm_setzero_ps();
  y = Select(_mm_cmpeq_ps(x, infinity), infinity, y);
  y = _mm_or_ps(y, _mm_cmpnge_ps(x, zero));  // negative, or a NaN
  return Select(_mm_cmpeq_ps(x, zero), Set(-INFINITY), y);
}

// log(1 + x), by W. Kahan's formula.
__m128 Log1p(__m128 x) {
  const __m128 sum = _mm_add_ps(x, Set(1)), log = Log(sum);
  const __m128 is_x = _mm_or_ps(_mm_cmpeq_ps(sum, Set(1)), _mm_cmpeq_ps(sum, log));
  return Select(is_x, x, _mm_mul_ps(x, _mm_div_ps(log, _mm_sub_ps(sum, Set(1)))));
}

// The largest integer that is at most x, for |x| below 2^31.
__m128 Floor(__m128 x) {
  const __m128 cut = _mm_cvtepi32_ps(_mm_cvttps_epi32(x));
  return _mm_sub_ps(cut, _mm_and_ps(_mm_cmpgt_ps(cut, x), Set(1)));
}

// y·2^m for integers |m| < 278, rounded once.
__m128 Scale(__m128 y, __m128 m) {
  const __m128i e = _mm_cvtps_epi32(m), quarter = _mm_srai_epi32(e, 2);
  const __m128 factor = PowerOf2(quarter);
  y = _mm_mul_ps(_mm_mul_ps(_mm_mul_ps(y, factor), factor), factor);
  const __m128i rest = _mm_sub_epi32(_mm_sub_epi32(_mm_sub_epi32(e, quarter), quarter), quarter);
  return _mm_mul_ps(y, PowerOf2(rest));
}

// exp(x) = 2^m·exp(r) with r = x − m·ln 2 from −½·ln 2 to ½·ln 2: a polynomial of degree 6.
__m128 Exp(__m128 x) {
  const __m128 least = Set(-104), clamped = _mm_min_ps(Set(88.723f), x);
  const __m128 m = Floor(MulAdd(_mm_max_ps(least, clamped), Set(1.44269504088896341f), Set(0.5f)));
  __m128 r = MulAdd(m, Set(-0.693359375f), clamped);
  r = MulAdd(m, Set(2.12194440e-4f), r);
  const __m128 square = _mm_mul_ps(r, r);
  __m128 even = MulAdd(square, Set(1.37449637986719608306884765625e-3f), Set(4.166965186595916748046875e-2f));
  even = MulAdd(square, even, Set(0.49999988079071044921875f));
  const __m128 odd =
      MulAdd(square, Set(8.36894474923610687255859375e-3f), Set(0.16666518151760101318359375f));
  const __m128 y = MulAdd(square, MulAdd(r, odd, even), _mm_add_ps(r, Set(1)));
  return _mm_andnot_ps(_mm_cmplt_ps(x, least), Max(Scale(y, m), x));
}

__m128 Celu(__m128 x, const Parameters& given) {
  const __m128 alpha = Set(given.alpha), zero = _mm_setzero_ps();
  const __m128 below = _mm_mul_ps(alpha, _mm_sub_ps(Exp(_mm_div_ps(x, alpha)), Set(1)));
  return _mm_add_ps(Max(x, zero), Min(below, zero));
}

__m128 Elu(__m128 x, const Parameters& given) {
  const __m128 below = _mm_mul_ps(Set(given.alpha), _mm_sub_ps(Exp(x), Set(1)));
  return Select(_mm_cmpge_ps(x, _mm_setzero_ps()), x, below);
}

__m128 Logarithm(__m128 x, const Parameters&) { return Log(x); }

__m128 Selu(__m128 x, const Parameters& given) {
  const __m128 zero = _mm_setzero_ps(), factor = Set(given.gamma * given.alpha);
  const __m128 below = _mm_mul_ps(factor, _mm_sub_ps(Exp(x), Set(1)));
  return _mm_add_ps(_mm_mul_ps(Set(given.gamma), Max(x, zero)), Min(below, zero));
}

__m128 Power(__m128 x, const Parameters&) { return Exp(x); }

__m128 Logistic(__m128 x, const Parameters&) {
  return _mm_div_ps(Set(1), _mm_add_ps(Set(1), Exp(_mm_sub_ps(_mm_setzero_ps(), x))));
}

__m128 Softplus(__m128 x, const Parameters&) {
  const __m128 is_positive = _mm_cmpgt_ps(x, _mm_setzero_ps());
  const __m128 log = Log1p(Exp(Select(is_positive, _mm_sub_ps(_mm_setzero_ps(), x), x)));
  return Select(is_positive, _mm_add_ps(x, log), log);
}

template <__m128 (*function)(__m128, const Parameters&)>
void Apply(const float* x, float* y, int64_t count, const Parameters& parameters) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) _mm_storeu_ps(y + i, function(_mm_loadu_ps(x + i), parameters));
  if (i == count) return;
  std::array<float, kLanes> last;
  last.fill(1);
  std::copy(x + i, x + count, last.begin());
  _mm_storeu_ps(last.data(), function(_mm_loadu_ps(last.data()), parameters));
  std::copy_n(last.begin(), count - i, y + i);
}

}  // namespace

struct FloatFunction::Kind {
  const char* type;
  void (*apply)(const float* x, float* y, int64_t count, const Parameters& parameters);
  Parameters otherwise;  // where the node does not give them
};

namespace {

const FloatFunction::Kind kKinds[] = {
    {"Celu", Apply<Celu>, {1, 1}},
    {"Elu", Apply<Elu>, {1, 1}},
    {"Log", Apply<Logarithm>, {1, 1}},
    {"Selu", Apply<Selu>, {1.67326319217681884765625f, 1.05070102214813232421875f}},
    {"Softplus", Apply<Softplus>, {1, 1}},
};

const FloatFunction::Kind& KindOf(const std::string& type) {
  for (const FloatFunction::Kind& kind : kKinds)
    if (type == kind.type) return kind;
  throw Refusal("operator: is " + type + "; expected a function of floats");
}

}  // namespace

void Exponential(const float* x, float* y, int64_t count) { Apply<Power>(x, y, count, {}); }

void Sigmoid(const float* x, float* y, int64_t count) { Apply<Logistic>(x, y, count, {}); }

FloatFunction::FloatFunction(const Node& node, const Context& context, const std::string& type)
    : kind_(KindOf(type)),
      parameters_{node.Float("alpha", kind_.otherwise.alpha), node.Float("gamma", kind_.otherwise.gamma)} {
  node.Type(0, {INTACT_F32});
  context.RequireReproducible();
}

std::string FloatFunction::Kernel() const {
  std::string name = kind_.type;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name + "_f32";
}

void FloatFunction::Compute(Run& run) const {
  const auto input = run.Input(0);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  const auto* const x = static_cast<const float*>(input.GetTensorRawData());
  auto* const y = static_cast<float*>(run.Output(shape));
  const int64_t count = CountOf(shape);
  run.ForEach((count + kElementsOfTask - 1) / kElementsOfTask, [&](int64_t task) {
    const int64_t begin = task * kElementsOfTask;
    kind_.apply(x + begin, y + begin, std::min(kElementsOfTask, count - begin), parameters_);
  });
}

}  // namespace intact::onnxruntime
