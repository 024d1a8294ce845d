// Files for others to read: they appear whole or not at all. The text goes to a temporary file beside the
// path, which Publish() renames; several files are written before the first of them appears.
//
// As with the library's own files (kernels/runtime/whole_file.h), a new file has the rights that the umask
// leaves, one that is replaced keeps its own, and a symbolic link stays: what it names is written. Devices,
// pipes and descriptors of this process, such as /dev/null and /dev/stdout, are written directly.
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
  std::string target_;     // what that names in the end
  std::string temporary_;  // empty: none
  std::string text_;       // of what is written directly
};

/// What WriteFile() would fail with, before there is a text: leaves the file as it is, and makes no folders.
std::optional<Error> WhyNotWritable(const std::string& path);

/// A single file.
std::optional<Error> WriteFile(const std::string& path, const std::string& text);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_OUTPUT_FILE_H_
