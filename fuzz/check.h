// Fuzzers turn bytes into a call of the C ABI, mostly a valid one, and compare the library's answer with the
// scalar reference.
//
//   bytes ──► descriptor, arguments, tensors ──► create ──► refused: a status and a message that says why
//                                                   └────► run between guard pages ──► the reference's bytes
//
// A refused call must have no effect: no plan, an unchanged output. A call that was not corrupted may only be
// refused for an int32 overflow or an ISA that is not available. Some plans are also saved and loaded, run in
// parts or in the caller's scratch memory, asked for their certificates, or tuned.
//
// The first byte of a call chooses its features of later ABI versions: fuzz/features.h.
//
// Other fuzzers read their bytes as files and lines that users bring.
#ifndef INTACT_FUZZ_CHECK_H_
#define INTACT_FUZZ_CHECK_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace intact::fuzz {

/// Plants a fault in outputs, to test that the checks find it.
using Tamper = std::function<void(std::vector<uint8_t>* output)>;

/// "", or what is wrong with the library's answers to the call made from `bytes`.
std::string CheckGemm(std::span<const uint8_t> bytes, const Tamper& tamper = {});
std::string CheckConv(std::span<const uint8_t> bytes, const Tamper& tamper = {});

/// The first eight bytes choose a small product with grouped weights; the others choose a wrong descriptor and wrong
/// arguments, which must be refused.
std::string CheckGrouped(std::span<const uint8_t> bytes, const Tamper& tamper = {});

/// `bytes` as a question to the table of engines (intact/engines.h).
std::string CheckEngine(std::span<const uint8_t> bytes);

/// `bytes` as a saved plan: loads them unchanged, and with a correct checksum; each time as a portable plan,
/// for AVX2, which reads most schedules, and for the best ISA. A plan that loads is run. In INTACT_EXACT mode
/// all plans of an image must compute the same bytes. `tamper` changes the outputs on AVX2.
std::string CheckPackFile(std::span<const uint8_t> bytes, const Tamper& tamper = {});

// Files and lines that users bring to the verifier. A refusal must be one line that names the file.

/// `bytes` as a .npy file. The array, written again in either order of elements, must be read back unchanged.
std::string CheckNpy(std::span<const uint8_t> bytes);

/// `bytes` as two reports with a zero byte between them. Comparing them in either order must agree.
std::string CheckReports(std::span<const uint8_t> bytes);

/// `bytes` as a sweep's JSON or journal. The sweep, written again, must be read back unchanged.
std::string CheckSweepFile(std::span<const uint8_t> bytes);

/// The first six bytes choose tensors; the others are layer.json. A small layer is run.
std::string CheckLayerFolder(std::span<const uint8_t> bytes);

/// `bytes` as a problem's line. An accepted problem must parse again from its own line, and its tensors must
/// not take more memory than verify::MemoryOf() predicts. A small problem of grouped weights is run.
std::string CheckProblem(std::span<const uint8_t> bytes);

/// A fuzzer's finding: ends the process with `wrong` on stderr, unless it is "".
void Require(const std::string& wrong);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_CHECK_H_
