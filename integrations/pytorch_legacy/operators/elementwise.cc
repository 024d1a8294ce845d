// Elementwise operators of networks, with PyTorch's bytes in less time:
//
//   intact::add, intact::add_relu   two 8-bit tensors → one; the sum is requantized
//   intact::quantize                float32 → quint8 or qint8
//
// The arithmetic is that of PyTorch on a CPU with AVX2 and FMA, run on one thread:
//
//   real(q)    fma(scale, float(q), −scale·zero_point) in whole blocks of kBlock elements; in the tail
//              (float(q) − zero_point)·scale
//   round(f)   clamp(rne(f·(1/scale)) + zero_point); for NaNs, and from 2⁶³ on, the smallest value.
//              PyTorch with FBGEMM quantizes, and rounds the tails of sums, with FBGEMM's arithmetic:
//              clamp(rne(fma(f, 1/scale, zero_point))); for NaNs, and from 2⁶³ on, the largest value
//
// On several threads, each thread of PyTorch has a tail, so PyTorch's bytes depend on their number; the bytes
// of these operators do not. PyTorch's operator handles other cases: operands of two shapes or layouts, per
// channel, of other types, or neither contiguous nor channels-last, such as NWC, slices and transposes. There
// PyTorch uses another loop, with other bytes. qnnpack has other bytes too: its kernel adds quint8 if it is
// PyTorch's engine.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>
#include <limits>

#include "integrations/pytorch_legacy/operators/common.h"

