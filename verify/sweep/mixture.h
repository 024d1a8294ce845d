// How a target computes many problems: which arithmetic (reference/models/arithmetic.h) reproduces how many
// of them byte for byte. A library may use several arithmetics: oneDNN's GEMMs before VNNI clamp pairs, but
// are exact if there is a zero point.
//
// Problems are counted for each kind of operation. Problems with the contract's outputs are exact. A greedy
// choice explains the other problems by few arithmetics: it takes the arithmetic that reproduces most of the
// remaining problems, until no arithmetic reproduces any. Then a less strange arithmetic replaces a chosen
// one if all problems stay explained.
//
// For each arithmetic, and for problems that have none, the mixture keeps the sizes. Reports of targets and
// the tables of docs/measurements/peers.md need mixtures. A sweep alone says only how many outputs are not
// exact.
#ifndef INTACT_VERIFY_SWEEP_MIXTURE_H_
#define INTACT_VERIFY_SWEEP_MIXTURE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

/// All problems of one kind of operation.
struct Mixture {
  std::string operation;  // "gemm u8s8", "conv …", "depthwise …", "deconvolution …": types of A and B
  int64_t problems = 0;
  int64_t exact = 0;
  int64_t would_show_clamping =
      0;  // exact problems that would differ if adjacent pairs were clamped to int16
  /// The least and the largest m, n and k; for convolutions: of the GEMM of one group.
  using Sizes = std::array<std::pair<int64_t, int64_t>, 3>;
  struct Part {
    reference::Arithmetic arithmetic;
    int64_t problems = 0;  // each problem counts for one part only
    Sizes sizes;
    std::vector<reference::Rounding>
        others;  // roundings with the same sums that reproduce all these problems
  };
  std::vector<Part> parts;
  /// Problems that no arithmetic reproduces.
  struct Others {
    int64_t problems = 0;
    std::string example;  // the first problem's line; in_parts: the line with most differing outputs
    std::string known;    // what is known of the example
    Sizes sizes = {};
  };
  int64_t not_explained = 0;  // failures after the first kMostExplained
  Others in_parts;            // each output that differs has an arithmetic; known: PartsInWords()
  Others unexplained;         // some differing outputs have no arithmetic
  Others without_outputs;     // the target failed; known: how
};

/// A mixture for each kind of operation, in order of first appearance. Empty for our own kernels.
std::vector<Mixture> Mixtures(const SweepResult& sweep);

/// "m 1 to 65, n 16, k 2 to 600"
std::string InWords(const Mixture::Sizes& sizes);
/// "749 of 1262 problems: pairs of adjacent depths clamped to int16 (maddubs)", "513: exact; …": a phrase for
/// each arithmetic, and one for each kind of problems without one.
std::vector<std::string> Phrases(const Mixture& mixture);
/// All phrases in one line.
std::string InWords(const Mixture& mixture);

/// The number of problems of grouped weights that each arithmetic computes, on targets that are not ours.
std::map<std::string, int64_t> GroupedArithmetics(const SweepResult& sweep);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_MIXTURE_H_
