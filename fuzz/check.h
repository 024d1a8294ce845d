// What the fuzzers do with their bytes: make a call of the C ABI, mostly a valid one, and hold the library's
// answer against the scalar reference.
//
//   bytes ──► descriptor, arguments, tensors ──► create ──► refused: a status and a message that says why
//                                                   └────► run between guard pages ──► the reference's bytes
//
// What is refused must be refused whole (no plan, an output that is as it was), and what nothing was spoilt
// of may only be refused for an int32 overflow or an ISA. On the way some plans are saved and loaded, run in
// parts or in scratch of the caller's, asked for their certificates and tuned.
//
// The first byte of a GEMM's call tells which features of later versions of the ABI it has: fuzz/features.h.
//
// Others read their bytes as people's files and lines.
#ifndef INTACT_FUZZ_CHECK_H_
#define INTACT_FUZZ_CHECK_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace intact::fuzz {

/// A fault planted in outputs, to see that it is found.
using Tamper = std::function<void(std::vector<uint8_t>* output)>;

/// What is wrong with the library's answers to the call that `bytes` make; "" if nothing is.
std::string CheckGemm(std::span<const uint8_t> bytes, const Tamper& tamper = {});
std::string CheckConv(std::span<const uint8_t> bytes, const Tamper& tamper = {});

/// `bytes` as a saved plan: loads them as they are, and with the checksum that they ought to have. A plan
/// that comes of it is run.
std::string CheckPackFile(std::span<const uint8_t> bytes);

// Files and lines that people bring to the verifier. What is refused must be refused in a line that names it.

/// `bytes` as a .npy file: what is read is read again from files in either order of elements.
std::string CheckNpy(std::span<const uint8_t> bytes);

/// `bytes` as two reports with a zero byte between them: they compare as they do the other way round.
std::string CheckReports(std::span<const uint8_t> bytes);

/// `bytes` as a sweep's JSON or journal: what is read is the same when it was written and read again.
std::string CheckSweepFile(std::span<const uint8_t> bytes);

/// `bytes` as a layer.json, after six that choose the tensors beside it. A small layer is run.
std::string CheckLayerFolder(std::span<const uint8_t> bytes);

/// `bytes` as a problem's line: what is taken is its own line's problem, and its tensors take no more memory
/// than is foreseen.
std::string CheckProblem(std::span<const uint8_t> bytes);

/// Ends the process, with `wrong` on stderr, unless it is "": a fuzzer's finding.
void Require(const std::string& wrong);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_CHECK_H_
