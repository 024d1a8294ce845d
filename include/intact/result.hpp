/// @file
/// The types that calls return if they can fail. intact.hpp includes this file.
#ifndef INTACT_RESULT_HPP_
#define INTACT_RESULT_HPP_

#include <intact/intact.h>

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace intact {

/// A call's success, or its failure and the reason.
struct [[nodiscard]] Error {
  intact_status status = INTACT_OK;  ///< INTACT_OK: the call succeeded
  std::string message;               ///< names the argument, its value and what was expected

  /// Whether the call succeeded.
  bool ok() const noexcept { return status == INTACT_OK; }
};

/// A T, or the Error of the call that failed to make one.
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
  /// The failure; ok() if there is a value.
  const Error& error() const noexcept { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

}  // namespace intact
#endif  // INTACT_RESULT_HPP_
