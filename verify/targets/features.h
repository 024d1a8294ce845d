// The features that an operation needs, as bits of include/intact/target.h.
#ifndef INTACT_VERIFY_TARGETS_FEATURES_H_
#define INTACT_VERIFY_TARGETS_FEATURES_H_

#include <cstdint>
#include <string>

#include "verify/problem/target.h"

namespace intact::verify {

/// The intact_target_feature bits of all output types.
uint64_t OutputFeatures();

/// The intact_target_feature bits that an operation needs when it is run with `options`.
uint64_t FeaturesOf(const reference::Operation& operation, const RunOptions& options);

/// Features in words: "zero points of activations, a residual".
std::string FeatureNames(uint64_t features);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_FEATURES_H_
