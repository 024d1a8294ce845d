/// @file
/// What calls that can fail return. intact.hpp includes it.
#ifndef INTACT_RESULT_HPP_
#define INTACT_RESULT_HPP_

#include <intact/intact.h>

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace intact {

/// Whether a call succeeded, and if not, why.
struct [[nodiscard]] Error {
  intact_status status = INTACT_OK;  ///< INTACT_OK: it succeeded
  std::string message;               ///< names the argument, its value and what was expected

  /// Whether the call succeeded.
  bool ok() const noexcept { return status == INTACT_OK; }
};

/// A T, or the Error why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  /// A success.
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  /// A failure.
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  /// Whether there is a value.
  explicit operator bool() const noexcept { return value_.has_value(); }
  /// The value; there must be one.
  T& operator*() {
    assert(value_.has_value());
    return *value_;
  }
  /// The value; there must be one.
  const T& operator*() const {
    assert(value_.has_value());
    return *value_;
  }
  /// The value's members; there must be a value.
  T* operator->() { return &**this; }
  /// The value's members; there must be a value.
  const T* operator->() const { return &**this; }
  /// Why there is no value; ok() if there is one.
  const Error& error() const noexcept { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

}  // namespace intact
#endif  // INTACT_RESULT_HPP_
