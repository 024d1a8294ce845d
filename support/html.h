// The parts of the project's HTML pages. Pages need no other file: style and pictures are inside.
#ifndef INTACT_SUPPORT_HTML_H_
#define INTACT_SUPPORT_HTML_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/origin.h"

namespace intact::support::html {

/// A whole page, light or dark like the reader's system. `title` is text, `body` is HTML.
std::string Page(std::string_view title, const Origin& origin, std::string_view body);

std::string Escape(std::string_view text);

/// How good a finding is. Its text is coloured to match.
enum class Tone : uint8_t { kPlain, kGood, kDoubtful, kBad };

struct Cell {
  Cell(std::string its_text, Tone its_tone = Tone::kPlain)  // NOLINT(google-explicit-constructor)
      : text(std::move(its_text)), tone(its_tone) {}
  Cell(const char* its_text) : text(its_text) {}  // NOLINT(google-explicit-constructor)

  std::string text;
  Tone tone = Tone::kPlain;
};

using Row = std::vector<Cell>;

/// Columns from `first_number` on are set flush right. A table wider than the page scrolls under its first
/// column.
std::string Table(const Row& head, const std::vector<Row>& rows, size_t first_number);

/// A table of any length, with columns of text and a search field. It shows at most 500 of the rows that have
/// all words searched for. Without scripts it shows all rows. `id` must be unique on its page.
std::string FilteredTable(std::string_view id, const Row& head, const std::vector<Row>& rows);

/// The picture that gnuplot draws by `commands` (plot.h), or a note why there is none. `caption` is HTML.
std::string Figure(std::string_view name, const std::string& commands, std::string_view caption);

/// `yes` in the colour of good news if `good`; else `no` in the colour of bad news. Both are HTML.
std::string Judged(bool good, std::string_view yes, std::string_view no);

}  // namespace intact::support::html
#endif  // INTACT_SUPPORT_HTML_H_