namespace intact_torch {
namespace {

constexpr int64_t kBlock = 64;        // elements in an iteration of PyTorch's loop
constexpr int64_t kGrain = 64 * 512;  // elements that are worth a thread: whole blocks

// The compiler vectorizes these loops for each level. The loader chooses one for the CPU.
#define INTACT_TORCH_INLINE inline __attribute__((always_inline))
#define INTACT_TORCH_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

struct Affine {
  float scale;
  float zero_point;
};

// rne(f/scale + zero_point_before) + zero_point_after. One of the zero points is 0.
struct Rounding {
  float inverse_scale;
  float zero_point_before;
  float least, largest;  // bounds of rounded values
  float exceptional;     // replaces NaNs, and values from 2⁶³ on
  int32_t zero_point_after;
};

template <class T>
Rounding RoundingOfBlocks(double scale, int64_t zero_point) {
  const auto least = static_cast<float>(std::numeric_limits<T>::min() - zero_point);
  const auto largest = static_cast<float>(std::numeric_limits<T>::max() - zero_point);
  return {1.0f / static_cast<float>(scale), 0, least, largest, least, static_cast<int32_t>(zero_point)};
}

// Whether this PyTorch quantizes with FBGEMM. Packages from PyPI do, Debian's do not.
bool QuantizesWithFbgemm() {
  static const bool kResult =
      at::quantize_per_tensor(at::full({1}, 0.5), 1, 1, at::kQUInt8).int_repr().item<int64_t>() == 2;
  return kResult;
}

template <class T>
Rounding RoundingTo(double scale, int64_t zero_point) {
  if (!QuantizesWithFbgemm()) return RoundingOfBlocks<T>(scale, zero_point);
  const float least = std::numeric_limits<T>::min();
  const float largest = std::numeric_limits<T>::max();
  return {1.0f / static_cast<float>(scale), static_cast<float>(zero_point), least, largest, largest, 0};
}

template <class T>
INTACT_TORCH_INLINE T Round(float f, const Rounding& to) {
  const float scaled = __builtin_fmaf(f, to.inverse_scale, to.zero_point_before);
  const float rounded = scaled < 0x1p63f ? __builtin_rintf(scaled) : to.exceptional;
  const float floored = rounded > to.least ? rounded : to.least;
  const float bounded = floored < to.largest ? floored : to.largest;
  return static_cast<T>(static_cast<int32_t>(bounded) + to.zero_point_after);
}

// `floor`: 0 for ReLU, else −∞.
template <class T>
INTACT_TORCH_INLINE void AddBlocks(const T* a, const T* b, int64_t count, Affine of_a, Affine of_b,
                                   float floor, const Rounding& to, T* c) {
  const float begin_a = -of_a.zero_point * of_a.scale;
  const float begin_b = -of_b.zero_point * of_b.scale;
  for (int64_t i = 0; i < count; ++i) {
    const float sum = __builtin_fmaf(of_a.scale, static_cast<float>(a[i]), begin_a) +
                      __builtin_fmaf(of_b.scale, static_cast<float>(b[i]), begin_b);
    c[i] = Round<T>(sum > floor ? sum : floor, to);
  }
}

INTACT_TORCH_CLONES
void AddBlocksOfU8(const uint8_t* a, const uint8_t* b, int64_t count, Affine of_a, Affine of_b, float floor,
                   Rounding to, uint8_t* c) {
  AddBlocks(a, b, count, of_a, of_b, floor, to, c);
}
INTACT_TORCH_CLONES
void AddBlocksOfS8(const int8_t* a, const int8_t* b, int64_t count, Affine of_a, Affine of_b, float floor,
                   Rounding to, int8_t* c) {
  AddBlocks(a, b, count, of_a, of_b, floor, to, c);
}
void AddWholeBlocks(const uint8_t* a, const uint8_t* b, int64_t count, Affine of_a, Affine of_b, float floor,
                    const Rounding& to, uint8_t* c) {
  AddBlocksOfU8(a, b, count, of_a, of_b, floor, to, c);
}
void AddWholeBlocks(const int8_t* a, const int8_t* b, int64_t count, Affine of_a, Affine of_b, float floor,
                    const Rounding& to, int8_t* c) {
  AddBlocksOfS8(a, b, count, of_a, of_b, floor, to, c);
}

INTACT_TORCH_CLONES
void QuantizeToU8(const float* x, int64_t count, Rounding to, uint8_t* c) {
  for (int64_t i = 0; i < count; ++i) c[i] = Round<uint8_t>(x[i], to);
}
INTACT_TORCH_CLONES
void QuantizeToS8(const float* x, int64_t count, Rounding to, int8_t* c) {
  for (int64_t i = 0; i < count; ++i) c[i] = Round<int8_t>(x[i], to);
}

Affine AffineOf(const at::Tensor& tensor) {
  return {static_cast<float>(tensor.q_scale()), static_cast<float>(tensor.q_zero_point())};
}

template <class T>
void Add(const at::Tensor& a, const at::Tensor& b, bool relu, const at::Tensor& c) {
  const Affine of_a = AffineOf(a);
  const Affine of_b = AffineOf(b);
  const Rounding of_blocks = RoundingOfBlocks<T>(c.q_scale(), c.q_zero_point());
  const Rounding of_tail = RoundingTo<T>(c.q_scale(), c.q_zero_point());
  const float floor = relu ? 0.0f : -std::numeric_limits<float>::infinity();
  const auto* const from_a = static_cast<const T*>(a.data_ptr());
  const auto* const from_b = static_cast<const T*>(b.data_ptr());
  auto* const sums = static_cast<T*>(c.data_ptr());
  const int64_t whole = c.numel() / kBlock * kBlock;
  at::parallel_for(0, whole / kBlock, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kBlock;
    AddWholeBlocks(from_a + first, from_b + first, (end - begin) * kBlock, of_a, of_b, floor, of_blocks,
                   sums + first);
  });
  for (int64_t i = whole; i < c.numel(); ++i) {
    const float sum = (static_cast<float>(from_a[i]) - of_a.zero_point) * of_a.scale +
                      (static_cast<float>(from_b[i]) - of_b.zero_point) * of_b.scale;
    sums[i] = Round<T>(sum > floor ? sum : floor, of_tail);
  }
}

// Whether the elements of both have one order in memory, which is also the order of Like().
bool AreAlike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_contiguous(a.suggest_memory_format());
}

// An uninitialized tensor for a result, in PyTorch's layout: channels-last if `tensor` is, else contiguous.
at::Tensor Like(const at::Tensor& tensor, at::ScalarType type, double scale, int64_t zero_point) {
  return at::_empty_affine_quantized(tensor.sizes(), at::TensorOptions().dtype(type), scale, zero_point,
                                     tensor.suggest_memory_format());
}

