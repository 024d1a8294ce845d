// The parts of the project's HTML pages, which need nothing beside them: style and pictures are inside.
#ifndef INTACT_SUPPORT_HTML_H_
#define INTACT_SUPPORT_HTML_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/origin.h"

namespace intact::support::html {

/// A whole page, light or dark as the reader's system is. `title` is text, `body` is HTML.
std::string Page(std::string_view title, const Origin& origin, std::string_view body);

std::string Escape(std::string_view text);

/// What something is worth, told by its colour beside its words.
enum class Tone : uint8_t { kPlain, kGood, kDoubtful, kBad };

struct Cell {
  Cell(std::string its_text, Tone its_tone = Tone::kPlain)  // NOLINT(google-explicit-constructor)
      : text(std::move(its_text)), tone(its_tone) {}
  Cell(const char* its_text) : text(its_text) {}  // NOLINT(google-explicit-constructor)

  std::string text;
  Tone tone = Tone::kPlain;
};

using Row = std::vector<Cell>;

/// Columns from `first_number` on are set flush right. Where it is wider than the page it scrolls, all but
/// its first column.
std::string Table(const Row& head, const std::vector<Row>& rows, size_t first_number);

/// A table of any length, columns of text, with a field to search it: only rows that hold all words of it are
/// shown, and no more than 500 at a time. Without scripts it shows all rows. `id` is its own on its page.
std::string FilteredTable(std::string_view id, const Row& head, const std::vector<Row>& rows);

/// What gnuplot draws by `commands` (plot.h), or a note that says why it did not. `caption` is HTML.
std::string Figure(std::string_view name, const std::string& commands, std::string_view caption);

/// `yes` in the colour of good news, or `no` in that of bad. Both are HTML.
std::string Judged(bool good, std::string_view yes, std::string_view no);

}  // namespace intact::support::html
#endif  // INTACT_SUPPORT_HTML_H_
