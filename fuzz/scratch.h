// Writes the fuzzers' bytes to files in a temporary folder, for code that reads files by name.
#ifndef INTACT_FUZZ_SCRATCH_H_
#define INTACT_FUZZ_SCRATCH_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <span>
#include <string>

namespace intact::fuzz {

/// The folder. It is removed when the process exits.
const std::string& ScratchFolder();

/// Writes `bytes` to the file `name` and returns its path. `name` may have folders.
std::string WriteScratch(const std::string& name, std::span<const uint8_t> bytes);

/// Checks the refusal of `path`, a file or a folder: "" if it is one line that begins with `path`; else what
/// is wrong with it.
std::string WrongFileRefusal(const std::string& path, const Error& error);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_SCRATCH_H_
