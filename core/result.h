// Errors inside the project: those of the public interface, and what passes them on.
#ifndef INTACT_CORE_RESULT_H_
#define INTACT_CORE_RESULT_H_

#include <intact/result.hpp>
#include <utility>

#define INTACT_JOIN_AGAIN(a, b) a##b
#define INTACT_JOIN(a, b) INTACT_JOIN_AGAIN(a, b)

/// Evaluates an expression that gives an Error; if it is one, returns it from the function.
#define RETURN_IF_ERROR(...)                                                      \
  do {                                                                            \
    if (::intact::Error error_to_return = (__VA_ARGS__); !error_to_return.ok()) { \
      return error_to_return;                                                     \
    }                                                                             \
  } while (false)

/// ASSIGN_OR_RETURN(const Plan plan, MakePlan(shape)): `variable` becomes the value of a Result. If there is
/// none, returns the Result's error from the function. A type with a comma is written as `auto`.
#define ASSIGN_OR_RETURN(variable, ...) \
  INTACT_ASSIGN_OR_RETURN(INTACT_JOIN(result_, __LINE__), variable, __VA_ARGS__)
#define INTACT_ASSIGN_OR_RETURN(result, variable, ...) \
  auto result = (__VA_ARGS__);                         \
  if (!result) return result.error();                  \
  variable = std::move(*result)

#endif  // INTACT_CORE_RESULT_H_
