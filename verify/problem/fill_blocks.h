// How products with grouped weights (include/intact/grouped.h) are filled.
#ifndef INTACT_VERIFY_PROBLEM_FILL_BLOCKS_H_
#define INTACT_VERIFY_PROBLEM_FILL_BLOCKS_H_

#include "verify/problem/fill.h"
#include "verify/problem/problem.h"

namespace intact::verify {

// Each function fills in one field of `filling.grouped`, whose sizes and types are set.

/// Each row belongs to a random expert. With some seeds, all rows belong to one expert.
void FillExpertRows(const Filling& filling);
/// The weights.
void FillCodes(const Filling& filling);
void FillGroupZeroPoints(const Filling& filling);
void FillGroupScales(const Filling& filling);
void FillMinimums(const Filling& filling);
void FillGroupedBias(const Filling& filling);
/// A, its scales and zero points; or real numbers, and A as the reference quantizes them.
void FillRows(const Filling& filling);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FILL_BLOCKS_H_
