// What a target computes, told of many problems: which arithmetic (reference/models/arithmetic.h) reproduces
// how many of them byte for byte. A library may have several, as oneDNN has, whose
// GEMMs before VNNI clamp pairs but are exact where there is a zero point.
//
// Of each kind of operation, problems whose outputs are those of the contract are exact. The others are dealt
// to as few arithmetics as a greedy choice finds: the one that reproduces most of those that are left, until
// none reproduces any; where a less strange one will do beside the others, it takes its place.
//
// Of each arithmetic, and of what has none, the mixture keeps the sizes of its problems.
#ifndef INTACT_VERIFY_SWEEP_MIXTURE_H_
#define INTACT_VERIFY_SWEEP_MIXTURE_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

/// Of all problems of one kind of operation.
struct Mixture {
  std::string operation;  // "gemm u8s8", "conv …", "depthwise …", "deconvolution …": types of A and B
  int64_t problems = 0;
  int64_t exact = 0;
  int64_t telling = 0;  // exact ones of which adjacent pairs clamped to int16 make other bytes
  /// The least and the largest m, n and k; of convolutions those of the GEMM of a group.
  using Sizes = std::array<std::pair<int64_t, int64_t>, 3>;
  struct Part {
    reference::Arithmetic arithmetic;
    int64_t problems = 0;  // those of them that no part before reproduces
    Sizes sizes;
  };
  std::vector<Part> parts;
  /// Problems that no arithmetic reproduces.
  struct Others {
    int64_t problems = 0;
    std::string example;  // the first's line; in parts, that of which most outputs differ
    std::string known;    // of the example
    Sizes sizes = {};
  };
  Rest in_parts;         // each output that differs has an arithmetic; known: PartsInWords()
  Rest unexplained;      // some have none
  Rest without_outputs;  // the target failed; known: how
};

/// One for each kind, in the order in which they first come; none of our own kernels.
std::vector<Mixture> Mixtures(const SweepResult& sweep);

/// "m 1 to 65, n 16, k 2 to 600"
std::string InWords(const Mixture::Sizes& sizes);
/// "749 of 1262 problems: pairs of adjacent depths clamped to int16 (maddubs)", "513: exact; …": a phrase for
/// each arithmetic, and one for what has none.
std::vector<std::string> Phrases(const Mixture& mixture);
/// All of them in a line.
std::string InWords(const Mixture& mixture);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_MIXTURE_H_
