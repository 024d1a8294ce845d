// The version of the arithmetic.
#ifndef INTACT_REFERENCE_CONTRACT_VERSION_H_
#define INTACT_REFERENCE_CONTRACT_VERSION_H_

namespace intact::reference {

/// The version of the arithmetic that docs/arithmetic.md defines. A change of any output byte needs a new version.
inline constexpr int kArithmeticVersion = 1;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_VERSION_H_
