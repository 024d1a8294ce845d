// C++ wrapper over intact.h: RAII and views, header-only, no exceptions. The contract is told in intact.h.
#ifndef INTACT_INTACT_HPP_
#define INTACT_INTACT_HPP_

#include <intact/intact.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace intact {

/// Why a call failed. `message` names the argument and its value.
struct Error {
  intact_status status = INTACT_OK;
  std::string message;
};

/// A T, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  explicit operator bool() const noexcept { return value_.has_value(); }
  T& operator*() {
    assert(value_.has_value());
    return *value_;
  }
  const T& operator*() const {
    assert(value_.has_value());
    return *value_;
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }
  const Error& error() const noexcept { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

/// A row-major matrix somebody else owns; `stride` in elements between rows.
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* d, int64_t r, int64_t c) : data(d), rows(r), columns(c), stride(c) {}
  MatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), columns(c), stride(s) {}
};

/// The element type of a view; other types do not compile.
template <class T>
inline constexpr intact_type kTypeOf = kTypeOf<std::remove_const_t<T>>;
template <>
inline constexpr intact_type kTypeOf<uint8_t> = INTACT_U8;
template <>
inline constexpr intact_type kTypeOf<int8_t> = INTACT_S8;
template <>
inline constexpr intact_type kTypeOf<int32_t> = INTACT_S32;
template <>
inline constexpr intact_type kTypeOf<float> = INTACT_F32;

using GemmDesc = intact_gemm_desc;
inline GemmDesc MakeGemmDesc() { return INTACT_GEMM_DESC_INIT; }

/// A GEMM with fixed weights: C = Requantize(A·B + bias).
///
/// Immutable; Run() may be called from many threads at once. Dimensions and strides are in elements.
class Gemm {
 public:
  /// Copies and packs `b`, which is addressed by desc.b_stride_k and desc.b_stride_n; nothing is kept of the
  /// caller's memory. Errors: see intact_gemm_create().
  static Result<Gemm> Create(const GemmDesc& desc, const void* b) {
    intact_gemm* handle = nullptr;
    return Made(intact_gemm_create(&desc, b, &handle), &handle);
  }

  /// From a file that Save() wrote, on this or another machine; it must not change while the Gemm lives.
  /// Errors: see intact_gemm_load().
  static Result<Gemm> Load(const std::string& path, intact_isa max_isa = INTACT_ISA_ANY) {
    intact_gemm* handle = nullptr;
    return Made(intact_gemm_load(path.c_str(), max_isa, &handle), &handle);
  }

  /// Writes the packed weights; the file appears whole or not at all. An Error with INTACT_OK if it did.
  [[nodiscard]] Error Save(const std::string& path) const {
    const intact_status status = intact_gemm_save(handle_.get(), path.c_str());
    return {status, intact_last_error()};
  }

  /// `a` is m×k of the plan's a_type and `c` is m×n of its c_type; they must not overlap. Any m ≥ 1.
  /// threads = 0: OpenMP's default. Fails only on a view whose shape or element type is not the plan's
  /// (INVALID_ARGUMENT; where the wrapper finds it, intact_last_error() tells nothing) or when memory for A's
  /// panels runs out.
  template <class A, class C>
  [[nodiscard]] intact_status Run(MatrixView<const A> a, MatrixView<C> c, int threads = 0) const noexcept {
    intact_gemm_args args;
    const intact_status status = Arguments(a, c, threads, &args);
    return status != INTACT_OK ? status : intact_gemm_run(handle_.get(), &args);
  }

  /// The same for a plan with a residual: `residual` is m×n of its residual_type, and may be `c` itself.
  template <class A, class C, class R>
  [[nodiscard]] intact_status Run(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual,
                                  int threads = 0) const noexcept {
    intact_gemm_args args;
    const intact_status status = Arguments(a, c, residual, threads, &args);
    return status != INTACT_OK ? status : intact_gemm_run(handle_.get(), &args);
  }

  /// The share `part` of `parts` of the same run, for callers with a thread pool of their own.
  template <class A, class C>
  [[nodiscard]] intact_status RunPart(MatrixView<const A> a, MatrixView<C> c, int part,
                                      int parts) const noexcept {
    intact_gemm_args args;
    const intact_status status = Arguments(a, c, 0, &args);
    return status != INTACT_OK ? status : intact_gemm_run_part(handle_.get(), &args, part, parts);
  }

