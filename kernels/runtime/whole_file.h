// Files that appear whole or not at all.
#ifndef INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
#define INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace intact::kernels {

/// Writes `contents` to `path`. A new file has the permissions that the umask leaves. A replaced file keeps
/// its permissions, except the set-user-ID and set-group-ID bits. A symbolic link stays, and its target is
/// written. INVALID_ARGUMENT: the message names `path` and the reason.
Error WriteWholeFile(const std::string& path, const std::vector<uint8_t>& contents);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_WHOLE_FILE_H_
