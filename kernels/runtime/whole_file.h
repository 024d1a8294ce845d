// Files that appear whole or not at all.
#ifndef INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
#define INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace intact::kernels {

/// Writes `contents` to `path`. A new file has the permissions that the umask leaves. A file that is replaced
/// keeps its own permissions, except the set-user-ID and set-group-ID bits. A symbolic link stays, and its
/// target is written. If the file system allows it, the file has no name until it is whole, so that nothing
/// is left behind if the process ends. (If it replaces a file, it is named PATH.partial-… between two system
/// calls.) INVALID_ARGUMENT: the message names `path` and the reason.
Error WriteWholeFile(const std::string& path, const std::vector<uint8_t>& contents);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
