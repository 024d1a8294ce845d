// PyTorch's operators on intact, through LibTorch's stable ABI: one library serves torch 2.10 and later.
//
//   aten::_int_mm, aten::_int_mm.out    s8 or u8 × s8 → s32; while intact_pytorch_enable() is in force
//   intact::int_mm                      the same, always; for programs that AOTInductor compiles
//
// layers.cc has the operators of quantized layers.
//
// The weights come with each call and may have changed since the last one, so a plan holds none (runtime B).
// A plan depends on types, sizes and strides only.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <exception>
#include <intact/intact.hpp>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "run.h"
#include "tensors.h"

namespace intact::pytorch {
namespace {

using torch::stable::detail::StableLibrary;

template <class... Words>
std::string Text(const Words&... words) {
  std::ostringstream text;
  (text << ... << words);
  return text.str();
}

// PyTorch's own checks, in its order and words.

template <class... Words>
void Expect(bool is_met, const Words&... words) {
  if (!is_met) throw std::runtime_error(Text("int_mm_out_cpu: ", words...));
}

// PyTorch throws an IndexError here, which the stable ABI cannot.
int64_t SizeOf(const Tensor& tensor, int64_t dim) {
  const int64_t dims = tensor.dim();
  if (dim < dims) return tensor.size(dim);
  throw std::runtime_error(dims == 0 ? Text("Dimension specified as ", dim, " but tensor has no dimensions")
                                     : Text("Dimension out of range (expected to be in range of [", -dims,
                                            ", ", dims - 1, "], but got ", dim, ")"));
}

/// The name of the C++ type, as GCC writes it in PyTorch.
std::string NameOf(ScalarType type) {
  static const std::map<ScalarType, std::string> kNames = {
      {ScalarType::Byte, "unsigned char"},
      {ScalarType::Char, "signed char"},
      {ScalarType::Short, "short int"},
      {ScalarType::Int, "int"},
      {ScalarType::Long, "long int"},
      {ScalarType::UInt16, "short unsigned int"},
      {ScalarType::UInt32, "unsigned int"},
      {ScalarType::UInt64, "long unsigned int"},
      {ScalarType::Half, "c10::Half"},
      {ScalarType::BFloat16, "c10::BFloat16"},
      {ScalarType::Float, "float"},
      {ScalarType::Double, "double"},
      {ScalarType::ComplexFloat, "c10::complex<float>"},
      {ScalarType::ComplexDouble, "c10::complex<double>"},
      {ScalarType::Bool, "bool"},
  };
  const auto found = kNames.find(type);
  return found != kNames.end() ? found->second : torch::headeronly::toString(type);
}

void CheckCall(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  Expect(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  Expect(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  Expect(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1),
         " and ", mat2.size(0));
  Expect(self.scalar_type() == ScalarType::Char || self.scalar_type() == ScalarType::Byte,
         "Expected self dtype to be int8 or uint8 but got ", NameOf(self.scalar_type()));
  Expect(mat2.scalar_type() == ScalarType::Char, "Expected mat2 dtype to be of type int8 but got ",
         NameOf(mat2.scalar_type()));
  Expect(out.scalar_type() == ScalarType::Int, "Expected result dtype to be of type kInt but got ",
         NameOf(out.scalar_type()));
  Expect(SizeOf(out, 0) == self.size(0), "Expected result.size(0) to be ", self.size(0), " but got ",
         SizeOf(out, 0));
  Expect(SizeOf(out, 1) == mat2.size(1), "Expected result.size(1) to be ", mat2.size(1), " but got ",
         SizeOf(out, 1));
  Expect(out.dim() == 2, "Expected result to be of dimension 2 but got ", out.dim());
  Expect(out.is_contiguous(), "Expected result to be contiguous.");
}

// Plans.

struct Key {
  int32_t a_type;
  int64_t n, k, b_stride_k, b_stride_n;
  bool operator==(const Key&) const = default;
};

/// The plans that were used last. Thread-safe.
class Plans {
 public:
  std::shared_ptr<const Gemm> Get(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
    } else {
      plans_.emplace_front(key, std::make_shared<const Gemm>(Make(key)));
      if (plans_.size() > kMost) plans_.pop_back();
    }
    return plans_.front().second;
  }

 private:
  static Gemm Make(const Key& key) {
    GemmDesc desc = MakeGemmDesc();
    desc.n = key.n;
    desc.k = key.k;
    desc.b_stride_k = key.b_stride_k;
    desc.b_stride_n = key.b_stride_n;
    desc.runtime_b = 1;
    desc.linear.a_type = key.a_type;
    desc.linear.overflow = INTACT_OVERFLOW_WRAPS;
    auto plan = Gemm::Create(desc, nullptr);
    if (!plan) throw std::runtime_error("intact: " + plan.error().message);
    return std::move(*plan);
  }

  // More than a network has shapes. Shapes that change with every call must not fill memory.
  static constexpr size_t kMost = 128;

  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Gemm>>> plans_;
};

Plans& ThePlans() {
  static Plans plans;
  return plans;
}

// Runs.

constexpr int64_t kMostStride = int64_t{1} << 40;

/// Whether elements lie in lines of `inner` adjacent elements, and lines do not overlap.
bool HasLines(int64_t outer, int64_t inner, int64_t outer_stride, int64_t inner_stride) {
  return (inner == 1 || inner_stride == 1) &&
         (outer == 1 || (outer_stride >= inner && outer_stride <= kMostStride));
}

/// Strides of B's depths and columns, or nothing if elements share a place.
std::optional<std::array<int64_t, 2>> StridesOf(const Tensor& b) {
  const int64_t k = b.size(0), n = b.size(1);
  int64_t of_k = b.stride(0), of_n = b.stride(1);
  // The stride of a dimension with one element has no meaning and may be 0.
  if (n == 1) of_n = 1;
  if (k == 1) of_k = (n - 1) * of_n + 1;
  if (n == 1) of_n = (k - 1) * of_k + 1;
  const bool is_apart = of_k >= 1 && of_n >= 1 && (of_k > (n - 1) * of_n || of_n > (k - 1) * of_k);
  if (!is_apart || of_k > kMostStride || of_n > kMostStride) return std::nullopt;
  return std::array{of_k, of_n};
}

Tensor IntMmOut(Tensor self, Tensor mat2, Tensor out) {
  CheckCall(self, mat2, out);
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  if (m == 0 || n == 0) return out;
  if (k == 0) return torch::stable::zero_(out);

  auto b_strides = StridesOf(mat2);
  if (!b_strides) {
    mat2 = torch::stable::contiguous(mat2);
    b_strides = {n, 1};
  }
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  if (HasLines(m, k, self.stride(0), self.stride(1))) {
    args.a_stride = m == 1 ? k : self.stride(0);
  } else if (HasLines(k, m, self.stride(1), self.stride(0))) {
    args.a_transposed = 1;
    args.a_stride = k == 1 ? m : self.stride(1);
  } else {
    self = torch::stable::contiguous(self);
  }
  args.m = m;
  args.a = self.const_data_ptr();
  args.b = mat2.const_data_ptr();
  args.c = out.mutable_data_ptr();
  const int32_t a_type = self.scalar_type() == ScalarType::Byte ? INTACT_U8 : INTACT_S8;
  const auto plan = ThePlans().Get({a_type, n, k, (*b_strides)[0], (*b_strides)[1]});
  RunParts({m, n, k}, [&](int32_t part, int32_t parts) {
    return intact_gemm_run_part(plan->handle(), &args, part, parts);
  });
  return out;
}

Tensor IntMm(const Tensor& self, const Tensor& mat2) {
  const std::array sizes{SizeOf(self, 0), SizeOf(mat2, 1)};
  return IntMmOut(self, mat2, torch::stable::new_empty(self, sizes, ScalarType::Int));
}

/// While it exists, the dispatcher calls the kernels above in place of PyTorch's.
class Registration {
 public:
  Registration() : library_(StableLibrary::Kind::IMPL, "aten", "CPU", __FILE__, __LINE__) {
    library_.impl("_int_mm", TORCH_BOX(&IntMm));
    library_.impl("_int_mm.out", TORCH_BOX(&IntMmOut));
  }

 private:
  StableLibrary library_;
};

}  // namespace
}  // namespace intact::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(intact, library) { library.def("int_mm(Tensor self, Tensor mat2) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("int_mm", TORCH_BOX(&intact::pytorch::IntMm));
}

/// Registers the kernels for PyTorch's operators, or removes them. Returns nullptr, or what went wrong, for
/// the calling thread until its next call.
extern "C" __attribute__((visibility("default"))) const char* intact_pytorch_enable(int is_enabled) {
  static std::mutex mutex;
  static std::unique_ptr<intact::pytorch::Registration> registration;
  thread_local std::string error;
  const std::lock_guard lock(mutex);
  try {
    if (!is_enabled) registration.reset();
    if (is_enabled && !registration) registration = std::make_unique<intact::pytorch::Registration>();
    return nullptr;
  } catch (const std::exception& exception) {
    error = exception.what();
    return error.c_str();
  }
}
