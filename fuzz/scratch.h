// Files for what reads them by name: the fuzzers' bytes go to a folder of the process's own.
#ifndef INTACT_FUZZ_SCRATCH_H_
#define INTACT_FUZZ_SCRATCH_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <span>
#include <string>

namespace intact::fuzz {

/// The folder; it goes when the process exits.
const std::string& ScratchFolder();

/// Makes `bytes` the file `name`, which may be in a folder within the scratch folder; its path.
std::string WriteScratch(const std::string& name, std::span<const uint8_t> bytes);

/// What is wrong with how `path`, a file or a folder, is refused: "" if one line says what is wrong with it.
std::string WrongFileRefusal(const std::string& path, const Error& error);

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_SCRATCH_H_
