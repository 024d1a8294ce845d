/// @file
/// C++20 wrapper over bound.h.
#ifndef INTACT_BOUND_HPP_
#define INTACT_BOUND_HPP_

#include <intact/bound.h>

#include <intact/intact.hpp>
#include <memory>

namespace intact {

/// A plan and the arguments of its runs, checked once: see intact_gemm_bind(). The plan and the memory that
/// the arguments point to must outlive this object. Moving the plan is allowed.
///
/// Move-only; a moved-from Bound may only be assigned to or destroyed. One thread at a time may call Run().
class Bound {
 public:
  /// Binds arguments of the C ABI; the caller is responsible for element types. Errors: see
  /// intact_gemm_bind().
  static Result<Bound> Create(const Gemm& plan, const intact_gemm_args& args) {
    intact_bound* handle = nullptr;
    return Adopt(intact_gemm_bind(plan.handle(), &args, &handle), &handle);
  }
  /// As for a Gemm. Errors: see intact_conv_bind().
  static Result<Bound> Create(const Conv& plan, const intact_conv_args& args) {
    intact_bound* handle = nullptr;
    return Adopt(intact_conv_bind(plan.handle(), &args, &handle), &handle);
  }

  /// Computes the outputs: see intact_bound_run().
  Error Run() { return detail::LastError(intact_bound_run(handle_.get())); }

 private:
  struct Destroy {
    void operator()(intact_bound* handle) const noexcept { intact_bound_destroy(handle); }
  };
  explicit Bound(intact_bound* handle) : handle_(handle) {}
  /// The Bound for `handle`, or the error if `status` is one.
  static Result<Bound> Adopt(intact_status status, intact_bound** handle) {
    if (status != INTACT_OK) return detail::LastError(status);
    return Bound(*handle);
  }

  std::unique_ptr<intact_bound, Destroy> handle_;
};

}  // namespace intact
#endif  // INTACT_BOUND_HPP_
