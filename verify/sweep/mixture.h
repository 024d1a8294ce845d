// What a target computes, told of many problems: which arithmetic (reference/models/arithmetic.h) reproduces
// how many of them byte for byte, and what problems those are. A library may have several, as oneDNN has, whose
// GEMMs before VNNI clamp pairs but are exact where there is a zero point.
//
// Of each kind of operation, problems whose outputs are those of the contract are exact. The others are dealt
// to as few arithmetics as a greedy choice finds: the one that reproduces most of those that are left, until
// none reproduces any; where a less strange one will do beside the others, it takes its place. A condition is
// told where one property of problems, such as a zero point, a depth or its rest by a block, or either of
// two, holds for all problems of an arithmetic, but for few, and for none that it does not reproduce.
#ifndef INTACT_VERIFY_SWEEP_MIXTURE_H_
#define INTACT_VERIFY_SWEEP_MIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

/// Of all problems of one kind of operation.
struct Mixture {
  std::string operation;  // "gemm u8s8", "conv …", "depthwise …", "deconvolution …": types of A and B
  int64_t problems = 0;
  int64_t exact = 0;
  int64_t telling = 0;      // exact ones of which adjacent pairs clamped to int16 make other bytes
  std::string exact_where;  // what separates those from problems that clamp: "only where …"; or ""
  struct Part {
    reference::Arithmetic arithmetic;
    int64_t problems = 0;  // those of them that no part before reproduces
    std::string where;     // likewise
  };
  std::vector<Part> parts;
  /// Problems that no arithmetic reproduces.
  struct Rest {
    int64_t problems = 0;
    std::string example;  // the first's line; in parts, that of which most outputs differ
    std::string known;    // of the example
    std::string where;    // what separates them from those that are right or explained; or ""
  };
  Rest in_parts;         // each output that differs has an arithmetic; known: PartsInWords()
  Rest unexplained;      // some have none
  Rest without_outputs;  // the target failed; known: how
};

/// One for each kind, in the order in which they first come; none of our own kernels.
std::vector<Mixture> Mixtures(const SweepResult& sweep);

/// "749 of 1262 problems: pairs of adjacent depths clamped to int16 (triple)", "513: exact; …": a phrase for
/// each arithmetic, and one for what has none.
std::vector<std::string> Phrases(const Mixture& mixture);
/// All of them in a line.
std::string InWords(const Mixture& mixture);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_MIXTURE_H_
