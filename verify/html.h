// The parts of the project's HTML pages, which need nothing beside them: style and pictures are inside.
#ifndef INTACT_VERIFY_HTML_H_
#define INTACT_VERIFY_HTML_H_

#include <string>
#include <string_view>
#include <vector>

namespace intact::verify::html {

/// A whole page. `title` is text, `body` is HTML.
std::string Page(std::string_view title, std::string_view body);

std::string Escape(std::string_view text);

using Row = std::vector<std::string>;

/// Cells are text; columns from `first_number` on are set flush right.
std::string Table(const Row& head, const std::vector<Row>& rows, size_t first_number);

/// What gnuplot draws by `commands` (plot.h), or a note that says why it did not. `caption` is HTML.
std::string Figure(std::string_view name, const std::string& commands, std::string_view caption);

/// `yes` in the colour of good news, or `no` in that of bad. Both are HTML.
std::string Judged(bool good, std::string_view yes, std::string_view no);

}  // namespace intact::verify::html
#endif  // INTACT_VERIFY_HTML_H_
