// Files that appear whole or not at all, as a good guest writes them.
#ifndef INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
#define INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace intact::kernels {

/// A new file has the rights that the umask leaves, one that is replaced keeps its own, but for the
/// set-user-ID and set-group-ID bits; a symbolic link stays, and what it names is written. Until it is whole
/// the file has no name, so that nothing is left behind whenever the process ends (where the file system can
/// do that; a file that is replaced is named PATH.partial- for the time between two system calls).
/// INVALID_ARGUMENT: what the message says, of `path`.
Error WriteWholeFile(const std::string& path, const std::vector<uint8_t>& contents);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
