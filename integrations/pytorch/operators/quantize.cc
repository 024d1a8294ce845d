// intact::quantize: what torch.quantize_per_tensor computes, which Debian's PyTorch does element by element.
// The bytes are the same but for numbers beyond 2^63 steps, which it takes for the lowest value whatever
// their sign.
#include <algorithm>
#include <cmath>
#include <limits>

#include "integrations/pytorch/operators/common.h"

namespace intact_torch {
namespace {

// Numbers of one thread's turn at least.
constexpr int64_t kGrain = 32768;

// q = clamp(rne(x/scale) + zero_point), a NaN is the lowest. Compiled for AVX2 and for any CPU, chosen when
// loaded; none of its operations may differ between them: no contraction to FMA.
template <class Integer>
__attribute__((always_inline)) inline void QuantizeRange(const float* x, Integer* q, int64_t count,
                                                         float inverse, float zero_point) {
  constexpr float kLowest = std::numeric_limits<Integer>::min();
  constexpr float kHighest = std::numeric_limits<Integer>::max();
  for (int64_t i = 0; i < count; ++i) {
    const float shifted = std::nearbyint(x[i] * inverse) + zero_point;
    const float bounded = std::min(shifted > kLowest ? shifted : kLowest, kHighest);
    q[i] = static_cast<Integer>(static_cast<int32_t>(bounded));
  }
}

__attribute__((target_clones("avx2", "default"))) void QuantizeU8(const float* x, uint8_t* q, int64_t count,
                                                                  float inverse, float zero_point) {
  QuantizeRange(x, q, count, inverse, zero_point);
}

__attribute__((target_clones("avx2", "default"))) void QuantizeS8(const float* x, int8_t* q, int64_t count,
                                                                  float inverse, float zero_point) {
  QuantizeRange(x, q, count, inverse, zero_point);
}

at::Tensor Quantize(const at::Tensor& input, double scale, int64_t zero_point, at::ScalarType type) {
  const std::string layer = "quantize";
  if (input.scalar_type() != at::kFloat || !input.device().is_cpu()) {
    Fail(layer, "input is ", input.scalar_type(), " on ", input.device(), "; expected Float on cpu");
  }
  if (type != at::kQUInt8 && type != at::kQInt8) {
    Fail(layer, "dtype is ", type, "; expected quint8 or qint8");
  }
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor source = input.contiguous(format);
  at::Tensor output =
      at::_empty_affine_quantized(source.sizes(), at::TensorOptions().dtype(type), scale, zero_point, format);
  const float inverse = 1.0F / static_cast<float>(scale);
  const auto* const x = source.data_ptr<float>();
  void* const q = output.data_ptr();
  at::parallel_for(0, source.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const auto shift = static_cast<float>(zero_point);
    if (type == at::kQUInt8) {
      QuantizeU8(x + begin, static_cast<uint8_t*>(q) + begin, end - begin, inverse, shift);
    } else {
      QuantizeS8(x + begin, static_cast<int8_t*>(q) + begin, end - begin, inverse, shift);
    }
  });
  return output;
}

}  // namespace
}  // namespace intact_torch

TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("quantize(Tensor input, float scale, int zero_point, ScalarType dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(intact, CPU, library) { library.impl("quantize", intact_torch::Quantize); }
