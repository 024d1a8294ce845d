// What the fuzzers do with their bytes: make a call of the C ABI, mostly a valid one, and hold the library's
// answer against the scalar reference.
//
//   bytes ──► descriptor, arguments, tensors ──► create ──► refused: a status and a message that says why
//                                                   └────► run between guard pages ──► the reference's bytes
//
// What is refused must be refused whole (no plan, an output that is as it was), and what nothing was spoilt
// of may only be refused for an int32 overflow or an ISA. On the way some plans are saved and loaded, run in
// parts or in scratch of the caller's, asked for their certificates and tuned.
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

/// Ends the process, with `wrong` on stderr, unless it is "": a fuzzer's finding.
void Require(const std::string& wrong);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_CHECK_H_
