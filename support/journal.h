// A file of lines that grows while work is done. After a kill it shows what was done.
//
//   first line: what work this is\n
//   a line\n
//   a li                             ← torn: the process was killed while writing
//
// A line counts when its newline is there. Lines go to the kernel at once, so a killed process loses only the
// line that it was writing. Lines go to the disk about once a second; a machine that goes down loses at most
// the lines of the last second. A torn line is cut off before the next line is written.
//
// Only one process at a time can open a journal, if the file system has locks; a second process is refused.
#ifndef INTACT_SUPPORT_JOURNAL_H_
#define INTACT_SUPPORT_JOURNAL_H_

#include <chrono>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace intact::support {

/// The whole lines, without their newlines, and the bytes after the last one.
struct JournalText {
  std::vector<std::string> lines;
  std::string torn;
};
JournalText SplitJournal(std::string_view text);

class Journal {
 public:
  /// Opens the file, or makes an empty one; changes nothing in it. Errors are one line that names the file.
  static Result<Journal> Open(const std::string& path);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();  // when it returns, the disk has all lines

  /// What the file held when it was opened.
  const JournalText& text() const { return text_; }
  /// Appends `line`, which must not contain a newline.
  std::optional<Error> Append(std::string_view line);

 private:
  Journal(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Error Failed(int error) const;

  std::string path_;
  int file_;  // −1: moved from
  JournalText text_;
  bool is_torn_ = false;
  int64_t size_ = 0;  // of the whole lines, in bytes
  std::chrono::steady_clock::time_point last_sync_;
};

}  // namespace intact::support
#endif  // INTACT_SUPPORT_JOURNAL_H_
