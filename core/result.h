// Error and Result of the public interface, and macros that pass errors on.
#ifndef INTACT_CORE_RESULT_H_
#define INTACT_CORE_RESULT_H_

#include <intact/result.hpp>
#include <utility>

#define INTACT_JOIN_AGAIN(a, b) a##b
#define INTACT_JOIN(a, b) INTACT_JOIN_AGAIN(a, b)

/// Evaluates an expression of type Error. Returns this Error from the function unless it is ok().
#define RETURN_IF_ERROR(...)                                                      \
  do {                                                                            \
    if (::intact::Error error_to_return = (__VA_ARGS__); !error_to_return.ok()) { \
      return error_to_return;                                                     \
    }                                                                             \
  } while (false)

/// ASSIGN_OR_RETURN(const Plan plan, MakePlan(shape)): `variable` gets the value of a Result. If there is no
/// value, returns the Result's error from the function. A type with a comma is written as `auto`. These are
/// several statements: after an `if` they need braces.
#define ASSIGN_OR_RETURN(variable, ...) \
  INTACT_ASSIGN_OR_RETURN(INTACT_JOIN(result_, __LINE__), variable, __VA_ARGS__)
#define INTACT_ASSIGN_OR_RETURN(result, variable, ...) \
  auto result = (__VA_ARGS__);                         \
  if (!result) return result.error();                  \
  variable = std::move(*result)

#endif  // INTACT_CORE_RESULT_H_
