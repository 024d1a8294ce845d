// Files that appear whole or not at all. The text goes to a temporary file in the same folder, which
// Publish() renames. Several files can be written before the first one appears.
//
// The library's own files follow the same rules (kernels/runtime/whole_file.h): a new file has the
// permissions that the umask leaves; a replaced file keeps its permissions; a symbolic link stays, and the
// file that the link names is written. Devices, pipes and descriptors of this process, such as /dev/null and
// /dev/stdout, are written directly.
#ifndef INTACT_SUPPORT_OUTPUT_FILE_H_
#define INTACT_SUPPORT_OUTPUT_FILE_H_

#include <intact/intact.hpp>
#include <optional>
#include <string>

namespace intact::support {

class OutputFile {
 public:
  /// Writes the temporary file, and makes missing folders.
  static Result<OutputFile> Write(const std::string& path, const std::string& text);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not published

  std::optional<Error> Publish();

 private:
  OutputFile(std::string path, std::string target, std::string temporary, std::string text);

  std::string path_;       // as the caller has it
  std::string target_;     // the file that path_ names after all links
  std::string temporary_;  // empty: none
  std::string text_;       // only for a device, pipe or descriptor
};

/// The error that WriteFile() would return, for use before the text exists. Leaves the file as it is, and
/// makes no folders.
std::optional<Error> WhyNotWritable(const std::string& path);

/// Writes and publishes a single file.
std::optional<Error> WriteFile(const std::string& path, const std::string& text);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_OUTPUT_FILE_H_