  template <class A, class C, class R>
  [[nodiscard]] intact_status RunPart(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual,
                                      int part, int parts) const noexcept {
    intact_gemm_args args;
    const intact_status status = Arguments(a, c, residual, 0, &args);
    return status != INTACT_OK ? status : intact_gemm_run_part(handle_.get(), &args, part, parts);
  }

  intact_gemm_info Info() const noexcept {
    intact_gemm_info info = INTACT_GEMM_INFO_INIT;
    (void)intact_gemm_query(handle_.get(), &info);
    return info;
  }

  intact_certificate Certificate() const noexcept {
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    (void)intact_gemm_certificate(handle_.get(), &certificate);
    return certificate;
  }

  const intact_gemm* handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(intact_gemm* handle) const noexcept { intact_gemm_destroy(handle); }
  };
  explicit Gemm(intact_gemm* handle) : handle_(handle), info_(Info()) {}

  static Result<Gemm> Made(intact_status status, intact_gemm** handle) {
    if (status != INTACT_OK) return Error{status, intact_last_error()};
    return Gemm(*handle);
  }

  template <class A, class C>
  intact_status Arguments(MatrixView<const A> a, MatrixView<C> c, int threads,
                          intact_gemm_args* args) const noexcept {
    if (kTypeOf<A> != info_.a_type || kTypeOf<C> != info_.c_type || a.columns != info_.k ||
        c.columns != info_.n || a.rows != c.rows) {
      return INTACT_INVALID_ARGUMENT;
    }
    *args = INTACT_GEMM_ARGS_INIT;
    args->m = a.rows;
    args->a = a.data;
    args->a_stride = a.stride;
    args->c = c.data;
    args->c_stride = c.stride;
    args->threads = threads;
    return INTACT_OK;
  }

  template <class A, class C, class R>
  intact_status Arguments(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual, int threads,
                          intact_gemm_args* args) const noexcept {
    if (kTypeOf<R> != info_.residual_type || residual.rows != c.rows || residual.columns != c.columns) {
      return INTACT_INVALID_ARGUMENT;
    }
    const intact_status status = Arguments(a, c, threads, args);
    if (status != INTACT_OK) return status;
    args->residual = residual.data;
    args->residual_stride = residual.stride;
    return INTACT_OK;
  }

  std::unique_ptr<intact_gemm, Destroy> handle_;
  intact_gemm_info info_;
};

using ConvDesc = intact_conv_desc;
inline ConvDesc MakeConvDesc() { return INTACT_CONV_DESC_INIT; }

/// A convolution with fixed weights: see intact_conv_desc for shapes and layouts.
///
/// Immutable; Run() may be called from many threads at once.
class Conv {
 public:
  /// Copies and packs `weights`; nothing is kept of the caller's memory. Errors: see intact_conv_create().
  static Result<Conv> Create(const ConvDesc& desc, const void* weights) {
    intact_conv* handle = nullptr;
    const intact_status status = intact_conv_create(&desc, weights, &handle);
    if (status != INTACT_OK) return Error{status, intact_last_error()};
    return Conv(handle);
  }

  /// Errors: see intact_conv_run(). Types and extents are the plan's; make `args` with INTACT_CONV_ARGS_INIT.
  [[nodiscard]] intact_status Run(const intact_conv_args& args) const noexcept {
    return intact_conv_run(handle_.get(), &args);
  }

  /// The share `part` of `parts` of the same run, for callers with a thread pool of their own.
  [[nodiscard]] intact_status RunPart(const intact_conv_args& args, int part, int parts) const noexcept {
    return intact_conv_run_part(handle_.get(), &args, part, parts);
  }

  intact_conv_info Info() const noexcept {
    intact_conv_info info = INTACT_CONV_INFO_INIT;
    (void)intact_conv_query(handle_.get(), &info);
    return info;
  }

  /// Made anew by each call; fails only if memory runs out.
  Result<intact_certificate> Certificate() const {
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    const intact_status status = intact_conv_certificate(handle_.get(), &certificate);
    if (status != INTACT_OK) return Error{status, intact_last_error()};
    return certificate;
  }

  const intact_conv* handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(intact_conv* handle) const noexcept { intact_conv_destroy(handle); }
  };
  explicit Conv(intact_conv* handle) : handle_(handle) {}

  std::unique_ptr<intact_conv, Destroy> handle_;
};

}  // namespace intact
#endif  // INTACT_INTACT_HPP_