// Names for errors: the layer, if the caller gave it, and the operator.
Options Named(c10::string_view layer, const char* name) {
  return {layer.empty() ? name : std::string(layer) + ": " + name, {}, {}};
}

at::Tensor RunAdd(const at::Tensor& a, const at::Tensor& b, double scale, int64_t zero_point, bool relu,
                  c10::string_view layer) {
  const Options options = Named(layer, relu ? "add_relu" : "add");
  for (const auto& [name, tensor] : {std::pair("a", a), std::pair("b", b)}) {
    if (!tensor.is_quantized()) {
      Fail(options.layer, name, " is ", tensor.scalar_type(), "; expected a quantized tensor");
    }
  }
  const bool is_served =
      IsActivation(a) && IsActivation(b) && a.scalar_type() == b.scalar_type() && AreAlike(a, b);
  if (!is_served) {
    static const auto kAdd = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("quantized::add", "")
                                 .typed<at::Tensor(at::Tensor, at::Tensor, double, int64_t)>();
    static const auto kAddRelu = c10::Dispatcher::singleton()
                                     .findSchemaOrThrow("quantized::add_relu", "")
                                     .typed<at::Tensor(at::Tensor, at::Tensor, double, int64_t)>();
    try {
      return (relu ? kAddRelu : kAdd).call(a, b, scale, zero_point);
    } catch (const c10::Error& error) {
      Fail(options.layer, error.what_without_backtrace());
    }
  }
  CheckAffine("", scale, zero_point, a.scalar_type(), options);
  at::Tensor c = Like(a, a.scalar_type(), scale, zero_point);
  a.scalar_type() == at::kQUInt8 ? Add<uint8_t>(a, b, relu, c) : Add<int8_t>(a, b, relu, c);
  return c;
}

at::Tensor RunAddPlain(const at::Tensor& a, const at::Tensor& b, double scale, int64_t zero_point,
                       c10::string_view layer) {
  return RunAdd(a, b, scale, zero_point, false, layer);
}

at::Tensor RunAddRelu(const at::Tensor& a, const at::Tensor& b, double scale, int64_t zero_point,
                      c10::string_view layer) {
  return RunAdd(a, b, scale, zero_point, true, layer);
}

at::Tensor RunQuantize(const at::Tensor& x, double scale, int64_t zero_point, at::ScalarType type,
                       c10::string_view layer) {
  const Options options = Named(layer, "quantize");
  CheckReal("input", x, options);
  if (type != at::kQUInt8 && type != at::kQInt8) {
    Fail(options.layer, "dtype is ", type, "; expected quint8 or qint8");
  }
  CheckAffine("", scale, zero_point, type, options);
  const at::Tensor dense = x.contiguous(x.suggest_memory_format());  // the layout of PyTorch's result
  at::Tensor c = Like(x, type, scale, zero_point);
  const auto* const from = dense.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (type == at::kQUInt8) {
      QuantizeToU8(from + begin, end - begin, RoundingTo<uint8_t>(scale, zero_point),
                   static_cast<uint8_t*>(c.data_ptr()) + begin);
    } else {
      QuantizeToS8(from + begin, end - begin, RoundingTo<int8_t>(scale, zero_point),
                   static_cast<int8_t*>(c.data_ptr()) + begin);
    }
  });
  return c;
}

}  // namespace
}  // namespace intact_torch

TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("add(Tensor a, Tensor b, float scale, int zero_point, str layer='') -> Tensor");
  library.def("add_relu(Tensor a, Tensor b, float scale, int zero_point, str layer='') -> Tensor");
  library.def(
      "quantize(Tensor input, float scale, int zero_point, ScalarType dtype, str layer='') -> Tensor");
}

// For every backend, so that a message with the operator's name reports a tensor of the wrong kind.
TORCH_LIBRARY_IMPL(intact, CompositeExplicitAutograd, library) {
  library.impl("add", intact_torch::RunAddPlain);
  library.impl("add_relu", intact_torch::RunAddRelu);
  library.impl("quantize", intact_torch::RunQuantize);
}
