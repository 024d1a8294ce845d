// Files for others to read: they appear whole or not at all. The text goes to a temporary file beside the
// path, which Publish() renames; several files are written before the first of them appears.
#ifndef INTACT_VERIFY_OUTPUT_FILE_H_
#define INTACT_VERIFY_OUTPUT_FILE_H_

#include <intact/intact.hpp>
#include <optional>
#include <string>

namespace intact::verify {

class OutputFile {
 public:
  /// Writes the temporary file, and makes missing folders.
  static Result<OutputFile> Write(const std::string& path, const std::string& text);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not published

  std::optional<Error> Publish();

 private:
  OutputFile(std::string path, std::string temporary);

  std::string path_;
  std::string temporary_;  // empty: none
};

/// What WriteFile() would fail with, before there is a text: makes missing folders, and leaves the file as it
/// is.
std::optional<Error> WhyNotWritable(const std::string& path);

/// A single file.
std::optional<Error> WriteFile(const std::string& path, const std::string& text);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_OUTPUT_FILE_H_
