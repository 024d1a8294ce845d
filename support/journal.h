// A file of lines that grows while work is done, and tells after a kill what was done.
//
//   first line: what work it is of\n
//   a line\n
//   a li                             ← torn: the process was killed within the write
//
// A line counts when its newline is there. It goes to the kernel as it comes, so a killed process loses
// nothing but the line that it was writing; and to the disk about once a second, which is what a machine that
// goes down loses. A torn line is cut off before the next one is written.
//
// One process at a time has the journal: a second one is refused, where the file system has locks.
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

/// Lines that are whole, without their newlines, and what stands behind the last one.
struct JournalText {
  std::vector<std::string> lines;
  std::string torn;
};
JournalText SplitJournal(std::string_view text);

class Journal {
 public:
  /// Opens the file, or makes an empty one; changes nothing in it. Errors are one line that names it.
  static Result<Journal> Open(const std::string& path);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();  // the disk has all of it then

  /// What was there when it was opened.
  const JournalText& text() const { return text_; }
  /// Appends a line, which has no newline in it.
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
